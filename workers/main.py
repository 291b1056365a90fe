"""Starting the processes of the queue: worker, beat, Flower. For the command line, and `python -m workers`."""

from __future__ import annotations

import os
import signal
import socket
from typing import TYPE_CHECKING

from om_core.bootstrap import locate
from om_core.config import check_auth_binding
from om_core.domain.errors import SetupError
from om_core.telemetry import configure_logging
from om_core.tracing import start_tracing
from workers.app import QUEUES, build_app

if TYPE_CHECKING:
    from collections.abc import Sequence

    from celery import Celery

    from om_core.bootstrap import Located
    from om_core.config import Settings


def run_worker(settings: Settings, *, queues: Sequence[str] = (), concurrency: int | None = None) -> int:
    """Work until SIGTERM or Ctrl-C; the exit code. Starts and goes on without Redis, sweeping.

    Args:
        settings: of this process.
        queues: names among `QUEUES`; none: all of them.
        concurrency: jobs at a time; default `settings.worker_concurrency`.

    Raises:
        SetupError: an unknown queue, no servers, a database that does not answer or is not migrated, a missing key.
    """
    if unknown := sorted(set(queues) - set(QUEUES)):
        raise SetupError(f"no such queue: {', '.join(unknown)}; there are {', '.join(QUEUES)}")
    from workers.bootstrap import build_runtime
    from workers.signals import install

    start_tracing("om-worker")
    app, located = _application(settings)
    slots = concurrency or settings.worker_concurrency
    runtime = build_runtime(settings, located, queues=queues or QUEUES, slots=slots)
    install(app, settings, located, runtime)
    # Celery installs its handlers last: a worker that is told to stop while it starts ends as cleanly as later.
    signal.signal(signal.SIGTERM, _leave)
    try:
        return _work(app, settings, queues or QUEUES, slots)
    finally:
        runtime.stop()


def _leave(*_: object) -> None:
    raise SystemExit(0)


def _work(app: Celery, settings: Settings, queues: Sequence[str], slots: int) -> int:
    worker = app.Worker(
        hostname=f"om-{os.getpid()}@{socket.gethostname()}",
        pool_cls="threads",
        concurrency=slots,
        queues=",".join(queues),
        task_events=True,
        without_gossip=True,  # worker to worker traffic that grows with the square of their number
        without_mingle=True,
        quiet=True,
        loglevel=settings.log_level.upper(),
    )
    worker.start()
    return int(worker.exitcode or 0)


def run_beat(settings: Settings) -> None:
    """Ring what is scheduled until SIGTERM or Ctrl-C; waits for Redis as long as it takes.

    Raises:
        SetupError: no servers are named or running.
    """
    from workers.schedule import serve

    app, _ = _application(settings)
    configure_logging(settings.log_level, settings.log_format)
    serve(app)


def run_flower(settings: Settings, *, host: str = "127.0.0.1", read_only: bool = True) -> None:
    """Serve Flower until SIGTERM or Ctrl-C.

    Args:
        settings: port, login and broker.
        host: address to listen on; only a loopback address may go without a login.
        read_only: no buttons that stop workers or send tasks.

    Raises:
        SetupError: others could reach it without a login.
    """
    login = settings.flower_basic_auth.reveal() if settings.flower_basic_auth else None
    try:
        check_auth_binding("off" if login is None else "keys", host)
    except SetupError as error:
        msg = f"Flower on {host} needs a login: set OM_FLOWER_BASIC_AUTH=user:password, or listen on 127.0.0.1"
        raise SetupError(msg) from error
    from workers.flower import serve

    app, _ = _application(settings)
    serve(app, host=host, port=settings.flower_port, login=login, read_only=read_only)


def _application(settings: Settings) -> tuple[Celery, Located]:
    located = locate(settings, start_embedded=False)
    if located.redis_url is None:
        raise SetupError("no broker: set OM_REDIS_URL, as in redis://host:6379/0")
    return build_app(located.redis_url), located
