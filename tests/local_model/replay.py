"""The messages through the real pipeline, every job done in this thread; what came of it, as numbers."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from om_core.bootstrap import Located, build_services
from om_core.config import SecretUrl, Settings
from om_core.domain.message import JsonObject
from om_core.domain.validate_context import check_context
from om_core.memory import Memory
from om_core.ports import Page
from om_core.services.coverage import Coverage, check_coverage, examine
from om_core.services.deps import Policies, Services
from om_core.services.run_jobs import JobRunner
from om_core.transcripts import steps
from tests.local_model.recorder import Recorder
from tests.local_model.server import WINDOW_TOKENS, LocalModelServer
from tests.support.jobs import QUEUES

if TYPE_CHECKING:
    from tests.local_model.conversations import Part

MODEL: Final = "openai/smollm2"
MOST_ATTEMPTS: Final = 600
"""Of one part: more of them would be the same work again and again."""


@dataclass
class Replayed:
    """What became of one part: the audit, and every chunk, generation and job."""

    part: Part
    outcomes: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)
    """Of contexts and invariants."""
    coverage: Coverage | None = None
    chunks: tuple[JsonObject, ...] = ()
    generations: tuple[JsonObject, ...] = ()
    jobs: tuple[JsonObject, ...] = ()


def options(*, hints: bool) -> JsonObject:
    """Thresholds of a few messages, one failure before a range is halved, answers of a few lines.

    Args:
        hints: whether task and title are asked for as well, which confuses the model.
    """
    phase: dict[str, Any] = {
        "window_tokens": WINDOW_TOKENS,
        "max_attempt": "5m",
        "provider_options": {"openai": {"seed": 1}},
        "model_settings": {"max_output_tokens": 100},
    }
    return {
        "model": MODEL,
        "observation": {
            **phase,
            "message_tokens": 700,
            "buffer_tokens": 350,
            "previous_observer_tokens": 150,
            "continuation_hints": hints,
            "thread_title": hints,
        },
        "reflection": {**phase, "observation_tokens": 600},
        "job": {"max_failures": 1, "backoff_base": 1, "backoff_cap": 1},
    }


@contextmanager
def recorded_services(database_url: str, api_base: str, answers: Path) -> Iterator[tuple[Services, Recorder]]:
    """Services as a worker builds them for a server of one's own, with every answer kept in a file."""
    settings = Settings(
        database_url=SecretUrl(database_url),
        model=MODEL,
        model_api_base=api_base,
        auth="off",
        options=options(hints=False),
    )
    located = Located(database_url=database_url, redis_url=None, embedded=False)
    services = build_services(settings, located, model_required=True)
    answers.parent.mkdir(parents=True, exist_ok=True)
    answers.write_text("", encoding="utf-8")
    recorder = Recorder(services.model, answers)
    try:
        yield replace(services, model=recorder), recorder
    finally:
        services.store.close()


def replay(services: Services, part: Part, *, hints: bool, outage: LocalModelServer | None = None) -> Replayed:
    """Post a part step by step as an agent would, then observe, reflect and activate what is left.

    Args:
        services: of `recorded_services`.
        part: the messages.
        hints: as `options`.
        outage: a server that is away for one attempt, halfway through.
    """
    services = replace(services, policies=Policies(options(hints=hints)))
    done = Replayed(part)
    with closing(Memory(services)) as memory, closing(JobRunner(services)) as runner:
        name, seen = part.thread, 0
        for step in steps(part.conversation):
            memory.append(name, step.messages, resource=name, format="om", end_of_turn=step.end_of_turn)
            seen += len(step.messages)
            if outage is not None and seen * 2 >= len(part.messages) and _is_due(memory):
                outage.stop()
                _attempt(runner, done)
                outage.start()
                outage = None
            _work_off(memory, runner, done)
            done.problems += check_context(memory.context(name, resource=name, wait=False).context)
        while memory.observe(name, resource=name)["job"] is not None:
            _work_off(memory, runner, done)
        memory.activate(name, resource=name)
        memory.reflect(name, resource=name)
        while _is_due(memory):
            _work_off(memory, runner, done)
            memory.activate(name, resource=name)
        _look(memory, done)
    return done


def _look(memory: Memory, done: Replayed) -> None:
    name = done.part.thread
    done.problems += check_context(memory.context(name, resource=name, wait=False).context)
    done.coverage = check_coverage(memory.services, memory.tenant, name, name)
    found, _ = examine(memory.services, memory.tenant, memory.get_thread(name, resource=name).id)
    done.problems += map(str, found)
    done.chunks = _all(lambda cursor: memory.observations(name, resource=name, state="all", cursor=cursor, limit=200))
    done.generations = _all(lambda cursor: memory.reflections(name, resource=name, cursor=cursor, limit=200))
    done.jobs = _all(lambda cursor: memory.jobs(thread=name, resource=name, cursor=cursor, limit=200))


def _all(page_after: Callable[[str | None], Page[JsonObject]]) -> tuple[JsonObject, ...]:
    items: list[JsonObject] = []
    cursor: str | None = None
    while True:
        page = page_after(cursor)
        items += page.items
        cursor = page.next_cursor
        if cursor is None:
            return tuple(items)


def _is_due(memory: Memory) -> bool:
    return any(memory.jobs(state=state, limit=1).items for state in ("available", "retryable"))


def _work_off(memory: Memory, runner: JobRunner, done: Replayed) -> None:
    """Run what is due, and what waits for its time, until nothing is left."""
    while _is_due(memory):
        _attempt(runner, done)


def _attempt(runner: JobRunner, done: Replayed) -> None:
    for queue in QUEUES:
        if (outcome := runner.run(queue)) is not None:
            done.outcomes[outcome] += 1
            assert done.outcomes.total() < MOST_ATTEMPTS, json.dumps(done.outcomes)
            return
