"""The application's side: turns of several conversations, one after another, each message with a token to follow it by.

A turn fails when it is not stored and answered, or takes too long. While the database is away its client repeats the
step with the same ids, as an SDK does; such repetitions are counted, and after `GIVE_UP_S` the turn has failed.
"""

from __future__ import annotations

import json
import random
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeVar

import psycopg2
from sqlalchemy import exc as sa_exc

if TYPE_CHECKING:
    from om_core.memory import Memory

T = TypeVar("T")
RESOURCE: Final = "user-1"
CONVERSATIONS: Final = 4
LONGEST: Final = 80
"""Messages of a conversation before the next one begins in its place."""
SLOW_S: Final = 8.0
"""One attempt at a turn may take this long: the wait at `block_after` is much shorter, and memory is no other reason."""
GIVE_UP_S: Final = 120.0
AWAY: Final = (
    psycopg2.OperationalError,
    psycopg2.InterfaceError,
    sa_exc.OperationalError,
    sa_exc.InterfaceError,
    sa_exc.TimeoutError,
)
"""What the API answers with 503: the database is away."""


class Load:
    """Turns in a thread of its own, from `start` until `stop`."""

    def __init__(self, memory: Memory, *, pause_s: float = 0.1) -> None:
        self.turns = 0
        self.failed: list[str] = []
        self.repeated = 0
        self.slowest_s = 0.0
        self.sent: dict[str, list[str]] = defaultdict(list)
        """Conversation -> tokens of the messages whose storing was acknowledged."""
        self._memory = memory
        self._pause_s = pause_s
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="load", daemon=True)
        self._rng = random.Random(1)
        self._rounds = [0] * CONVERSATIONS

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(GIVE_UP_S + 30)
        assert not self._thread.is_alive(), "a turn hangs"

    def turn(self, number: int | None = None) -> str:
        """One turn, in the calling thread: question, context, answer; the name of its conversation."""
        number = self._rng.randrange(CONVERSATIONS) if number is None else number
        name = f"{'abcdefghijklmnop'[number]}{self._rounds[number]}"
        if len(self.sent[name]) >= LONGEST:
            self._rounds[number] += 1
            return self.turn(number)
        self.turns += 1
        try:
            question = self._say(name, "user")
            context = self._insist(lambda: self._memory.context(name, resource=RESOURCE))
            if question not in json.dumps(context.to_openai()):
                self.failed.append(f"{name}: the question {question} is not in its context")
            self._say(name, "assistant", end_of_turn=True)
        except Exception as error:  # whatever it is, the turn has failed, and the report says of what
            self.failed.append(f"{name}: {type(error).__name__}: {error}")
        return name

    def _run(self) -> None:
        while not self._stop.wait(self._pause_s * self._rng.uniform(0.5, 1.5)):
            self.turn()

    def _say(self, name: str, role: str, *, end_of_turn: bool = False) -> str:
        """Store one message of about 90 tokens; its token once that is acknowledged."""
        trace = f"TRACE-{name}-{len(self.sent[name]) + 1}"
        message = {
            "id": f"id-{trace}",
            "role": role,
            "content": f"{trace} " + "We packed the blue box for Berlin. " * 10,
        }
        self._insist(lambda: self._memory.append(name, [message], resource=RESOURCE, end_of_turn=end_of_turn))
        self.sent[name].append(trace)
        return trace

    def _insist(self, step: Callable[[], T]) -> T:
        """Do it, and again while the database is away."""
        give_up = time.monotonic() + GIVE_UP_S
        while True:
            started = time.monotonic()
            try:
                return step()
            except AWAY:
                if time.monotonic() > give_up:
                    raise
                self.repeated += 1
                threading.Event().wait(0.1)
            finally:
                self._time(time.monotonic() - started)

    def _time(self, seconds: float) -> None:
        self.slowest_s = max(self.slowest_s, seconds)
        if seconds > SLOW_S:
            self.failed.append(f"one attempt took {seconds:.1f} s")


def notes_of(memory: Memory, thread: str) -> list[dict[str, Any]]:
    """Every chunk of a conversation, buffered or active."""
    found: list[dict[str, Any]] = []
    cursor: str | None = None
    while True:
        page = memory.observations(thread, resource=RESOURCE, state="all", cursor=cursor, limit=200)
        found += page.items
        cursor = page.next_cursor
        if cursor is None:
            return found
