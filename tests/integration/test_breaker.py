"""The circuit breaker of a model, and how long a job's calls may take. The model is scripted at its wire."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from om_core.llm.litellm_model import LiteLlmModel
from om_core.llm.registry import ModelRegistry
from om_core.memory import Memory
from om_core.services.run_jobs import JobRunner
from om_core.testing.scripted_replies import answer_reply
from om_core.testing.scripted_server import Reply, ScriptedModelServer
from tests.support.fixtures import COUNTER, SMALL, raw_session, system_session
from tests.support.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from om_core.domain.message import JsonObject
    from om_core.ports import BreakerRow
    from om_core.services.deps import Services

MODEL = "openai/scripted"
OPTIONS = {**SMALL, "model": MODEL, "job": {"breaker_failures": 3}}
TEXT = "the blue box goes to the Berlin office on Friday and Maria calls them " * 6


class Outage:
    """Memory with several threads whose models are a scripted server; time passes by moving stored times back."""

    def __init__(self, server: ScriptedModelServer, services: Services) -> None:
        self.server = server
        self.services = services
        self.memory = Memory(services)
        self.answer: Callable[[JsonObject], Reply] = lambda request: Reply(text=answer_reply(request))

    def talk(self, threads: int, *, tenant: str = "default") -> None:
        """Make a job due in each of so many threads."""
        memory = self.memory.for_tenant(tenant)
        for thread in range(threads):
            for n in range(6):
                message = {"role": "assistant" if n % 2 else "user", "content": f"TRACE-{n} {TEXT}"}
                memory.append(f"t{thread}", [message], resource="r")

    def run(self, most: int = 500) -> list[str]:
        """Run what can be claimed now; the outcomes."""
        runner = JobRunner(self.services)
        outcomes: list[str] = []
        for queue in ("observation", "buffering", "reflection"):
            while len(outcomes) < most and (outcome := runner.run(queue)) is not None:
                outcomes.append(outcome)
        runner.close()
        return outcomes

    def pass_time(self, seconds: float) -> None:
        """Let so many seconds pass in the database."""
        with raw_session(self.services.store) as session:
            session.hot("UPDATE jobs SET run_at = run_at - %s * interval '1 second' RETURNING 1", (seconds,))
        with system_session(self.services.store) as session:
            session.hot(
                "UPDATE breakers SET opened_until = opened_until - %s * interval '1 second' RETURNING 1", (seconds,)
            )

    @property
    def breaker(self) -> BreakerRow | None:
        return next((row for row in self.services.store.system.breakers() if row.model == MODEL), None)

    @property
    def open_for_s(self) -> float:
        with system_session(self.services.store) as session:
            [(left,)] = session.hot("SELECT extract(epoch FROM max(opened_until) - clock_timestamp()) FROM breakers")
        return float(left)


@pytest.fixture(scope="module", autouse=True)
def _imported() -> None:
    """LiteLLM takes seconds to import, which would count against the deadline of the first call."""
    LiteLlmModel().warm_up()


@pytest.fixture
def options() -> JsonObject:
    """Override to run with other options."""
    return OPTIONS


@pytest.fixture
def outage(services_with: Callable[..., Services], options: JsonObject) -> Iterator[Outage]:
    holder: list[Outage] = []
    with ScriptedModelServer(lambda request, _: holder[0].answer(request)) as server:
        model = ModelRegistry(count_tokens=COUNTER.count_text, api_base=server.base_url, api_key="none")
        holder.append(Outage(server, services_with(options, model=model)))
        yield holder[0]
        holder[0].memory.close()


def down(status: int = 503, **headers: str) -> Callable[[JsonObject], Reply]:
    return lambda _: Reply(status=status, text="down", headers=headers)


def hung_up(server: ScriptedModelServer, model: str) -> None:
    """Whatever reached the server ended because we hung up, not because it was done: it never is."""
    assert server.wait_until(lambda calls: all(call.ended for call in calls), timeout_s=30)
    assert all(call.client_gone for call in server.calls if call.request["model"] == model)


@pytest.mark.parametrize("status", [429, 500, 503])
def test_outages_in_a_row_open_it_and_nothing_is_called_while_it_is_open(outage: Outage, status: int) -> None:
    outage.answer = down(status)
    outage.talk(8)

    outcomes = outage.run()

    assert outcomes == ["retry_later"] * 3
    assert len(outage.server.calls) == 3
    assert outage.breaker is not None
    assert outage.breaker.state == "open"
    assert 25 < outage.open_for_s <= 30
    assert outage.memory.status("t0", resource="r")["breaker"] == "open"
    assert MODEL in outage.memory.status("t0", resource="r")["why_idle"]["breaker.observe"]


def test_one_call_probes_it_and_a_failed_probe_doubles_the_pause(outage: Outage) -> None:
    outage.answer = down()
    outage.talk(8)
    outage.run()
    pauses = []
    for _ in range(6):
        outage.pass_time(outage.open_for_s + 2)
        assert outage.run() == ["retry_later"]
        pauses.append(round(outage.open_for_s, -1))

    assert pauses == [60, 120, 240, 480, 600, 600]


def test_a_probe_that_works_closes_it_and_everything_waiting_is_done(outage: Outage) -> None:
    outage.answer = down()
    outage.talk(8)
    outage.run()
    outage.answer = lambda request: Reply(text=answer_reply(request))

    outage.pass_time(32)
    first = outage.run(most=1)
    outage.pass_time(40)
    rest = outage.run()

    assert first == ["ok"]
    assert outage.breaker is not None
    assert (outage.breaker.state, outage.breaker.failures) == ("closed", 0)
    assert len(rest) >= 7
    assert set(rest) == {"ok"}
    assert outage.memory.status("t0", resource="r")["breaker"] == "closed"


def test_while_one_probe_is_under_way_no_other_job_calls(outage: Outage) -> None:
    outage.answer = down()
    outage.talk(4)
    outage.run()
    outage.pass_time(32)
    system = outage.services.store.system

    probe = system.claim(queue="buffering", owner="w1", lease_s=60)
    other = system.claim(queue="buffering", owner="w2", lease_s=60)

    assert probe is not None
    assert other is None
    assert outage.breaker is not None
    assert outage.breaker.state == "half_open"
    assert outage.memory.status("t0", resource="r")["breaker"] == "half_open"


def test_a_probe_whose_worker_died_is_followed_by_another(outage: Outage) -> None:
    outage.answer = down()
    outage.talk(4)
    outage.run()
    outage.pass_time(32)
    system = outage.services.store.system
    dead = system.claim(queue="buffering", owner="w1", lease_s=-1)

    outage.pass_time(10)

    second = system.claim(queue="buffering", owner="w2", lease_s=60)
    assert dead is not None
    assert second is not None
    assert second.job.id != dead.job.id


def test_an_answer_in_between_starts_the_count_anew(outage: Outage) -> None:
    answers = [503, 503, 200, 503, 503, 200]
    outage.answer = lambda request: (
        Reply(text=answer_reply(request)) if (status := answers.pop(0)) == 200 else Reply(status=status, text="no")
    )
    outage.talk(6)

    assert len(outage.run(most=6)) == 6
    assert outage.breaker is not None
    assert outage.breaker.state == "closed"


@pytest.mark.parametrize(
    ("name", "reply"),
    [
        ("a wrong key", Reply(status=401, text="bad key")),
        ("an unknown model", Reply(status=404, text="no such model")),
        ("a refused input", Reply(status=400, text="context_length_exceeded")),
        ("nonsense", Reply(text="I'm sorry, I can't help.")),
    ],
)
def test_what_is_no_outage_does_not_open_it(outage: Outage, name: str, reply: Reply) -> None:
    outage.answer = lambda _: reply
    outage.talk(6)
    outage.run(most=8)

    assert outage.breaker is None or outage.breaker.state == "closed", name


@pytest.mark.parametrize("options", [{**OPTIONS, "model": [MODEL, "openai/spare"]}], ids=["with a fallback"])
def test_with_a_fallback_work_goes_on_there_and_the_broken_model_is_only_probed(outage: Outage) -> None:
    def answer(request: JsonObject) -> Reply:
        return Reply(text=answer_reply(request)) if request["model"] == "spare" else Reply(status=503, text="down")

    outage.answer = answer
    outage.talk(12)

    assert set(outage.run()) == {"ok"}
    asked = [call.request["model"] for call in outage.server.calls]
    assert asked.count("scripted") == 3
    assert asked.count("spare") >= 12


@pytest.mark.report("K02")
def test_ten_minutes_of_outage_cost_few_calls_every_turn_is_answered_and_work_resumes(outage: Outage) -> None:
    outage.answer = down()
    outage.talk(20)
    for second in range(0, 600, 5):
        outage.run()
        if second % 60 == 0:
            outage.memory.append("t0", [{"role": "user", "content": f"still there? {second}"}], resource="r")
            context = outage.memory.context("t0", resource="r").to_openai()
            assert f"still there? {second}" in str(context[-1]["content"])
        outage.pass_time(5)
    calls = len(outage.server.calls)

    outage.answer = lambda request: Reply(text=answer_reply(request))
    for _ in range(130):  # ten more minutes at most, the longest pause
        outage.pass_time(5)
        outage.run()
    assert calls == 3 + 4, "three open it, and probes come after 30, 60, 120 and 240 s"
    left = [job["id"] for state in ("available", "retryable") for job in outage.memory.jobs(state=state).items]
    assert left == []
    assert [job["failures"] for job in outage.memory.jobs(limit=100).items if job["failures"]] == []


@pytest.mark.parametrize("options", [{**OPTIONS, "observation": {**SMALL["observation"], "message_tokens": 350}}])
def test_a_context_does_not_wait_for_a_model_whose_breaker_is_open(outage: Outage) -> None:
    outage.answer = down()
    outage.talk(4)
    outage.run()
    outage.services.store.system.heartbeat(name="w", queues=["observation"], slots=1, running=0, version="")

    found = outage.memory.context("t0", resource="r")

    assert found.context.over_budget
    assert found.context.waited_s == 0


@pytest.mark.conforms("4.7")
@pytest.mark.report("K02")
def test_the_pause_a_provider_asks_for_is_kept_by_job_and_breaker(outage: Outage) -> None:
    outage.answer = down(429, **{"Retry-After": "200"})
    outage.talk(1)
    outage.run()

    with raw_session(outage.services.store) as session:
        [(wait,)] = session.hot("SELECT extract(epoch FROM run_at - clock_timestamp()) FROM jobs")
    assert 190 < float(wait) <= 200

    outage.talk(3)
    outage.run()
    assert 190 < outage.open_for_s <= 200


@pytest.mark.report("K06")
@pytest.mark.parametrize(
    "options", [{**OPTIONS, "observation": {**SMALL["observation"], "max_attempt": "2s"}}], ids=["2 s"]
)
@pytest.mark.parametrize(
    "reply", [Reply(hang=True), Reply(text="<observations>" * 20, drip_s=0.3)], ids=["hang", "drip"]
)
def test_a_server_that_accepts_and_never_ends_its_answer_holds_a_job_no_longer_than_its_time(
    outage: Outage, reply: Reply
) -> None:
    outage.answer = lambda _: reply
    outage.talk(1)

    assert outage.run() == ["retry_later"]

    hung_up(outage.server, "scripted")
    [job] = outage.memory.jobs().items
    assert job["failures"] == 0
    assert "no answer within 2 s" in job["error"]["message"]


@pytest.mark.parametrize(
    "options",
    [
        {
            **OPTIONS,
            "model": [MODEL, "openai/spare"],
            "observation": {**SMALL["observation"], "max_attempt": "2s"},
        }
    ],
    ids=["with a fallback"],
)
def test_a_fallback_is_asked_in_the_same_attempt_when_the_first_never_answers(outage: Outage) -> None:
    outage.answer = lambda request: (
        Reply(text=answer_reply(request)) if request["model"] == "spare" else Reply(hang=True)
    )
    outage.talk(1)

    assert outage.run() == ["ok"]

    hung_up(outage.server, "scripted")
    [chunk] = outage.memory.observations("t0", resource="r", state="all").items
    assert chunk["model"] == "openai/spare"


def _set(settings: JsonObject) -> JsonObject:
    return {**OPTIONS, "observation": {**SMALL["observation"], "model_settings": settings}}


@pytest.mark.conforms("4.6")
@pytest.mark.report("E01", "E03")
@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (OPTIONS, [0.3, 0.5, 0.7]),
        (_set({"temperature": 0.7}), [0.7, 0.9, 1.0]),
        (_set({"temperature": 1.4}), [1.4, 1.4, 1.4]),
    ],
    ids=["default", "set", "hot"],
)
def test_an_unusable_answer_is_asked_for_again_with_other_parameters(outage: Outage, expected: list[float]) -> None:
    outage.answer = lambda _: Reply(text="I'm sorry, I can't help.")
    outage.talk(1)
    for _ in range(3):
        outage.run(most=1)
        outage.pass_time(60)

    asked = [call.request["temperature"] for call in outage.server.calls]
    assert asked == pytest.approx(expected)


@pytest.mark.conforms("4.7")
def test_retries_of_an_outage_wait_longer_each_time_up_to_a_cap_and_not_in_step(outage: Outage) -> None:
    outage.answer = down()
    waits: list[float] = []
    outage.talk(1)
    for _ in range(10):
        outage.run()
        with system_session(outage.services.store) as session:
            session.hot("UPDATE breakers SET state = 'closed', opened_until = NULL, failures = 0 RETURNING 1")
            [(wait,)] = session.hot("SELECT extract(epoch FROM run_at - clock_timestamp()) FROM jobs")
        waits.append(float(wait))
        outage.pass_time(600)

    bounds = [(min(300, 5 * 2**n) * 0.5 - 1, min(300, 5 * 2**n) * 1.5) for n in range(10)]
    assert [wait for wait, (low, high) in zip(waits, bounds, strict=True) if not low <= wait <= high] == []
    assert len({round(wait, 2) for wait in waits[6:]}) == 4, "capped, and still with jitter"


def test_a_call_that_was_cancelled_is_no_outage(outage: Outage) -> None:
    outage.answer = lambda _: Reply(hang=True)
    outage.talk(1)
    runner = JobRunner(outage.services)
    ended = threading.Thread(target=runner.run, args=("buffering",))
    ended.start()
    eventually(lambda: outage.server.calls)
    runner.abandon()
    ended.join(20)
    runner.close()

    assert not ended.is_alive()
    assert outage.breaker is None
