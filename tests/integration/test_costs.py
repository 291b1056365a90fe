"""What a model call has cost is booked once, whatever becomes of its job."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from om_core.domain.errors import RetryLaterError
from om_core.memory import Memory
from om_core.ports import ModelReply
from om_core.services.run_jobs import JobRunner
from om_core.services.sweep import rescue
from tests.support.fixtures import SMALL, raw_session

if TYPE_CHECKING:
    from collections.abc import Callable
    from threading import Event

    from om_core.domain.message import JsonObject
    from om_core.ports import ModelRequest
    from om_core.services.deps import Services

ANSWER = "<observations>\nDate: Jan 1, 2026\n* 🟡 (09:00) A fact among many.\n</observations>"
CALL = 5_000
"""Tokens of one call, 4,000 of them in."""
SLICED: JsonObject = {**SMALL, "job": {"max_failures": 9}}
SLICED["observation"] = {**SMALL["observation"], "window_tokens": 5_000}


class Metered:
    """Answers `answers` calls, and is away from then on; `meanwhile` happens during each call."""

    def __init__(self, answers: int, *, tokens: int = CALL, meanwhile: Callable[[], None] | None = None) -> None:
        self.left, self.tokens, self.meanwhile, self.answered = answers, tokens, meanwhile, 0

    def window_tokens(self, model: str) -> int | None:
        return None

    def complete(self, request: ModelRequest, *, timeout_s: float, cancelled: Event | None = None) -> ModelReply:
        if self.meanwhile is not None:
            self.meanwhile()
        if not self.left:
            raise RetryLaterError("away")
        self.left -= 1
        self.answered += 1
        return ModelReply(text=ANSWER, model=request.model, input_tokens=self.tokens - 1_000, output_tokens=1_000)


@pytest.fixture
def sliced(services_with: Callable[..., Services]) -> Callable[[Metered], Memory]:
    """Memory with one message that takes several calls to observe."""

    def make(model: Metered) -> Memory:
        memory = Memory(services_with(SLICED, model=model))
        text = " ".join(f"TRACE-{n} is a fact among many others here." for n in range(1, 600))
        memory.append("t", [{"role": "user", "content": text}], resource="r")
        return memory

    return make


def run(memory: Memory) -> str | None:
    """Run the best job that is due, or waits for its next attempt."""
    sql(memory, "UPDATE jobs SET run_at = clock_timestamp() WHERE state = 'retryable' RETURNING 1")
    runner = JobRunner(memory.services)
    try:
        return runner.run("buffering")
    finally:
        runner.close()


def sql(memory: Memory, text: str) -> None:
    with raw_session(memory.services.store) as session:
        session.hot(text)


def booked(memory: Memory) -> tuple[int, int, int]:
    """Tokens of the thread's usage, of the tenant's day, and of all jobs."""
    with raw_session(memory.services.store) as session:
        [(usage,)] = session.hot("SELECT coalesce(sum(input_tokens + output_tokens), 0) FROM usage")
        [(day,)] = session.hot("SELECT coalesce(sum(tokens), 0) FROM spending WHERE scope = 'tenant'")
        [(jobs,)] = session.hot("SELECT sum(input_tokens + output_tokens) FROM jobs")
    return int(usage), int(day), int(jobs)


def test_a_job_that_waits_between_two_calls_has_booked_the_first(sliced: Callable[[Metered], Memory]) -> None:
    memory = sliced(Metered(answers=1))

    assert run(memory) == "retry_later"

    assert booked(memory) == (CALL, CALL, CALL)


def test_a_job_that_is_cancelled_between_two_calls_keeps_what_it_has_booked(
    sliced: Callable[[Metered], Memory],
) -> None:
    memory = sliced(Metered(answers=1))
    run(memory)

    memory.cancel_job(memory.jobs().items[0]["id"])

    assert booked(memory) == (CALL, CALL, CALL)


def test_calls_of_several_attempts_are_booked_once_each(sliced: Callable[[Metered], Memory]) -> None:
    model = Metered(answers=1)
    memory = sliced(model)
    outcomes = [run(memory)]
    model.left = 100
    outcomes.append(run(memory))

    assert outcomes == ["retry_later", "ok"]
    assert model.answered > 1
    assert booked(memory) == (CALL * model.answered,) * 3
    assert memory.job(1)["attempts"][-1]["input_tokens"] == 4_000 * model.answered


def test_a_result_that_cannot_be_stored_is_booked(
    services_with: Callable[..., Services], monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the call, the job fails in the transaction that stores its notes."""
    memory = Memory(services_with(SMALL, model=Metered(answers=1)))
    memory.append("t", [{"role": "user", "content": "a fact " * 300}], resource="r")

    def failing(text: str) -> int:  # notes are counted there
        raise RetryLaterError("away")

    with monkeypatch.context() as patched:
        patched.setattr(memory.services.counter, "count_text", failing)
        assert run(memory) == "retry_later"

    assert booked(memory) == (CALL, CALL, CALL)


@pytest.mark.parametrize("tokens", [CALL, 50_000], ids=["less than reserved", "more than reserved"])
def test_an_attempt_that_ends_after_its_lease_is_booked_once(
    services_with: Callable[..., Services], tokens: int
) -> None:
    """What it may have spent is booked when its lease is found expired; what it did spend, as far as that is more."""
    reserved: list[int] = []

    def expire() -> None:
        with raw_session(memory.services.store) as session:
            [(job, held)] = session.hot(
                "UPDATE jobs SET lease_expires_at = clock_timestamp() - interval '1 s' WHERE state = 'running'"
                " RETURNING id, reserved_tokens"
            )
        reserved.append(held)
        assert rescue(memory.services, "default", job)

    limits = {"tokens_per_day": {"tenant": 1_000_000}}
    model = Metered(answers=1, tokens=tokens, meanwhile=expire)
    memory = Memory(services_with({**SMALL, "limits": limits}, model=model))
    memory.append("t", [{"role": "user", "content": "a fact " * 300}], resource="r")

    assert run(memory) == "lost"

    assert CALL < reserved[0] < 50_000
    assert booked(memory)[:2] == (max(tokens, reserved[0]),) * 2
