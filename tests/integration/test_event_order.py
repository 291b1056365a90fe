"""The order of a thread's events on every path through memory: behaviour 7, and how this project differs from it."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING, Final

import pytest

from om_core.llm.registry import ModelRegistry
from om_core.memory import Memory
from om_core.testing.scripted_replies import answer_reply
from om_core.testing.scripted_server import Reply, ScriptedModelServer
from tests.integration.test_early_activation import pause
from tests.integration.test_sweep import shift
from tests.support.fixtures import COUNTER, SMALL
from tests.support.jobs import work_off

if TYPE_CHECKING:
    from collections.abc import Callable

    from om_core.domain.message import JsonObject
    from om_core.services.deps import Services

TEXT: Final = "the blue box goes to the Berlin office on Friday and Maria calls them " * 4
OBSERVED: Final = ("buffering-start observation", "buffering-end observation")
AWAITED: Final = ("observation-start observation", "observation-end observation")
FAILED: Final = ("buffering-start observation", "buffering-failed observation")
REFLECTED: Final = ("buffering-start reflection", "buffering-end reflection")
REFUSED: Final = ("buffering-start reflection", "buffering-failed reflection")
MOVED: Final = "activation observation"
TAKEN: Final = "activation reflection"
REFUSAL: Final = Reply(text="I'm sorry, I can't help with that.")
DIFFERENCES: Final = {
    "synchronous": "a run that a context waits for is told as observation, and its notes still enter the log by an activation",
    "failure": "the range of a failed run is kept and run again: each failure stands behind a start of its own",
    "parked": "a range that cannot be noted ends as an extract: the last run is told as failed, and its extract as its end",
    "reflection": "a reflection is always made in the background: no observation-start of a reflection exists",
    "refused reflection": "rejected candidates of one climb are no events: the run fails once",
    "resource scope": "every thread is told of its own runs only, and notes are buffered as in thread scope",
}
"""Path -> what DESIGN does otherwise than the specification's section 7. Status is computed on request, on every path."""


class Model:
    """A script whose answers are notes, or what the test sets."""

    def __init__(self) -> None:
        self.answer: Reply | None = None

    def __call__(self, request: JsonObject, _: int) -> Reply:
        return self.answer or Reply(text=answer_reply(request))


class Stage:
    """Memory over a scripted model, and the events of its threads."""

    def __init__(self, services: Services, model: Model) -> None:
        self.services = services
        self.memory = Memory(services)
        self.model = model

    def say(self, count: int, thread: str = "t", model: str = "openai/scripted") -> None:
        for n in range(count):
            message = {"role": "assistant" if n % 2 else "user", "content": f"TRACE-{thread}{n} {TEXT}"}
            self.memory.append(thread, [message], resource="r", model=model)

    def work(self) -> None:
        work_off(self.services)

    def retry(self) -> None:
        """Until nothing is left to be tried again."""
        for _ in range(30):
            self.work()
            if not self.memory.jobs(state="retryable").items:
                return
            shift(self.services, "UPDATE jobs SET run_at = clock_timestamp() WHERE state = 'retryable'")
        pytest.fail("the same work comes again for ever")

    def look(self, thread: str = "t", model: str = "openai/scripted") -> None:
        self.memory.context(thread, resource="r", model=model, wait=False)

    def events(self, thread: str = "t") -> list[JsonObject]:
        found = self.memory.events(thread, resource="r")
        return [{"type": event.type.removeprefix("data-om-"), **event.payload} for event in found]

    def told(self, thread: str = "t") -> list[str]:
        """Type and operation of each event, a row of equal runs once."""
        names = [f"{event['type']} {event['operationType']}" for event in self.events(thread)]
        pairs: list[tuple[str, ...]] = []
        while names:
            size = 2 if names[0].split()[0].endswith("-start") else 1
            pairs.append(tuple(names[:size]))
            names = names[size:]
        return [name for pair, _ in groupby(pairs) for name in pair]


def asynchronous(stage: Stage) -> None:
    for _ in range(8):
        stage.say(4)
        stage.work()
        stage.look()
        if any(event["type"] == "activation" for event in stage.events()):
            return


def synchronous(stage: Stage) -> None:
    stage.say(6)
    shift(stage.services, "UPDATE jobs SET awaited = true, queue = 'observation'")
    stage.work()
    stage.memory.activate("t", resource="r")


def failure(stage: Stage) -> None:
    stage.model.answer = Reply(status=503, body={"error": {"message": "away"}})
    stage.say(6)
    stage.work()
    stage.model.answer = None
    stage.retry()


def parked(stage: Stage) -> None:
    stage.model.answer = REFUSAL
    stage.say(4)
    stage.retry()


def reflection(stage: Stage) -> None:
    asynchronous(stage)
    stage.memory.reflect("t", resource="r")
    stage.work()
    stage.memory.activate("t", resource="r")


def refused_reflection(stage: Stage) -> None:
    asynchronous(stage)
    stage.model.answer = REFUSAL
    stage.memory.reflect("t", resource="r")
    stage.work()


def after_a_pause(stage: Stage) -> None:
    stage.say(8)
    stage.work()
    stage.say(4)
    pause(stage.services, 3_000)
    stage.say(1)
    stage.look()


def another_model(stage: Stage) -> None:
    stage.say(8)
    stage.work()
    stage.say(4)
    stage.say(1, model="anthropic/claude-opus-4-5")
    stage.look(model="anthropic/claude-opus-4-5")


def two_threads(stage: Stage) -> None:
    stage.say(8, "other")
    stage.say(8)
    stage.work()
    stage.memory.activate("t", resource="r")


EARLY: Final = {"activate_after_idle": "5m", "activate_on_provider_change": True}
PATHS: Final[dict[str, tuple[Callable[[Stage], None], JsonObject, tuple[str, ...]]]] = {
    "asynchronous": (asynchronous, {}, (*OBSERVED, MOVED)),
    "synchronous": (synchronous, {}, (*AWAITED, MOVED)),
    "failure": (failure, {}, (*FAILED, *OBSERVED)),
    "parked": (parked, {"job": {"max_failures": 1, "backoff_base": 1}}, (*FAILED, OBSERVED[1])),
    "reflection": (reflection, {}, (*OBSERVED, MOVED, *REFLECTED, MOVED, TAKEN)),
    "refused reflection": (refused_reflection, {}, (*OBSERVED, MOVED, *REFUSED)),
    "early activation after a pause": (after_a_pause, EARLY, (*OBSERVED, MOVED)),
    "early activation for another model": (another_model, EARLY, (*OBSERVED, MOVED)),
    "resource scope": (two_threads, {"scope": "resource"}, (*OBSERVED, MOVED)),
}


def check_frames(events: list[JsonObject]) -> None:
    """Each run is opened once and ended once, nothing of it stands outside, and runs move in the order of their notes."""
    open_runs: set[str] = set()
    ended: list[str] = []
    for event in events:
        cycle = event["cycleId"]
        if event["type"].endswith("-start"):
            assert cycle not in open_runs | set(ended)
            open_runs.add(cycle)
        elif event["type"].endswith("-end") and cycle in ended[-1:]:
            continue  # the extract of the run that failed just before
        elif event["type"].endswith(("-end", "-failed")):
            open_runs.remove(cycle)
            ended.append(cycle)
    moved = [event["cycleId"] for event in events if f"{event['type']} {event['operationType']}" == MOVED]
    assert open_runs == set()
    assert moved == [cycle for cycle in ended if cycle in moved]


@pytest.mark.conforms("7")
@pytest.mark.parametrize("path", PATHS)
def test_the_events_of_a_path_are_told_in_their_order(path: str, services_with: Callable[..., Services]) -> None:
    drive, options, expected = PATHS[path]
    script = Model()
    with ScriptedModelServer(script) as server:
        model = ModelRegistry(count_tokens=COUNTER.count_text, api_base=server.base_url, api_key="none")
        stage = Stage(services_with({**SMALL, "model": "openai/scripted", **options}, model=model), script)
        drive(stage)
        told, events = stage.told(), stage.events()

    assert tuple(told) == expected, DIFFERENCES.get(path, "as the specification has it")
    check_frames(events)
    assert all(event["recordId"] and event["threadId"] == "t" for event in events)


def test_each_difference_belongs_to_a_path() -> None:
    assert set(DIFFERENCES) <= set(PATHS)
