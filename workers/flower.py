"""Flower over our application: what the workers do, as they tell it."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from celery import Celery

TASKS = 5_000
"""Tasks that it remembers; its own default of 100,000 takes hundreds of megabytes."""
FORGET_S = 3_600
"""After which workers that are gone disappear."""
INSPECT_MS = 3_000.0
COLUMNS = "name,kwargs,state,received,runtime,worker,uuid"
"""Of the list of tasks: kwargs are job, kind, thread and attempt, which is what an operator looks for."""


def serve(app: Celery, *, host: str, port: int, login: str | None, read_only: bool) -> None:
    """Serve until SIGTERM or Ctrl-C. The login is given in memory: arguments can be read by every user of a machine."""
    from flower.app import Flower
    from flower.options import options
    from flower.urls import settings

    options.address = host
    options.port = port
    options.basic_auth = [login] if login else []
    options.read_only = read_only
    options.max_tasks = TASKS
    options.tasks_columns = COLUMNS
    options.purge_offline_workers = FORGET_S
    options.inspect_timeout = INSPECT_MS
    options.persistent = False
    server = Flower(capp=app, options=options, **settings)

    def stop(*_: Any) -> None:
        raise SystemExit(0)

    signal.signal(signal.SIGTERM, stop)
    server.start_http_server()
    try:
        server.start()
    except KeyboardInterrupt:
        pass
    finally:
        server.stop()
