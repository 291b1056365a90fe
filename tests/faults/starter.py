"""A process that has imported everything a worker needs, and forks one whenever it is told to.

Importing takes seconds; with hundreds of workers killed it would be most of the time. The children are complete worker
processes with connections, threads and logs of their own: forked before anything of that kind existed.

One JSON line per command on stdin: `{"start": id, "log": path, "environment": {…}}`. One JSON line per event on stdout:
`{"started": id, "pid": n}`, `{"ended": pid, "code": n}`. It ends with its stdin, and kills what is left.
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import signal
import sys
import time
from contextlib import suppress
from importlib import import_module
from typing import Any, Final

MODULES: Final = (
    "celery.apps.worker",
    "celery.concurrency.thread",
    "celery.worker.consumer",
    "kombu.transport.redis",
    "litellm.llms.openai.openai",
    "om_core.bootstrap",
    "workers.__main__",
    "workers.bootstrap",
    "workers.shutdown",
    "workers.signals",
)
CLOCK: Final = "OM_TEST_CLOCK_OFFSET_S"
"""Seconds by which a worker's clock differs from that of the database."""
LOCK_TIMEOUT: Final = "OM_TEST_LOCK_TIMEOUT_MS"
"""A shorter `lock_timeout` than the store's, so that a test need not wait ten seconds for one."""
VISIBILITY: Final = "OM_TEST_VISIBILITY_TIMEOUT_S"
"""After this time the broker hands a task that is not acknowledged to another worker."""
PR_SET_PDEATHSIG: Final = 1
REAP_S: Final = 0.05


def main() -> None:
    from om_core.llm.library import litellm_module
    from om_core.tokens import TiktokenCounter

    litellm_module()
    for name in MODULES:
        import_module(name)
    TiktokenCounter().count_text("warm")
    children: set[int] = set()
    _say(ready=os.getpid())
    waiting = b""
    while True:
        if select.select([0], [], [], REAP_S)[0]:
            more = os.read(0, 65_536)
            if not more:
                break
            *lines, waiting = (waiting + more).split(b"\n")
            for line in lines:
                command = json.loads(line)
                children.add(pid := _fork(command))
                _say(started=command["start"], pid=pid)
        _reap(children)
    for pid in children:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _reap(children: set[int]) -> None:
    for pid in list(children):
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            children.discard(pid)
            _say(ended=pid, code=os.waitstatus_to_exitcode(status))


def _say(**event: Any) -> None:
    os.write(1, json.dumps(event).encode() + b"\n")


def _fork(command: dict[str, Any]) -> int:
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        code = _work(command)
    except SystemExit as end:
        code = int(end.code or 0)
    finally:
        sys.stderr.flush()
        os._exit(code)


def _work(command: dict[str, Any]) -> int:
    os.setsid()
    _die_with_the_starter()
    log = os.open(command["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for target, source in ((0, nothing), (1, log), (2, log)):
        os.dup2(source, target)
    os.environ.clear()
    os.environ.update(command["environment"])
    sys.argv = ["workers"]
    if CLOCK in os.environ:
        _shift_clock(float(os.environ[CLOCK]))
    if LOCK_TIMEOUT in os.environ:
        _shorten_lock_timeout(int(os.environ[LOCK_TIMEOUT]))
    if VISIBILITY in os.environ:
        _shorten_visibility(int(os.environ[VISIBILITY]))
    from om_core.testing import failpoints
    from workers.__main__ import main as work

    failpoints.install()
    return work()


def _die_with_the_starter() -> None:
    """A starter that is killed takes its workers along, where the system offers that."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def _shift_clock(offset_s: float) -> None:
    """What this process takes for the time of day: in our own clock, and in `time.time` for Celery and kombu."""
    from datetime import timedelta

    from om_core.clock import SystemClock

    system, now = time.time, SystemClock.now

    def shifted() -> float:
        return system() + offset_s

    time.time = shifted
    for name in ("kombu.transport.redis", "kombu.transport.virtual.base"):  # they have taken it by name
        module: Any = import_module(name)
        if callable(getattr(module, "time", None)):
            module.time = shifted
    SystemClock.now = lambda self: now(self) + timedelta(seconds=offset_s)  # type: ignore[method-assign]  # this process only


def _shorten_visibility(seconds: int) -> None:
    from workers.app import TRANSPORT

    TRANSPORT["visibility_timeout"] = seconds
    TRANSPORT["unacked_restore_interval"] = 1


def _shorten_lock_timeout(milliseconds: int) -> None:
    import sqlalchemy as sa
    from sqlalchemy.engine import Engine

    @sa.event.listens_for(Engine, "connect")
    def shorten(connection: Any, record: Any) -> None:
        with connection.cursor() as cursor:
            cursor.execute(f"SET lock_timeout = {milliseconds}")
        connection.commit()  # a setting goes with the transaction that made it


if __name__ == "__main__":
    main()
