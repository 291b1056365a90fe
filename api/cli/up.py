"""`om up`: embedded servers, migration, then a worker, the API and Flower as children of one foreground process."""

from __future__ import annotations

import http.client
import signal
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from api.cli.children import Children
from api.cli.output import note, say
from api.cli.ports import check_free
from api.cli.run import DONE, FAILED

if TYPE_CHECKING:
    from api.cli.children import Child
    from om_core.bootstrap import Located
    from om_core.config import Settings

LOOPBACK: Final = "127.0.0.1"
READY_S: Final = 90.0
POLL_S: Final = 0.1
REQUEST_S: Final = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    """What to start, and where."""

    host: str
    port: int
    flower_port: int | None
    environment: dict[str, str]


def run_up(settings: Settings, *, port: int | None, flower_port: int | None, flower: bool) -> int:
    """Run until Ctrl-C or SIGTERM (0), or until a child ends (1).

    Raises:
        SetupError: a port is taken, a setting is missing.
        EmbeddedUnavailable: embedded servers cannot run here.
    """
    plan = _plan(settings, port, flower_port if flower_port is not None else settings.flower_port if flower else None)
    stop, hurry = _on_signals()
    located = _servers(settings)
    try:
        if stop.is_set():
            return DONE
        with Children(settings.home / "log") as children:
            code = _run(plan, settings, located, children, stop)
            say("Stopping ...")
            children.stop(hurry)
            return code
    finally:
        located.close()


def _plan(settings: Settings, port: int | None, flower_port: int | None) -> _Plan:
    from om_core.config import check_auth_binding

    host, number = settings.api_host, port or settings.api_port
    auth = settings.auth
    if settings.database_url is None and "auth" not in settings.sources and host == LOOPBACK:
        auth = "off"
        note("notice: OM_AUTH is not set: requests from this machine need no key. Set OM_AUTH=keys to ask for keys.")
    check_auth_binding(auth, host)
    check_free(host, number, "the API", "--port")
    if flower_port is not None:
        check_free(LOOPBACK, flower_port, "Flower", "--flower-port, or leave it out with --no-flower")
    return _Plan(host=host, port=number, flower_port=flower_port, environment={"OM_AUTH": auth})


def _on_signals() -> tuple[threading.Event, threading.Event]:
    """Set the first event at the first SIGINT or SIGTERM, the second at the second."""
    stop, hurry = threading.Event(), threading.Event()

    def handle(*_: Any) -> None:
        (hurry if stop.is_set() else stop).set()

    signal.signal(signal.SIGINT, handle)
    signal.signal(signal.SIGTERM, handle)
    return stop, hurry


def _servers(settings: Settings) -> Located:
    from om_core.bootstrap import locate, prepare
    from om_core.domain.errors import SetupError

    if settings.database_url is None:
        note(f"Starting embedded servers in {settings.home} ...")
    located = locate(settings, start_embedded=True)
    try:
        if located.redis_url is None:
            raise SetupError("no broker: set OM_REDIS_URL, or unset OM_DATABASE_URL to use embedded servers")
        prepare(located)
    except BaseException:
        located.close()
        raise
    return located


def _run(plan: _Plan, settings: Settings, located: Located, children: Children, stop: threading.Event) -> int:
    worker = children.start("worker", ["worker"], plan.environment)
    api = children.start("api", ["api", "--host", plan.host, "--port", str(plan.port)], plan.environment)
    flower = (
        children.start("flower", ["flower", "--port", str(plan.flower_port)], plan.environment)
        if plan.flower_port is not None
        else None
    )
    dead = _wait_ready(plan, located, worker, children, stop)
    if dead is None and not stop.is_set():
        _announce(plan, settings, located, worker, api, flower)
        dead = children.wait(stop)
    if dead is None or stop.is_set():
        return DONE
    note(f"error: {dead.why()}")
    return FAILED


def _wait_ready(
    plan: _Plan, located: Located, worker: Child, children: Children, stop: threading.Event
) -> Child | None:
    """Wait until the API answers and the worker was seen; a child that has ended meanwhile."""
    from api.cli.seen import worker_seen
    from om_core.store.engine import PostgresStore

    store = PostgresStore(located.database_url, pool_size=1)
    try:
        for _ in range(int(READY_S / POLL_S)):
            if (dead := children.first_dead()) is not None or stop.wait(POLL_S):
                return dead
            if _answers(plan.host, plan.port) and worker_seen(store, worker.process.pid):
                return None
    finally:
        store.close()
    note(f"notice: not everything has answered within {READY_S:.0f} s; still waiting")
    return None


def _answers(host: str, port: int) -> bool:
    connection = http.client.HTTPConnection(host, port, timeout=REQUEST_S)
    try:
        connection.request("GET", "/healthz")
        return connection.getresponse().status == http.HTTPStatus.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def _announce(
    plan: _Plan, settings: Settings, located: Located, worker: Child, api: Child, flower: Child | None
) -> None:
    from om_core.config import mask_url

    def line(name: str, where: str, child: Child | None = None) -> None:
        process = f"   process {child.process.pid}, log {child.log}" if child else ""
        say(f"  {name:<9} {where}{process}")

    say("Observational Memory is running")
    line("postgres", mask_url(located.database_url))
    line("redis", mask_url(located.redis_url or ""))
    line("worker", "all queues", worker)
    line("api", f"http://{plan.host}:{plan.port}  (documentation at /docs)", api)
    if flower is not None:
        line("flower", f"http://{LOOPBACK}:{plan.flower_port}", flower)
    if located.embedded:
        say(f"Data are kept in {settings.home}.")
    say("Ctrl-C stops everything.")
