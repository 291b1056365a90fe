# ruff: noqa: INP001 - a script of the image, no part of a package
"""The health check inside a container: `healthcheck.py api|flower|worker`; exit code 0 is healthy, 1 is not.

A worker is healthy when its heartbeat in Postgres is fresh. It is written by the loop that finds work, so a process
that lives but does nothing is unhealthy, and a worker that does its work while Redis is away is not.
"""

from __future__ import annotations

import os
import socket
import sys
import urllib.request
from typing import Final

PORTS: Final = {"api": ("OM_API_PORT", 8080, "/healthz"), "flower": ("OM_FLOWER_PORT", 5555, "/healthcheck")}
TIMEOUT_S: Final = 5.0
HEARTBEAT_S: Final = 30.0


def check_http(service: str) -> None:
    """Ask the service of this container.

    Raises:
        OSError: it does not answer, or not with 200.
    """
    variable, default, path = PORTS[service]
    port = os.environ.get(variable) or default
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=TIMEOUT_S) as answer:
        if answer.status != 200:
            raise OSError(f"{path} answers {answer.status}")


def check_worker() -> None:
    """Look for a fresh heartbeat of this container's worker.

    Raises:
        OSError: there is none.
    """
    from om_core.config import load_settings
    from om_core.store.engine import PostgresStore

    url = load_settings().database_url
    if url is None:
        raise OSError("OM_DATABASE_URL is not set")
    store = PostgresStore(url.reveal(), pool_size=1)
    try:
        seen = store.system.workers(max_age_s=HEARTBEAT_S)
    finally:
        store.close()
    host = socket.gethostname()
    if not any(worker.name.startswith(f"{host}:") for worker in seen):
        raise OSError(f"no heartbeat of a worker on {host} for {HEARTBEAT_S:.0f} s")


def main(arguments: list[str]) -> int:
    """Run the named check; the exit code."""
    if len(arguments) != 1 or arguments[0] not in {*PORTS, "worker"}:
        sys.stderr.write("usage: healthcheck.py api|flower|worker\n")
        return 2
    try:
        if arguments[0] == "worker":
            check_worker()
        else:
            check_http(arguments[0])
    except Exception as error:  # whatever went wrong, the container is not healthy
        sys.stderr.write(f"unhealthy: {type(error).__name__}: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
