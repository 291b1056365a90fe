"""Replaying a transcript as if it were live: one POST per step, a context after each, pauses for the pipeline.

A live agent takes seconds per step, in which the workers observe. Without a speed the replay therefore waits for due
jobs after each step, so that buffering and activation happen where they would have happened live.
"""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from om_core.domain.job import WORKER_SEEN_S
from om_core.services.coverage import check_coverage
from om_core.transcripts.model import steps

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from om_core.domain.context import Context
    from om_core.memory import Memory
    from om_core.services.coverage import Coverage
    from om_core.transcripts.model import Conversation, Step

POLL_S = 0.01
STEP_WAIT_S = 30.0
"""How long one step may wait for jobs; after a wait in vain there is none until `buffered_seq` moves."""
FINAL_WAIT_S = 60.0


@dataclass(slots=True, kw_only=True)
class Replayed:
    """What a replay did to one thread."""

    thread: str
    resource: str
    steps: int = 0
    messages: int = 0
    """Stored by this replay; those known already are under `duplicates`."""
    duplicates: int = 0
    ignored: int = 0
    tokens: int = 0
    activations: int = 0
    turns: int = 0
    generation: int = 0
    jobs: Counter[str] = field(default_factory=Counter)
    """By state: every job of the thread."""
    waited_in_vain: bool = False
    coverage: Coverage | None = None

    def to_json(self) -> dict[str, Any]:
        """Numbers, not texts."""
        found = self.coverage
        return {
            "thread": self.thread,
            "resource": self.resource,
            "steps": self.steps,
            "turns": self.turns,
            "messages": self.messages,
            "duplicates": self.duplicates,
            "ignored": self.ignored,
            "message_tokens": self.tokens,
            "activations": self.activations,
            "reflections": self.generation,
            "jobs": dict(self.jobs),
            "uncovered_messages": found.uncovered_messages if found else None,
            "doubly_covered_messages": found.doubly_covered_messages if found else None,
            "misfits": list(found.misfits) if found else None,
        }


class Replayer:
    """Replays conversations into one memory.

    Args:
        memory: with a dispatcher that rings, so that workers start at once.
        speed: 1 keeps the transcript's pauses, 10 makes them ten times shorter; None waits for the pipeline instead.
        on_step: called after each step with the totals so far, its step and the context that an agent would get.
    """

    def __init__(
        self,
        memory: Memory,
        *,
        speed: float | None = None,
        on_step: Callable[[Replayed, Step, Context], None] | None = None,
    ) -> None:
        self._memory = memory
        self._speed = speed
        self._on_step = on_step
        self._pause = threading.Event()

    @property
    def has_workers(self) -> bool:
        """Whether a worker was seen lately: without one nothing is observed, and waiting is in vain."""
        return bool(self._memory.services.store.system.workers(max_age_s=WORKER_SEEN_S))

    def replay(self, conversation: Conversation, *, thread: str | None = None, resource: str | None = None) -> Replayed:
        """One conversation into one thread (default: the transcript's own ids), then the final numbers."""
        done = Replayed(
            thread=thread or conversation.thread_suggestion, resource=resource or conversation.resource_suggestion
        )
        if conversation.timezone:
            self._memory.put_thread(done.thread, resource=done.resource, timezone=conversation.timezone)
        latch: int | None = None
        before: Step | None = None
        for step in steps(conversation):
            self._keep_pace(before, step)
            context = self._post(done, step)
            if self._on_step is not None:
                self._on_step(done, step, context)
            if self._speed is None:
                latch = self._let_work(done, latch)
            before = step
        self._finish(done)
        return done

    def _post(self, done: Replayed, step: Step) -> Context:
        """Store the step's messages with their own ids and times, then ask for the context, as an agent does."""
        result = self._memory.append(
            done.thread, step.messages, resource=done.resource, format="om", end_of_turn=step.end_of_turn
        )
        context = self._memory.context(done.thread, resource=done.resource).context
        new = [ref for ref in result.messages if ref.created]
        done.steps += 1
        done.messages += len(new)
        done.tokens += sum(ref.tokens for ref in new)
        done.duplicates += len(result.duplicates)
        done.ignored += len(result.ignored)
        done.activations += context.activated is not None and context.activated.chunks > 0
        return context

    def _keep_pace(self, before: Step | None, step: Step) -> None:
        """With a speed: the transcript's own pause, shortened by it."""
        earlier = _time(before.messages[-1:]) if before is not None else None
        now = _time(step.messages[:1])
        if self._speed and earlier is not None and now is not None and now > earlier:
            self._pause.wait((now - earlier) / self._speed)

    def _let_work(self, done: Replayed, latch: int | None) -> int | None:
        """Wait until no job of the thread is live; the new latch. Nothing to wait for costs one short statement."""
        live, buffered = self._live(done)
        if not live or latch == buffered:
            return latch
        if self._wait(done, STEP_WAIT_S):
            return None
        done.waited_in_vain = True
        return buffered

    def _wait(self, done: Replayed, limit_s: float) -> bool:
        clock = self._memory.services.clock
        deadline = clock.monotonic() + limit_s
        while self._live(done)[0]:
            if clock.monotonic() >= deadline or not self.has_workers:
                return False
            self._pause.wait(POLL_S)
        return True

    def _live(self, done: Replayed) -> tuple[bool, int]:
        with self._memory.services.store.reading(self._memory.tenant) as tx:
            found = tx.memories.find(done.resource, done.thread)
        return (bool(found.live_jobs), found.thread.buffered_seq) if found is not None else (False, 0)

    def _finish(self, done: Replayed) -> None:
        """Wait for what still runs, so that the numbers are final, and read them."""
        if not self._wait(done, FINAL_WAIT_S):
            done.waited_in_vain = True
        status = self._memory.status(done.thread, resource=done.resource)
        done.turns, done.generation = status["stepNumber"], status["generationCount"]
        done.jobs = Counter(job["state"] for job in all_jobs(self._memory, done.thread, done.resource))
        done.coverage = check_coverage(self._memory.services, self._memory.tenant, done.thread, done.resource)


def all_jobs(memory: Memory, thread: str, resource: str) -> Iterable[dict[str, Any]]:
    """Every job of a thread, newest first."""
    cursor: str | None = None
    while True:
        page = memory.jobs(thread=thread, resource=resource, cursor=cursor, limit=200)
        yield from page.items
        cursor = page.next_cursor
        if cursor is None:
            return


def _time(messages: Iterable[Any]) -> float | None:
    return next((message.created_at.timestamp() for message in messages if message.created_at is not None), None)
