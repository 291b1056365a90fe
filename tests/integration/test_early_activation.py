"""Early activation: after a pause, or when the actor's model changes, ready chunks move at the next step (DESIGN 6.3)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from om_core.memory import Memory
from tests.support.fixtures import SMALL, raw_session
from tests.support.jobs import work_off

if TYPE_CHECKING:
    from collections.abc import Callable

    from om_core.domain.message import JsonObject
    from om_core.services.deps import Services

TEXT = "the blue box goes to the Berlin office on Friday and Maria calls them " * 4


def talk(memory: Memory, count: int, model: str) -> None:
    for n in range(count):
        message = {"role": "assistant" if n % 2 else "user", "content": f"{n} {TEXT}"}
        memory.append("t", [message], resource="r", model=model)


def prepared(services: Services) -> Memory:
    """A thread under its threshold, with chunks ready and more raw messages than the least tail."""
    memory = Memory(services)
    talk(memory, 8, "openai/gpt-5")
    work_off(services)
    talk(memory, 4, "openai/gpt-5")
    return memory


def pause(services: Services, seconds: int) -> None:
    with raw_session(services.store) as session:
        session.hot(
            "UPDATE threads SET last_activity_at = last_activity_at - %s * interval '1 s' RETURNING 1", (seconds,)
        )


CASES: list[tuple[str, JsonObject, int, str, str | None]] = [
    ("a long pause", {"activate_after_idle": "5m"}, 301, "openai/gpt-5", "ttl"),
    ("a short pause", {"activate_after_idle": "5m"}, 299, "openai/gpt-5", None),
    ("another model", {"activate_on_provider_change": True}, 0, "anthropic/claude-opus-4-5", "provider_change"),
    ("the same model", {"activate_on_provider_change": True}, 0, "openai/gpt-5", None),
    ("both options off", {}, 100_000, "anthropic/claude-opus-4-5", None),
]


@pytest.mark.parametrize(("options", "seconds", "model", "reason"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_a_step_activates_early_after(
    services_with: Callable[..., Services], options: JsonObject, seconds: int, model: str, reason: str | None
) -> None:
    services = services_with({**SMALL, **options})
    memory = prepared(services)
    pause(services, seconds)

    memory.append("t", [{"role": "user", "content": "and now?"}], resource="r", model=model)
    activated = memory.context("t", resource="r", model=model).activated

    assert (activated.reason if activated else None) == reason
    if reason is None:
        return
    [first, *_] = [event for event in memory.events("t", resource="r") if event.type == "data-om-activation"]
    if reason == "ttl":
        assert first.payload["ttlExpiredMs"] >= seconds * 1000
    else:
        assert (first.payload["previousModel"], first.payload["currentModel"]) == ("openai/gpt-5", model)
    assert memory.get_thread("t", resource="r").early_activation is None


REFLECTION: list[tuple[str, JsonObject, int, str, str | None]] = [
    ("a long pause", {"activate_after_idle": "5m"}, 301, "openai/gpt-5", "ttl"),
    ("a short pause", {"activate_after_idle": "5m"}, 299, "openai/gpt-5", None),
    ("another model", {"activate_on_provider_change": True}, 0, "anthropic/claude-opus-4-5", "provider_change"),
    ("neither option", {}, 100_000, "anthropic/claude-opus-4-5", None),
]


@pytest.mark.conforms("11.47")
@pytest.mark.parametrize(
    ("options", "seconds", "model", "reason"), [case[1:] for case in REFLECTION], ids=[case[0] for case in REFLECTION]
)
@pytest.mark.parametrize("fits", [True, False])
def test_a_finished_reflection_takes_effect_early_where_it_fits(
    services_with: Callable[..., Services],
    options: JsonObject,
    seconds: int,
    model: str,
    reason: str | None,
    fits: bool,
) -> None:
    services = services_with({**SMALL, "reflection": {"observation_tokens": 20_000, **options}})
    memory = prepared(services)
    memory.activate("t", resource="r")
    with raw_session(services.store) as session:  # as if it had been made of the notes before these
        session.hot(
            "INSERT INTO reflections (tenant_id, memory_id, generation, base_generation, through_position, state, text,"
            " tokens, input_tokens, job_id, attempt) SELECT tenant_id, id, 1, 0, 0, 'buffered', '* 🔴 (09:00) Old.', 6,"
            " 60, 1, 1 FROM memories RETURNING 1"
        )
        session.hot("UPDATE memories SET buffered_generation = 1, log_tokens = log_tokens + 9000 RETURNING 1")
        if fits:
            session.hot("UPDATE chunks SET tokens = 9000 WHERE position = 1 RETURNING 1")
    pause(services, seconds)

    memory.append("t", [{"role": "user", "content": "and now?"}], resource="r", model=model)
    looked = [memory.context("t", resource="r", model=model).activated for _ in range(2)]

    assert (looked[0].generation if looked[0] else None) == (1 if fits and reason else None)
    assert looked[1] is None
    assert memory.get_thread("t", resource="r").early_activation is None
    if fits and reason:
        told = [event for event in memory.events("t", resource="r") if event.type == "data-om-activation"][-1]
        assert (told.payload["operationType"], told.payload["triggeredBy"]) == ("reflection", reason)
