"""Actors and the stage: threads that stop at named points, and the one who says which of them goes on.

An actor stops before every statement, before and after every COMMIT, and around every model call. Only one runs at a
time, except those that wait for a lock in Postgres; the stage knows these from `pg_locks`, so a schedule repeats.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from time import monotonic
from typing import Any, Final, Literal, TypeAlias

import psycopg2
import psycopg2.extensions

from om_core.domain.invariants import Marks
from om_core.store.session import Session

FaultKind: TypeAlias = Literal["crash", "cut", "freeze"]
BETWEEN: Final = frozenset({"commit.after", "model.before", "model.after", "wait"})
"""Points between transactions, where a frozen process holds no lock."""
CUT: Final = "fuzz: connection cut"
STUCK_S: Final = 20.0
LOOK_S: Final = 0.002
_this = threading.local()


class Crash(BaseException):
    """The process of this actor is gone: nothing of it catches this."""


@dataclass(frozen=True, slots=True)
class Fault:
    """What happens at the nth point an actor reaches: its process dies, or only its connection is cut, or (from there
    on between two transactions) it freezes while the others take `steps` steps.
    """

    kind: FaultKind
    at: int
    steps: int = 0


class Actor:
    """One operation under way, in a thread of its own."""

    def __init__(self, name: str, work: Callable[[], None], fault: Fault | None) -> None:
        self.name = name
        self.fault = fault
        self.points: list[str] = []
        self.pid = 0
        self.frozen = 0
        self.error: BaseException | None = None
        self.crashed = self.cut = self.ended = False
        self.arrived = threading.Event()
        self._go = threading.Semaphore(0)
        self._free = False
        self._work = work
        self._thread = threading.Thread(target=self._run, name=f"fuzz-{name}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def advance(self) -> None:
        """Let it run to its next point; `arrived` is set when it is there."""
        self.arrived.clear()
        self._go.release()

    def reach(self, point: str, session: Session | None) -> None:
        """Stop here; then perhaps die here."""
        if self._free:
            return
        self.points.append(point)
        fault = self.fault
        if fault is not None and fault.kind == "freeze" and len(self.points) >= fault.at and point in BETWEEN:
            self.frozen, self.fault = fault.steps, None
        self.arrived.set()
        self._go.acquire()
        if fault is not None and fault.kind != "freeze" and len(self.points) == fault.at:
            self._free = fault.kind == "crash"
            self._break(session, fault.kind)

    def _break(self, session: Session | None, kind: FaultKind) -> None:
        """End the connection as the server sees it when a client is gone: what was not committed is rolled back."""
        if session is not None:
            driver: Any = session.connection.connection.driver_connection
            if not driver.closed:
                with driver.cursor() as cursor:
                    cursor.execute("ROLLBACK")
                driver.close()
            session.connection.invalidate()
        if kind == "crash" or session is None:
            self.crashed = True
            raise Crash(self.name)
        self.cut = True
        raise psycopg2.OperationalError(CUT)

    def _run(self) -> None:
        _this.actor = self
        self._go.acquire()
        try:
            self._work()
        except Crash:
            self.crashed = True
        except BaseException as error:  # whatever an operation raises is judged by the stage
            self.error = error
        finally:
            self._free = True
            self.ended = True
            self.arrived.set()


def current() -> Actor | None:
    """The actor whose thread this is."""
    return getattr(_this, "actor", None)


def pause(point: str) -> None:
    """A point outside the database: around model calls, and where something is waited for."""
    if (actor := current()) is not None:
        actor.reach(point, None)


@contextmanager
def gated() -> Iterator[None]:
    """Within the block every statement of an actor is a point."""
    raw, execute = Session._raw, Session.execute

    def raw_gated(session: Session, sql: str, params: Any) -> Any:
        actor = current()
        if actor is None or sql == "ROLLBACK":
            return raw(session, sql, params)
        _note_backend(actor, session)
        if sql != "COMMIT":
            actor.reach("statement", session)
            return raw(session, sql, params)
        actor.reach("commit.before", session)
        result = raw(session, sql, params)
        actor.reach("commit.after", session)
        return result

    def execute_gated(session: Session, *args: Any, **kwargs: Any) -> Any:
        actor = current()
        if actor is not None:
            _note_backend(actor, session)
            actor.reach("statement", session)
        return execute(session, *args, **kwargs)

    setattr(Session, "_raw", raw_gated)  # noqa: B010 - a gate around every statement, for this process only
    setattr(Session, "execute", execute_gated)  # noqa: B010 - the same
    try:
        yield
    finally:
        setattr(Session, "_raw", raw)  # noqa: B010 - as it was
        setattr(Session, "execute", execute)  # noqa: B010 - as it was


def _note_backend(actor: Actor, session: Session) -> None:
    driver: Any = session.connection.connection.driver_connection
    actor.pid = driver.info.backend_pid


class Stage:
    """Who is under way, and who of them waits for a lock."""

    def __init__(self, admin: psycopg2.extensions.connection) -> None:
        self._admin = admin
        self.actors: list[Actor] = []

    def enter(self, actor: Actor) -> None:
        """Begin an operation: it runs to its first point when it is advanced."""
        self.actors.append(actor)
        actor.arrived.set()
        actor.start()

    def ready(self) -> list[Actor]:
        """Those that stand at a point, and are not frozen unless all are; while somebody waits for a lock, only those
        who hold it. With two that wait for one row, Postgres does not say which of them comes first.
        """
        standing = [actor for actor in self.actors if actor.arrived.is_set() and not actor.ended]
        if waiting := [actor.pid for actor in self.actors if not actor.arrived.is_set()]:
            holders = self._holders(waiting)
            return [actor for actor in standing if actor.pid in holders] or standing
        return [actor for actor in standing if not actor.frozen] or standing

    def step(self, actor: Actor) -> None:
        """Advance one, and wait until everybody stands at a point, has ended, or waits for a lock."""
        for one in self.actors:
            one.frozen = max(0, one.frozen - 1)
        actor.advance()
        limit = monotonic() + STUCK_S
        while moving := [one for one in self.actors if not one.arrived.is_set()]:
            if all(one.arrived.wait(LOOK_S) for one in moving):
                continue
            waiting = self._waiting([one.pid for one in moving])
            if all(one.arrived.is_set() or one.pid in waiting for one in moving):
                return
            if monotonic() > limit:
                names = ", ".join(f"{one.name} after {one.points[-1:]}" for one in moving)
                raise TimeoutError(f"stuck outside the database: {names}")

    def leave(self) -> list[Actor]:
        """Those that have ended since the last call."""
        ended = [actor for actor in self.actors if actor.ended]
        self.actors = [actor for actor in self.actors if not actor.ended]
        return ended

    def marks(self, tenant: str) -> dict[int, Marks]:
        """Cursors of every thread, as committed."""
        with self._admin.cursor() as cursor:
            cursor.execute(
                "SELECT t.id, head_seq, buffered_seq, observed_seq, next_position, reflected_position, m.version"
                " FROM threads t JOIN memories m ON m.id = t.memory_id WHERE t.tenant_id = %s",
                (tenant,),
            )
            return {row[0]: Marks(**dict(zip(Marks.__slots__, row[1:], strict=True))) for row in cursor.fetchall()}

    def _holders(self, pids: list[int]) -> set[int]:
        with self._admin.cursor() as cursor:
            cursor.execute("SELECT unnest(pg_blocking_pids(pid)) FROM unnest(%s) AS pid", (pids,))
            return {pid for (pid,) in cursor.fetchall()}

    def _waiting(self, pids: list[int]) -> set[int]:
        with self._admin.cursor() as cursor:
            cursor.execute("SELECT pid FROM pg_locks WHERE NOT granted AND pid = ANY(%s)", (pids,))
            return {pid for (pid,) in cursor.fetchall()}


def run_to(stage: Stage, actor: Actor, point: str, times: int = 1) -> None:
    """Advance one actor, alone, until it stands at a point for the nth time."""
    while actor.points.count(point) < times:
        assert not actor.ended, f"{actor.name} ended after {actor.points}: {actor.error!r}"
        stage.step(actor)


def run_out(stage: Stage, actor: Actor) -> None:
    """Advance one actor to its end.

    Raises:
        BaseException: what it raised.
    """
    while not actor.ended:
        stage.step(actor)
    if actor.error is not None:
        raise actor.error
