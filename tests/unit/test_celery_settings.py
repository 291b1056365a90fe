"""Celery's configuration: each value that a measured failure has taught (reliability first, speed second)."""

from __future__ import annotations

import ssl
import subprocess
import sys

import pytest
from kombu import Connection

from om_core.domain.job import JobKind, Queue
from workers.app import QUEUES, build_app
from workers.broker import broker_address
from workers.tasks import TASK_OF, register

URL = "redis://user:secret@broker.internal:6390/4"

SETTINGS = [
    ("task_serializer", "json"),
    ("accept_content", ["json"]),
    ("result_backend", None),
    ("task_ignore_result", True),
    ("task_acks_late", False),
    ("task_reject_on_worker_lost", False),
    ("worker_pool", "threads"),
    ("worker_disable_prefetch", True),
    ("worker_prefetch_multiplier", 1),
    ("worker_cancel_long_running_tasks_on_connection_loss", False),
    ("broker_connection_retry_on_startup", True),
    ("broker_connection_max_retries", None),
    ("task_publish_retry", False),
    ("task_create_missing_queues", False),
    ("worker_send_task_events", True),
    ("task_send_sent_event", False),
    ("worker_hijack_root_logger", False),
]
TRANSPORT = {
    "visibility_timeout": 300,
    "unacked_restore_interval": 10,
    "unacked_restore_throttle": 1,
    "unacked_mutex_expire": 30,
    "socket_timeout": 5.0,
    "socket_connect_timeout": 2.0,
    "socket_keepalive": True,
    "health_check_interval": 15,
    "global_keyprefix": "om:",
}


@pytest.mark.report("J14")
@pytest.mark.parametrize(("name", "value"), SETTINGS)
def test_each_setting_has_its_value(name, value):
    assert build_app(URL).conf[name] == value


def test_the_transport_has_timeouts_and_the_prefix():
    assert build_app(URL).conf.broker_transport_options == TRANSPORT


def test_a_publisher_waits_for_less():
    options = build_app(URL, socket_timeout_s=1.0).conf.broker_transport_options

    assert options == {**TRANSPORT, "socket_timeout": 1.0, "socket_connect_timeout": 1.0}


def test_the_queues_are_direct_and_the_default_is_one_of_them():
    app = build_app(URL)

    assert set(app.amqp.queues) == {queue.value for queue in Queue} == set(QUEUES)
    assert {
        (queue.exchange.type, queue.exchange.name == queue.routing_key == queue.name)
        for queue in app.amqp.queues.values()
    } == {("direct", True)}
    assert app.conf.task_default_queue in QUEUES
    with pytest.raises(KeyError):
        app.amqp.queues["misspelt"]


def test_each_kind_of_job_has_a_task_without_result_and_retry():
    app = build_app(URL)
    register(app, lambda queue, job: "ok", lambda: "ok", lambda: "ok")
    ours = {name: task for name, task in app.tasks.items() if name.startswith("om.")}

    kinds = {f"om.{kind.value}" for kind in JobKind}
    assert set(ours) == {"om.audit", "om.prune", *kinds}
    assert kinds == set(TASK_OF.values())
    assert all(
        task.ignore_result and not task.acks_late and not getattr(task, "autoretry_for", ()) for task in ours.values()
    )


def test_an_application_without_tasks_can_only_ring():
    assert not any(name.startswith("om.") for name in build_app(URL).tasks)


def test_the_address_of_another_application_does_not_win(monkeypatch):
    for name in ("CELERY_BROKER_URL", "CELERY_BROKER_READ_URL", "CELERY_BROKER_WRITE_URL"):
        monkeypatch.setenv(name, "redis://elsewhere:1/9")
    app = build_app(URL)

    for connection in (app.connection(), app.connection_for_read(), app.connection_for_write()):
        assert connection.as_uri(include_password=True) == URL


def test_connections_come_back_within_seconds():
    app = build_app("redis://127.0.0.1:1/0")
    pauses: list[float] = []

    def on_error(error, pause):
        pauses.append(pause)
        if len(pauses) == 2:
            raise LookupError("enough")

    with pytest.raises(LookupError, match="enough"):
        app.connection_for_read().ensure_connection(on_error)
    assert pauses == [1, 2]


@pytest.mark.parametrize(
    ("url", "address", "options"),
    [
        ("redis://h:6379/0", "redis://h:6379/0", {}),
        ("unix:///run/redis.sock", "redis+socket:///run/redis.sock", {}),
        ("unix:///run/redis.sock?db=3", "redis+socket:///run/redis.sock?virtual_host=3", {}),
        ("redis+socket:///run/redis.sock?virtual_host=3", "redis+socket:///run/redis.sock?virtual_host=3", {}),
        ("rediss://h:6379/0", "rediss://h:6379/0?ssl_cert_reqs=required", {}),
        ("rediss://h/0?ssl_cert_reqs=none", "rediss://h/0?ssl_cert_reqs=none", {}),
        (
            "sentinel://a:26379/0?master_name=om;sentinel://b:26379/0",
            "sentinel://a:26379/0;sentinel://b:26379/0",
            {"master_name": "om"},
        ),
    ],
)
def test_every_kind_of_address_is_one_that_kombu_takes(url, address, options):
    assert broker_address(url) == (address, options)
    assert Connection(address).transport_cls in {"redis", "rediss", "sentinel"}


def test_certificates_are_checked_unless_the_address_says_otherwise():
    assert build_app("rediss://h:6379/0").connection().ssl == {"ssl_cert_reqs": ssl.CERT_REQUIRED}


def test_ringing_imports_neither_celery_nor_models_before_the_first_ring():
    code = (
        "import sys; from workers.dispatch import build_dispatcher; build_dispatcher('redis://h/0');"
        "print([name for name in ('celery', 'kombu', 'litellm', 'sqlalchemy', 'redis') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "[]"
