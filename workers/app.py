"""The Celery application: a doorbell for jobs that live in Postgres (DESIGN 5).

`celery -A workers.app …` and Flower find an application for this process's settings under the name `app`.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, Final

from kombu import Exchange
from kombu import Queue as BrokerQueue

from om_core.domain.job import Queue
from workers.broker import OmCelery, broker_address

if TYPE_CHECKING:
    from celery import Celery

QUEUES: Final = tuple(queue.value for queue in Queue)
KEY_PREFIX: Final = "om:"
"""Before every Redis key of ours; the list of waiting rings of a queue is `om:<queue>`."""

TRANSPORT: Final[dict[str, Any]] = {
    "visibility_timeout": 300,  # rings are acknowledged at once; this only bounds what a crash leaves unacknowledged
    "unacked_restore_interval": 10,  # with the throttle: look for such leftovers every 10 s instead of every 100 s
    "unacked_restore_throttle": 1,
    "unacked_mutex_expire": 30,  # a worker killed while restoring blocks the others for 30 s instead of 300 s
    "socket_timeout": 5.0,  # without it a hung Redis blocks for ever
    "socket_connect_timeout": 2.0,
    "socket_keepalive": True,
    "health_check_interval": 15,  # notices half-open connections
    "global_keyprefix": KEY_PREFIX,
}


def celery_settings(*, socket_timeout_s: float = 5.0, **transport: Any) -> dict[str, Any]:
    """Celery's configuration, the same in workers, publishers, beat and Flower."""
    connect_timeout_s = min(socket_timeout_s, TRANSPORT["socket_connect_timeout"])
    timeouts = {"socket_timeout": socket_timeout_s, "socket_connect_timeout": connect_timeout_s}
    options = {**TRANSPORT, **timeouts, **transport}
    return {
        "task_serializer": "json",  # nothing that can run code while it is read
        "accept_content": ["json"],
        "result_backend": None,  # the state of a job is its row in Postgres
        "task_ignore_result": True,
        "task_acks_late": False,  # late acknowledgement loses and doubles all the same, and 5.7.0 dies of it
        "task_reject_on_worker_lost": False,  # no endless loop around a job that kills its worker: its lease expires
        "worker_pool": "threads",  # 64 model calls in one process of 265 MB
        "worker_disable_prefetch": True,  # no ring waits in a busy worker while another is free
        "worker_prefetch_multiplier": 1,
        "worker_cancel_long_running_tasks_on_connection_loss": False,  # the threads pool cannot cancel: it would crash
        "broker_connection_retry_on_startup": True,  # a worker starts without Redis, and sweeps meanwhile
        "broker_connection_max_retries": None,  # for ever; the default gives up after 100 attempts
        "broker_transport_options": options,
        "task_publish_retry": False,  # the sweep is the retry
        "task_queues": [
            # Direct exchanges: a topic exchange silently drops messages after Redis was flushed.
            BrokerQueue(name, Exchange(name, type="direct"), routing_key=name)
            for name in QUEUES
        ],
        "task_create_missing_queues": False,  # a misspelt queue is an error, not a queue without workers
        "task_default_queue": Queue.MAINTENANCE.value,  # has to be one of them; beat's tasks go there
        "task_default_exchange": Queue.MAINTENANCE.value,
        "task_default_routing_key": Queue.MAINTENANCE.value,
        "worker_send_task_events": True,  # Flower lives on events; they carry the arguments, so these are ids only
        "task_send_sent_event": False,  # the publisher sends nothing but the ring
        "worker_hijack_root_logger": False,  # om_core.telemetry writes the logs
        "worker_redirect_stdouts": False,
        "enable_utc": True,
        "timezone": "UTC",
    }


def build_app(redis_url: str, *, socket_timeout_s: float = 5.0) -> Celery:
    """An application without tasks: it can ring, inspect and show. `workers.signals.install` makes it a worker's.

    Args:
        redis_url: any address that `OM_REDIS_URL` may have.
        socket_timeout_s: how long one read or write may take.
    """
    address, options = broker_address(redis_url)
    app = OmCelery("om", address=address)
    app.conf.update(celery_settings(socket_timeout_s=socket_timeout_s, **options), broker_url=address)
    return app


@cache
def _process_app() -> Celery:
    """The application for this process's settings, ready to work as a worker.

    Raises:
        SetupError: no broker is named and none runs.
    """
    from om_core.bootstrap import locate
    from om_core.config import load_settings
    from om_core.domain.errors import SetupError
    from workers.signals import install

    settings = load_settings()
    located = locate(settings, start_embedded=False)
    if located.redis_url is None:
        raise SetupError("no broker: set OM_REDIS_URL")
    app = build_app(located.redis_url)
    install(app, settings, located)
    return app


def __getattr__(name: str) -> Any:
    if name == "app":
        return _process_app()
    raise AttributeError(name)
