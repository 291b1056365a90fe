"""Budgets, models and settings of the phases, as the pipeline uses them (behaviour 1.3 to 1.7, 4.9)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from om_core import ModelByInputTokens
from om_core.domain.errors import RetryLaterError
from om_core.llm.offline import OfflineModel
from om_core.memory import Memory
from om_core.ports import ModelReply, ModelRequest, ObserverMaterial
from tests.support.fixtures import COUNTER
from tests.support.jobs import work_off

if TYPE_CHECKING:
    from collections.abc import Callable
    from threading import Event

    from om_core.services.deps import Services

SMALL = {"message_tokens": 1000, "buffer_tokens": 0.2, "block_timeout": 0}


class Recording:
    """The offline model under other names; it keeps the requests, and is away for some names."""

    def __init__(self, away: frozenset[str] = frozenset()) -> None:
        self.requests: list[ModelRequest] = []
        self._away = away
        self._model = OfflineModel(count_tokens=COUNTER.count_text)

    def window_tokens(self, model: str) -> int | None:
        return None

    def complete(self, request: ModelRequest, *, timeout_s: float, cancelled: Event | None = None) -> ModelReply:
        self.requests.append(request)
        if request.model in self._away:
            raise RetryLaterError(f"{request.model} is away")
        asked = replace(request, model="offline/extractive", provider_options={})
        return replace(self._model.complete(asked, timeout_s=timeout_s, cancelled=cancelled), model=request.model)

    def of(self, phase: str) -> list[ModelRequest]:
        return [request for request in self.requests if request.phase == phase]


def say(memory: Memory, thread: str, fact: str, *, tokens: int, resource: str = "r") -> None:
    """A message of about so many tokens."""
    words = [fact, *(f"On day {day} the train to Lyon was {day} minutes late." for day in range(tokens // 14))]
    memory.append(thread, [{"role": "user", "content": " ".join(words)}], resource=resource)


def due(memory: Memory) -> list[str]:
    return [job["kind"] for job in memory.jobs(state="available").items]


def thresholds(memory: Memory, thread: str) -> tuple[int, int]:
    active: Any = memory.status(thread, resource="r")["windows"]["active"]
    return active["messages"]["threshold"], active["observations"]["threshold"]


@pytest.mark.conforms("1.6")
def test_with_a_shared_budget_messages_may_take_what_the_log_leaves(services_with: Callable[..., Services]):
    memory = Memory(
        services_with(
            {
                "model": "offline/extractive",
                "share_token_budget": True,
                "observation": {"message_tokens": 500, "buffer_tokens": False, "block_timeout": 0},
                "reflection": {"observation_tokens": 1000},
            }
        )
    )
    say(memory, "t", "My dog is called Rex.", tokens=900)
    assert thresholds(memory, "t") == (1500, 1000)
    assert due(memory) == []

    say(memory, "t", "My cat is called Tom.", tokens=800)
    assert due(memory) == ["observe"]
    work_off(memory.services)
    assert memory.context("t", resource="r").context.activated
    log = memory.status("t", resource="r")["windows"]["active"]["observations"]["tokens"]
    assert log > 0
    assert thresholds(memory, "t") == (1500 - log, max(1000, log))


@pytest.mark.conforms("1.6")
def test_a_shared_budget_never_goes_below_message_tokens(services_with: Callable[..., Services]):
    policy = services_with(
        {
            "share_token_budget": True,
            "observation": {"message_tokens": 500, "buffer_tokens": False},
            "reflection": {"observation_tokens": 1000},
        }
    ).policies.resolve()
    found = [policy.with_shared_budget(log).observation.message_tokens for log in (0, 1, 999, 1000, 5000)]
    assert found == [1500, 1499, 501, 500, 500]
    assert policy.with_shared_budget(100).observation.block_after_tokens == 1400


@pytest.mark.conforms("11.26")
@pytest.mark.parametrize(
    ("option", "least", "most"), [(0, 0, 0), (60, 20, 60), (2_000, 150, 2_000), (False, 150, 100_000)]
)
def test_the_observer_is_shown_the_newest_notes_within_its_limit(
    services_with: Callable[..., Services], option: object, least: int, most: int
):
    model = Recording()
    options = {"model": "x/y", "observation": {**SMALL, "previous_observer_tokens": option}}
    memory = Memory(services_with(options, model=model))
    for number in range(8):
        say(memory, "t", f"My friend number {number} is called Paula-{number} and lives in Lyon.", tokens=250)
        work_off(memory.services)
    material = model.of("observe")[-1].material
    assert isinstance(material, ObserverMaterial)
    assert least <= COUNTER.count_text(material.prior_notes) <= most
    assert ("Paula-6" in material.prior_notes) == bool(most)
    assert ("Paula-0" in material.prior_notes) == (most >= 2_000)


def test_notes_shown_never_take_more_than_half_of_the_room(services_with: Callable[..., Services]):
    model = Recording()
    window = {"previous_observer_tokens": False, "window_tokens": 5_000}
    memory = Memory(services_with({"model": "x/y", "observation": {**SMALL, **window}}, model=model))
    for number in range(30):
        say(memory, "t", f"My friend number {number} is called Paula-{number} and lives in Lyon.", tokens=250)
        work_off(memory.services)
    for request in model.of("observe"):
        assert COUNTER.count_text(request.material.prior_notes) <= 500  # type: ignore[union-attr]  # all observe


@pytest.mark.conforms("4.9", "11.18")
def test_threads_of_a_resource_take_turns_in_batches(services_with: Callable[..., Services]):
    model = Recording()
    options = {"model": "x/y", "scope": "resource", "observation": {**SMALL, "max_tokens_per_batch": 300}}
    memory = Memory(services_with(options, model=model))
    for number in range(8):
        say(memory, "large", f"My friend number {number} is called Paula-{number}.", tokens=200)
    say(memory, "small", "My cat is called Tom.", tokens=250)
    work_off(memory.services)

    ranges = [request.material.messages for request in model.of("observe")]  # type: ignore[union-attr]  # all observe
    sizes = [sum(row.tokens for row in rows) for rows in ranges]
    assert max(sizes) <= 300
    small = next(index for index, rows in enumerate(ranges) if "Tom" in str(rows))
    assert small == 1, "after the first batch of the large thread"
    assert len(ranges) >= 4


@pytest.mark.conforms("4.9")
def test_a_message_larger_than_a_batch_is_a_batch_of_its_own(services_with: Callable[..., Services]):
    model = Recording()
    options = {"model": "x/y", "scope": "resource", "observation": {**SMALL, "max_tokens_per_batch": 100}}
    memory = Memory(services_with(options, model=model))
    say(memory, "t", "My cat is called Tom.", tokens=700)
    work_off(memory.services)
    assert len(model.of("observe")) == 1
    assert memory.get_thread("t", resource="r").unbuffered_tokens == 0


def test_in_thread_scope_one_job_takes_what_fits(services_with: Callable[..., Services]):
    model = Recording()
    memory = Memory(services_with({"model": "x/y", "observation": {**SMALL, "max_tokens_per_batch": 100}}, model=model))
    for _ in range(3):
        say(memory, "t", "My cat is called Tom.", tokens=90)
    work_off(memory.services)
    assert len(model.of("observe")) == 1


@pytest.mark.conforms("1.3")
def test_each_phase_calls_its_own_model_with_its_own_settings_and_instruction(services_with: Callable[..., Services]):
    model = Recording(away=frozenset({"a/first"}))
    options = {
        "observation": {
            **SMALL,
            "model": ["a/first", "a/second"],
            "model_settings": {"temperature": 0.7},
            "instruction": "Write down train numbers.",
        },
        "reflection": {
            "model": ModelByInputTokens({100: "b/small", 100_000: "b/large"}),
            "model_settings": {"max_output_tokens": 900},
            "instruction": "Keep train numbers.",
        },
    }
    memory = Memory(services_with(options, model=model))
    for number in range(6):
        say(memory, "t", f"My friend number {number} is called Paula-{number}.", tokens=300)
    work_off(memory.services)
    memory.activate("t", resource="r")
    memory.reflect("t", resource="r")
    work_off(memory.services)

    observed, reflected = model.of("observe"), model.of("reflect")
    assert [request.model for request in observed][:2] == ["a/first", "a/second"]
    assert observed[0].settings == {"temperature": 0.7}
    assert "Write down train numbers." in observed[0].prompt[0].content
    assert "Write down train numbers." not in reflected[0].prompt[0].content
    assert {request.model for request in reflected} == {"b/large"}
    assert reflected[0].settings == {"max_output_tokens": 900}
    assert "Keep train numbers." in reflected[0].prompt[0].content
    assert reflected[0].material.level == 0  # type: ignore[union-attr]  # asked for by hand


@pytest.mark.conforms("1.7")
def test_a_thread_may_have_thresholds_of_its_own(services_with: Callable[..., Services]):
    memory = Memory(services_with({"model": "offline/extractive", "observation": SMALL}))
    config = {"observation": {"message_tokens": 400}, "reflection": {"observation_tokens": 777}}
    memory.put_thread("own", resource="r", config=config)
    say(memory, "own", "Hello.", tokens=20)
    say(memory, "other", "Hello.", tokens=20)
    assert thresholds(memory, "own") == (400, 777)
    assert thresholds(memory, "other") == (1000, 40_000)


def test_a_switched_off_memory_stores_and_does_nothing_else(services_with: Callable[..., Services]):
    memory = Memory(services_with({"enabled": False, "model": "offline/extractive", "observation": SMALL}))
    for _ in range(6):
        say(memory, "t", "My cat is called Tom.", tokens=300)
    assert due(memory) == []
    context = memory.context("t", resource="r").context
    assert len(context.messages) == 6
    assert "switched off" in memory.status("t", resource="r")["why_idle"]["observe"]
