"""Named points at which a test ends or freezes a process: before and after statements, commits and model calls.

A test process calls `install()`; nothing in the product does, so without it there is no cost at all. What happens is
said by the environment variable OM_FAILPOINTS, as in `observe.store.commit.after=kill@2,model.before=stop`: at the
second time the point is reached the process is killed, at the first time of the other it is stopped (SIGSTOP).

A point is a step (see `STEPS`) and a moment: `statement` (before each), `commit.before`, `commit.after`;
for model calls `model.before` and `model.after`.
"""

from __future__ import annotations

import functools
import os
import signal
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Final

VARIABLE: Final = "OM_FAILPOINTS"
STEPS: Final[Mapping[str, str]] = {
    "claim": "om_core.store.system:SystemRows.claim",
    "renew": "om_core.store.system:SystemRows.renew",
    "ring": "om_core.store.system:SystemRows.ring_due",
    "rescue": "om_core.services.sweep:rescue",
    "observe.choose": "om_core.services.observe:_choose",
    "observe.save": "om_core.services.observe:ask",
    "observe.store": "om_core.services.observe:_store",
    "reflect.choose": "om_core.services.reflect:_choose",
    "reflect.save": "om_core.services.reflect:_climb",
    "reflect.store": "om_core.services.reflect:_store",
    "failure": "om_core.services.run_jobs:record_failure",
}
"""Steps of a worker that open transactions, by the function that does."""
MOMENTS: Final = ("statement", "commit.before", "commit.after")
MODEL_POINTS: Final = ("model.before", "model.after")
ACTIONS: Final = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP}

_step: ContextVar[str | None] = ContextVar("om_failpoint_step", default=None)


def points() -> tuple[str, ...]:
    """Every name that may be armed."""
    return (*(f"{step}.{moment}" for step in STEPS for moment in MOMENTS), *MODEL_POINTS)


@dataclass(frozen=True, slots=True)
class Armed:
    """What happens at a point, and at which time it is reached."""

    number: signal.Signals
    nth: int = 1


def parse(text: str) -> dict[str, Armed]:
    """The value of OM_FAILPOINTS.

    Raises:
        ValueError: an unknown point or action; the text names those there are.
    """
    armed: dict[str, Armed] = {}
    for entry in filter(None, (piece.strip() for piece in text.split(","))):
        point, _, action = entry.partition("=")
        name, _, nth = action.partition("@")
        if point not in points() or name not in ACTIONS or not (nth or "1").isdigit():
            msg = f"{VARIABLE}: {entry!r} is not POINT=ACTION[@N]; points: {', '.join(points())}; actions: kill, stop"
            raise ValueError(msg)
        armed[point] = Armed(ACTIONS[name], int(nth or "1"))
    return armed


class _Points:
    """Counts how often each armed point was reached, and acts."""

    def __init__(self, armed: Mapping[str, Armed]) -> None:
        self._armed = armed
        self._lock = threading.Lock()
        self._reached: Counter[str] = Counter()

    def reach(self, point: str) -> None:
        found = self._armed.get(point)
        if found is None:
            return
        with self._lock:
            self._reached[point] += 1
            due = self._reached[point] == found.nth
        if due:
            os.kill(os.getpid(), found.number)


def install() -> bool:
    """Put the points that OM_FAILPOINTS names into this process, for good; whether there are any.

    Raises:
        ValueError: as `parse`. AttributeError: a function of `STEPS` has another name now.
    """
    armed = parse(os.environ.get(VARIABLE, ""))
    if not armed:
        return False
    reached = _Points(armed)
    for step, where in STEPS.items():
        _wrap(where, functools.partial(_within, step))
    _wrap("om_core.store.session:Session._raw", functools.partial(_around_driver, reached))
    _wrap("om_core.store.session:Session.execute", functools.partial(_before_statement, reached))
    _wrap("om_core.llm.litellm_model:LiteLlmModel.complete", functools.partial(_around_model, reached))
    return True


def _wrap(where: str, make: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
    module, _, path = where.partition(":")
    *owners, name = path.split(".")
    owner: Any = import_module(module)
    for step in owners:
        owner = getattr(owner, step)
    setattr(owner, name, make(getattr(owner, name)))


def _within(step: str, function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        before = _step.set(step)
        try:
            return function(*args, **kwargs)
        finally:
            _step.reset(before)

    return run


def _around_driver(reached: _Points, raw: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(raw)
    def run(session: Any, sql: str, params: Any) -> Any:
        step = _step.get()
        if step is None:
            return raw(session, sql, params)
        if sql != "COMMIT":
            reached.reach(f"{step}.statement")
            return raw(session, sql, params)
        reached.reach(f"{step}.commit.before")
        result = raw(session, sql, params)
        reached.reach(f"{step}.commit.after")
        return result

    return run


def _before_statement(reached: _Points, execute: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(execute)
    def run(session: Any, *args: Any, **kwargs: Any) -> Any:
        if (step := _step.get()) is not None:
            reached.reach(f"{step}.statement")
        return execute(session, *args, **kwargs)

    return run


def _around_model(reached: _Points, complete: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(complete)
    def run(*args: Any, **kwargs: Any) -> Any:
        reached.reach("model.before")
        reply = complete(*args, **kwargs)
        reached.reach("model.after")
        return reply

    return run
