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
