"""Budgets (DESIGN 5): what threads, resources and tenants may use per day. Caps and fair claims are in `test_claims`."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest

from om_core.bootstrap import Located, build_services
from om_core.domain.errors import PolicyError, SetupError
from om_core.llm.registry import ModelRegistry
from om_core.memory import Memory
from om_core.options import resolve_policy
from om_core.ports import ClaimLimits
from om_core.services.run_jobs import JobRunner
from om_core.services.sweep import rescue
from om_core.testing.scripted_replies import answer_reply
from om_core.testing.scripted_server import Reply, ScriptedModelServer
from tests.support.fixtures import COUNTER, SMALL, raw_session
from tests.support.jobs import work_off
from tests.support.services import make_settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from om_core.domain.message import JsonObject
    from om_core.ports import ClaimedJob
    from om_core.services.deps import Services

TEXT = "the blue box goes to the Berlin office on Friday and Maria calls them " * 6


class Spender:
    """Memory whose model reports what it used; every call takes 4,000 tokens in and 1,000 out."""

    def __init__(self, services: Services, server: ScriptedModelServer) -> None:
        self.services = services
        self.server = server
        self.memory = Memory(services)

    def talk(self, thread: str, *, tenant: str = "default", resource: str = "r", start: int = 0) -> None:
        for n in range(start, start + 6):
            message = {"role": "assistant" if n % 2 else "user", "content": f"TRACE-{n} {TEXT}"}
            self.memory.for_tenant(tenant).append(thread, [message], resource=resource)

    def status(self, thread: str, resource: str = "r") -> JsonObject:
        return self.memory.status(thread, resource=resource)

    def next_day(self) -> None:
        with raw_session(self.services.store) as session:
            session.hot("UPDATE usage SET day = day - 1 RETURNING 1")
            session.hot("UPDATE spending SET day = day - 1 RETURNING 1")
        self.recheck()

    def recheck(self) -> None:
        """Let a minute pass, after which what a budget refused is looked at again."""
        with raw_session(self.services.store) as session:
            session.hot("UPDATE jobs SET run_at = run_at - interval '62 seconds' RETURNING 1")

    @property
    def calls(self) -> int:
        return len(self.server.calls)


PRICES = {"openai/scripted": {"input": 100, "output": 100}}
"""US dollars per million tokens: a call costs half a dollar."""


def script(request: JsonObject, _: int) -> Reply:
    return Reply(text=answer_reply(request), input_tokens=4_000, output_tokens=1_000)


@pytest.fixture
def spender(services_with: Callable[..., Services]) -> Iterator[Callable[..., Spender]]:
    """`spender(limits)`; called again, it is the same memory after the limits were changed."""
    made: list[Spender] = []
    with ScriptedModelServer(script) as server:

        def make(**limits: Any) -> Spender:
            options = {**SMALL, "model": "openai/scripted", "limits": {"prices": PRICES, **limits}}
            options["observation"] = {**SMALL["observation"], "message_tokens": 100_000, "buffer_tokens": 300}
            model = ModelRegistry(
                count_tokens=COUNTER.count_text, api_base=server.base_url, api_key="none", prices=price_table()
            )
            prices = {"openai/scripted": (1e-4, 1e-4)} if "usd_per_day" in limits else {}
            made.append(Spender(services_with(options, model=model, prices=prices), server))
            return made[-1]

        yield make
    for opened in made:
        opened.memory.close()


def price_table() -> dict[str, Any]:
    from om_core.llm.catalog import ModelPrice

    return {"openai/scripted": ModelPrice(input=1e-4, output=1e-4)}


@pytest.mark.report("Q03")
@pytest.mark.parametrize(("unit", "limit"), [("tokens_per_day", 14_000), ("usd_per_day", 1.4)], ids=["tokens", "money"])
@pytest.mark.parametrize("scope", ["thread", "resource", "tenant"])
def test_a_budget_stops_work_visibly_and_it_goes_on_the_next_day(
    spender: Callable[..., Spender], scope: str, unit: str, limit: float
) -> None:
    """A job is reckoned at about 7,500 tokens, and takes 5,000: the second does not fit in 14,000 together."""
    found = spender(**{unit: {scope: limit}})
    for start in (0, 6, 12):
        found.talk("t", start=start)
        work_off(found.services)
    assert found.calls == 2

    status = found.status("t")
    name = unit.partition("_")[0]
    assert status["budget"]["spent"] is True
    assert status["budget"][scope][name]["used"] == pytest.approx(10_000 if name == "tokens" else 1.0)
    assert f"budget of the {scope}" in status["why_idle"]["budget"]
    assert f"limits.{unit}.{scope}" in status["why_idle"]["budget"]
    found.recheck()
    assert work_off(found.services) == [], "still the same day"

    found.next_day()
    assert work_off(found.services) == ["ok"]
    assert found.status("t")["budget"]["spent"] is False
    assert found.status("t")["why_idle"].get("budget") is None


def test_work_goes_on_when_the_limit_is_raised(spender: Callable[..., Spender]) -> None:
    tight = spender(tokens_per_day={"tenant": 9_000})
    tight.talk("t")
    work_off(tight.services)
    tight.talk("u")
    assert work_off(tight.services) == []
    raised = spender(tokens_per_day={"tenant": 90_000})
    raised.recheck()

    assert work_off(raised.services) == ["ok"]


def test_a_budget_binds_its_own_scope_only(spender: Callable[..., Spender]) -> None:
    found = spender(tokens_per_day={"resource": 9_000})
    for resource in ("r", "s"):
        found.talk("t", resource=resource)
        work_off(found.services)
        found.talk("u", resource=resource)
        assert work_off(found.services) == []
    found.talk("t", tenant="other")
    assert work_off(found.services) == ["ok"]
    assert found.calls == 3


def test_what_running_jobs_reserve_counts_and_two_claims_never_both_pass(spender: Callable[..., Spender]) -> None:
    found = spender(tokens_per_day={"tenant": 16_000})
    for n in range(6):
        found.talk(f"t{n}")
    runner = JobRunner(found.services)
    limits = runner._limits
    held: list[ClaimedJob] = []
    start = threading.Barrier(6)

    def work() -> None:
        start.wait()
        got = found.services.store.system.claim(queue="buffering", owner="w", lease_s=60, limits=limits)
        held.extend([got] if got else [])

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    runner.close()

    assert len(held) == 2
    assert sum(claimed.job.reserved_tokens for claimed in held) <= 16_000
    assert found.status("t0")["budget"]["tenant"]["tokens"]["reserved"] > 12_000


def test_a_killed_worker_leaks_no_reservation_and_its_attempt_is_booked_at_it(spender: Callable[..., Spender]) -> None:
    found = spender(tokens_per_day={"tenant": 9_000})
    found.talk("t")
    runner = JobRunner(found.services)
    dead = found.services.store.system.claim(queue="buffering", owner="dead", lease_s=-1, limits=runner._limits)
    runner.close()
    assert dead is not None
    assert claim_again(found) is None, "reserved until it is rescued"

    assert rescue(found.services, "default", dead.job.id)

    budget = found.status("t")["budget"]["tenant"]["tokens"]
    assert (budget["used"], budget["reserved"]) == (dead.job.reserved_tokens, 0)
    found.next_day()
    assert work_off(found.services) == ["ok"]


def claim_again(found: Spender) -> ClaimedJob | None:
    found.talk("another")
    return found.services.store.system.claim(
        queue="buffering", owner="w", lease_s=60, limits=ClaimLimits(budgets=(("tenant", "tokens", 9_000),))
    )


def test_a_job_larger_than_the_whole_budget_runs_alone_on_a_fresh_day(spender: Callable[..., Spender]) -> None:
    found = spender(tokens_per_day={"thread": 100})
    found.talk("t")
    assert work_off(found.services) == ["ok"]
    found.talk("t", start=6)
    assert work_off(found.services) == []


def test_without_limits_nothing_is_reserved_and_status_shows_no_budget(spender: Callable[..., Spender]) -> None:
    found = spender()
    found.talk("t")
    held = found.services.store.system.claim(queue="buffering", owner="w", lease_s=60)
    assert held is not None
    assert held.job.reserved_tokens == 0
    assert found.status("t")["budget"] is None


def test_a_context_does_not_wait_for_what_no_budget_allows(services_with: Callable[..., Services]) -> None:
    options = {**SMALL, "limits": {"tokens_per_day": {"thread": 100}}}
    options["observation"] = {"message_tokens": 400, "buffer_tokens": 200, "block_timeout": "30s"}
    services = services_with(options)
    memory = Memory(services)
    services.store.system.heartbeat(name="w", queues=["observation"], slots=1, running=0, version="")
    for n in range(4):
        memory.append("t", [{"role": "user", "content": f"{n} {TEXT}"}], resource="r")
    work_off(services)
    for n in range(12):
        memory.append("t", [{"role": "user", "content": f"{n} {TEXT}"}], resource="r")

    found = memory.context("t", resource="r").context
    assert found.over_budget
    assert found.waited_s == 0


def test_every_call_is_booked_also_those_whose_results_are_dropped(services_with: Callable[..., Services]) -> None:
    """A message in slices, the second of which the model never answers: the first is dropped when the range is parked."""

    def broken(request: JsonObject, _: int) -> Reply:
        good = "TRACE-1 " in str(request["messages"][-1]["content"])
        return Reply(text=answer_reply(request) if good else "I'm sorry, I can't.", input_tokens=4_000, output_tokens=9)

    options = {**SMALL, "model": "openai/scripted", "job": {"max_failures": 2, "backoff_base": 1, "backoff_cap": 1}}
    options["observation"] = {**SMALL["observation"], "window_tokens": 5_000}
    with ScriptedModelServer(broken) as server:
        model = ModelRegistry(count_tokens=COUNTER.count_text, api_base=server.base_url, api_key="none")
        memory = Memory(services_with(options, model=model))
        text = " ".join(f"TRACE-{n} is a fact among many others here." for n in range(1, 600))
        memory.append("t", [{"role": "user", "content": text}], resource="r")
        for _ in range(4):
            work_off(memory.services)
            with raw_session(memory.services.store) as session:
                session.hot("UPDATE jobs SET run_at = run_at - interval '1 minute' RETURNING 1")
        with raw_session(memory.services.store) as session:
            [(booked,)] = session.hot("SELECT sum(input_tokens) FROM usage")
            sums = session.hot("SELECT tokens FROM spending ORDER BY scope")

    assert [chunk["kind"] for chunk in memory.observations("t", resource="r", state="all").items] == ["parked"]
    assert len(server.calls) >= 3
    assert booked == 4_000 * len(server.calls)
    assert sums == [(4_009 * len(server.calls),)] * 2


def test_a_limit_in_money_without_a_price_stops_the_start(database_url: str) -> None:
    limited = {"limits": {"usd_per_day": {"tenant": 5}}}
    settings = make_settings(
        database_url, model="openai/of-my-own", model_api_base="http://127.0.0.1:9", options=limited
    )
    located = Located(database_url=database_url, redis_url=None, embedded=False)
    with pytest.raises(SetupError, match=r"openai/of-my-own has no list price.*limits\.prices"):
        build_services(settings, located, model_required=True)

    priced = {"limits": {**limited["limits"], "prices": {"openai/of-my-own": {"input": 0.5, "output": 1.5}}}}
    built = build_services(make_settings(database_url, model="openai/of-my-own", options=priced), located)
    assert built.prices["openai/of-my-own"] == pytest.approx((5e-7, 1.5e-6))
    built.store.close()


@pytest.mark.parametrize(
    ("limits", "named"),
    [
        ({"in_flight": 0}, "limits.in_flight"),
        ({"in_flight": 2.5}, "limits.in_flight"),
        ({"tokens_per_day": {"tenant": 0}}, "limits.tokens_per_day.tenant"),
        ({"tokens_per_day": {"user": 5}}, "limits.tokens_per_day.user"),
        ({"usd_per_day": {"thread": -1}}, "limits.usd_per_day.thread"),
        ({"usd_per_day": 5}, "limits.usd_per_day"),
        ({"prices": {"a/b": {"input": 1}}}, "limits.prices.a/b.output"),
        ({"prices": {"a/b": {"input": -1, "output": 1}}}, "limits.prices.a/b"),
    ],
)
def test_a_wrong_limit_is_named(limits: JsonObject, named: str) -> None:
    with pytest.raises(PolicyError) as caught:
        resolve_policy({"limits": limits})
    assert caught.value.option == named


def test_limits_are_written_in_either_spelling_and_switched_off_with_false() -> None:
    limits = resolve_policy({"limits": {"inFlight": 5, "tokensPerDay": {"tenant": 10, "thread": False}}}).limits
    assert (limits.in_flight, limits.tokens_per_day, limits.usd_per_day) == (5, {"tenant": 10}, {})
