"""The world of one schedule: a small memory, a scripted model, and a ledger of what was sent and acknowledged."""

from __future__ import annotations

import json
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any, Final

from om_core.domain.errors import GiveUpError, RetryLaterError
from om_core.formats.canonical import dump_message
from om_core.ports import ModelReply, ObserverMaterial, ReflectorMaterial
from om_core.services.deps import Policies, Services
from om_core.services.run_jobs import JobRunner
from om_core.testing.scripted_replies import traces
from tests.fuzz.actors import pause
from tests.support.fixtures import COUNTER

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from threading import Event

    from om_core.domain.context import Context
    from om_core.domain.job import JobRef
    from om_core.domain.message import JsonObject, Message, StoredMessage
    from om_core.ports import ModelRequest
    from om_core.store.engine import PostgresStore

TENANT: Final = "default"
RESOURCE: Final = "r"
MODEL: Final = "fuzz/scripted"
QUEUES: Final = ("observation", "buffering", "reflection")
PROCESSES: Final = 3
OPTIONS: Final[JsonObject] = {
    "model": MODEL,
    "observation": {"message_tokens": 220, "buffer_tokens": 50, "block_timeout": 1000},
    "reflection": {"observation_tokens": 150},
    "job": {"backoff_base": "60s", "max_failures": 2},
}
"""Thresholds that a few messages reach; what waits for time waits until the schedule lets it pass."""


class ScriptedModel:
    """Notes that name the messages they cover, by trace. `choose` says how a call goes."""

    def __init__(self, choose: Callable[[], str]) -> None:
        self._choose = choose
        self.calls = 0

    def window_tokens(self, model: str) -> int | None:
        return None

    def complete(self, request: ModelRequest, *, timeout_s: float, cancelled: Event | None = None) -> ModelReply:
        self.calls += 1
        pause("model.before")
        outcome = self._choose()
        pause("model.after")
        if outcome == "retry":
            raise RetryLaterError("fuzz: the model is away")
        if outcome == "give_up":
            raise GiveUpError("fuzz: the model refuses this input")
        text = "I cannot help with that." if outcome == "junk" else notes(request)
        return ModelReply(text=text, model=request.model, input_tokens=10, output_tokens=5, cost_usd=0.001)


def notes(request: ModelRequest) -> str:
    """An answer in the output format: one line per trace, several on a line when reflecting."""
    material = request.material
    if isinstance(material, ObserverMaterial):
        found = message_traces(material.messages)
        lines = [f"* 🟡 ({9 + n // 60 % 12:02}:{n % 60:02}) Noted {trace}" for n, trace in enumerate(found)]
    else:
        assert isinstance(material, ReflectorMaterial)
        found = traces(material.log)
        rows = [found[start : start + 12] for start in range(0, len(found), 12)]
        lines = [f"* 🔴 ({9 + n % 12:02}:00) Kept {' '.join(row)}" for n, row in enumerate(rows)]
    return "\n".join(
        ["<observations>", "Date: Jan 1, 2026", *(lines or ["* 🟢 (09:00) Small talk."]), "</observations>"]
    )


def message_traces(messages: Iterable[StoredMessage]) -> list[str]:
    """The traces of some rows, in order."""
    return [trace for row in messages for trace in traces(text_of(row.message))]


def text_of(message: Message) -> str:
    """Everything a message holds; a trace is a word of its own in it."""
    return json.dumps(dump_message(message), ensure_ascii=False).replace("\\n", " ")


def extract(messages: Sequence[StoredMessage], tokens: int, zone: str) -> str:
    """What stands for a parked range: it keeps the traces."""
    return "\n".join(f"* 🟡 (09:00) Extract {trace}" for trace in message_traces(messages))


class Bell:
    """Rings that nobody hears until the schedule delivers one, or delivers it twice."""

    healthy = True

    def __init__(self) -> None:
        self.rung: list[JobRef] = []

    def ring(self, jobs: Iterable[JobRef]) -> None:
        self.rung.extend(jobs)

    def close(self) -> None:
        pass


class Waiter:
    """Implements what a context call needs of `JobWaiter`: the wait is a point, and looks once afterwards."""

    def __init__(self, store: PostgresStore) -> None:
        self._store = store

    def watch(self, job_id: int) -> Any:
        return _Wait(self._store, job_id)


class _Wait:
    def __init__(self, store: PostgresStore, job_id: int) -> None:
        self._store, self._job_id = store, job_id

    def result(self, timeout: float | None = None) -> str:
        for _ in range(8):
            pause("wait")
        state = self._store.system.job_states([self._job_id]).get(self._job_id, "gone")
        if state in ("available", "running", "retryable"):
            raise FutureTimeoutError
        return state

    def cancel(self) -> bool:
        return True


@dataclass
class Told:
    """The last context that one reader saw, for comparing the next with it."""

    context: Context
    lives: int = 0
    """Of the thread, when it was read."""


@dataclass
class Dialogue:
    """One thread as its client knows it."""

    name: str
    number: int = 0
    stored: set[str] = field(default_factory=set)
    """Traces whose request was answered: they may never be missing again."""
    requests: list[list[JsonObject]] = field(default_factory=list)
    """For sending again, word for word."""
    open_calls: list[str] = field(default_factory=list)
    last: dict[str, Any] = field(default_factory=dict)
    gone: set[str] = field(default_factory=set)
    """Traces of messages that were deleted for good: they may stand nowhere any more."""
    removals: int = 0
    """Begun and ended removals: what was stored beside one is not owed."""
    taking: int = 0
    """Removals under way."""
    lives: int = 0
    """Begun and ended deletions of the whole thread: the next one of this name is another."""
    ending: int = 0
    """Deletions of the whole thread under way."""
    reading: bool = False
    """Whether a context call is under way."""
    seen: Told | None = None


class World:
    """Services of several processes over one database, and the clients."""

    def __init__(self, store: PostgresStore, seed: int, *, threads: Sequence[str], scope: str) -> None:
        self.store = store
        self.bell = Bell()
        self.calm = False
        self.rng = Random(f"{seed}:model")
        self.model = ScriptedModel(self._outcome)
        policies = Policies({**OPTIONS, "scope": scope})
        self.processes = [
            Services(
                store=store,
                counter=COUNTER,
                tokenizer=COUNTER,
                model=self.model,
                extract=extract,
                policies=policies,
                dispatcher=self.bell,
                lease_s=600.0,
                owner=f"process-{number}",
            )
            for number in range(PROCESSES)
        ]
        self.runners = [JobRunner(services) for services in self.processes]
        self.waiter = Waiter(store)
        self.dialogues = {name: Dialogue(name) for name in threads}
        self.findings: list[str] = []
        self.rebased = False
        """Whether a reflection's position may have fallen: something was removed or restored."""
        self.one_reader = True
        """Whether the reports of prefix changes of a thread all reach one client. Not so with a second process."""

    @property
    def services(self) -> Services:
        return self.processes[0]

    def _outcome(self) -> str:
        if self.calm:
            return "ok"
        return self.rng.choices(["ok", "junk", "retry", "give_up"], [84, 6, 6, 4])[0]

    def admin(self, sql: str, *params: object) -> None:
        """A statement that no service makes (time passing), as an actor's own transaction."""
        with self.store.session("om_app", TENANT) as session:
            session.hot(sql + " RETURNING 1", params)

    def close(self) -> None:
        for runner in self.runners:
            runner.close()
