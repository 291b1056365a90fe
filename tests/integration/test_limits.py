"""Caps, fair claims and budgets (DESIGN 5): what a tenant may run at once, and what its scopes may use per day."""

from __future__ import annotations

import threading
from collections import Counter, deque
from typing import TYPE_CHECKING, Any

import pytest

from om_core.bootstrap import Located, build_services
from om_core.domain.errors import PolicyError, SetupError
from om_core.domain.job import JobState
from om_core.llm.registry import ModelRegistry
from om_core.memory import Memory
from om_core.options import resolve_policy
from om_core.ports import ClaimLimits, FinishedJob
from om_core.services.run_jobs import JobRunner
from om_core.services.sweep import rescue
from om_core.testing.scripted_replies import answer_reply
from om_core.testing.scripted_server import Reply, ScriptedModelServer
from tests.support.fixtures import COUNTER, SMALL, raw_session, system_session
from tests.support.jobs import work_off
from tests.support.services import make_settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from om_core.domain.message import JsonObject
    from om_core.ports import ClaimedJob
    from om_core.services.deps import Services
    from om_core.store.engine import PostgresStore

TEXT = "the blue box goes to the Berlin office on Friday and Maria calls them " * 6
BACKLOG = """
WITH m AS (INSERT INTO memories (tenant_id, scope, scope_key)
           SELECT %s, 'thread', gen_random_uuid()::text FROM generate_series(1, %s) RETURNING id, scope_key),
t AS (INSERT INTO threads (tenant_id, external_id, resource_id, memory_id)
      SELECT %s, scope_key, 'r', id FROM m RETURNING id, memory_id, external_id)
INSERT INTO jobs (tenant_id, kind, queue, target, thread, memory_id, thread_id, run_at)
SELECT %s, 'observe', 'buffering', 'thread:' || id, external_id, memory_id, id,
       clock_timestamp() - %s * interval '1 second' FROM t RETURNING id
"""


def backlog(store: PostgresStore, tenant: str, count: int, *, age: float = 10) -> list[int]:
    """Due jobs of one tenant, each of its own thread; their ids."""
    with store.session("om_app", tenant) as session:
        return [row[0] for row in session.hot(BACKLOG, (tenant, count, tenant, tenant, age))]


def claim(store: PostgresStore, job_id: int | None = None, **limits: Any) -> ClaimedJob | None:
    bound = ClaimLimits(**limits)
    return store.system.claim(queue="buffering", owner="w", lease_s=60, job_id=job_id, limits=bound)


def finish(store: PostgresStore, claimed: ClaimedJob) -> None:
    with store.transaction(claimed.job.tenant_id) as tx:
        assert tx.jobs.finish(claimed.job, FinishedJob(state=JobState.COMPLETED))


def test_a_tenant_never_runs_more_than_its_cap(store: PostgresStore) -> None:
    ids = backlog(store, "one", 10)
    running = [claim(store, job_id, in_flight=3) for job_id in ids]

    held = [claimed for claimed in running if claimed is not None]
    assert [claimed.capped for claimed in held] == [False, False, True]
    finish(store, held[0])
    assert claim(store, in_flight=3) is not None
    assert claim(store, in_flight=3) is None


def test_claims_that_meet_never_pass_the_cap_together(store: PostgresStore) -> None:
    ids = backlog(store, "one", 60)
    found: list[ClaimedJob | None] = []
    start = threading.Barrier(6)

    def work(mine: list[int]) -> None:
        start.wait()
        found.extend(claim(store, job_id, in_flight=5) for job_id in mine)

    threads = [threading.Thread(target=work, args=(ids[n::6],)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len([claimed for claimed in found if claimed is not None]) == 5


def test_a_lease_that_expired_takes_no_slot(store: PostgresStore) -> None:
    backlog(store, "one", 2)
    dead = store.system.claim(queue="buffering", owner="dead", lease_s=-1, limits=ClaimLimits(in_flight=1))
    assert dead is not None

    assert claim(store, in_flight=1) is not None


def test_a_ring_for_a_tenant_at_its_cap_does_the_best_work_of_another(store: PostgresStore) -> None:
    first, second = backlog(store, "one", 2, age=100)
    [other] = backlog(store, "two", 1, age=1)
    assert claim(store, first, in_flight=1) is not None

    found = claim(store, second, in_flight=1)
    assert found is not None
    assert found.job.id == other


def test_the_best_job_is_waited_for_then_of_the_tenant_with_fewest_leases_then_the_oldest(store: PostgresStore) -> None:
    backlog(store, "busy", 3, age=300)
    for tenant, age in (("old", 200), ("young", 100), ("waited", 1)):
        backlog(store, tenant, 1, age=age)
    claim(store, backlog(store, "busy", 1, age=300)[0])
    with store.session("om_app", "waited") as session:
        session.hot("UPDATE jobs SET awaited = true RETURNING id")

    order = [found.job.tenant_id for _ in range(4) if (found := claim(store))]
    assert order == ["waited", "old", "young", "busy"]


def test_a_tenant_with_nine_tenths_of_a_backlog_does_not_starve_the_others(store: PostgresStore) -> None:
    """16 slots; rings come in the order of age, so nearly all of them are for the big tenant."""
    rings = deque(backlog(store, "big", 1_800, age=100))
    small = [f"small{n:02}" for n in range(20)]
    for tenant in small:
        rings.extend(backlog(store, tenant, 10, age=1))
    running: deque[ClaimedJob] = deque()
    done: Counter[str] = Counter()
    last_small = 0
    for n in range(1, 601):
        if len(running) == 16:
            finish(store, running.popleft())
        found = claim(store, rings.popleft())
        assert found is not None
        running.append(found)
        done[found.job.tenant_id] += 1
        last_small = n if found.job.tenant_id != "big" else last_small

    assert {tenant: done[tenant] for tenant in small} == dict.fromkeys(small, 10)
    assert last_small <= 300, "the others' 200 jobs are claimed first, a few of the big tenant's in between"


def buffers(store: PostgresStore) -> int:
    """Pages that choosing the best tenants touches."""
    with system_session(store) as session:
        explain = "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) SELECT * FROM om_due_tenants_v1('buffering', '', 256)"
        [(plan,)] = session.hot(explain)
    return int(plan[0]["Plan"]["Shared Hit Blocks"]) + int(plan[0]["Plan"]["Shared Read Blocks"])


def test_a_claim_costs_the_same_whatever_the_backlog(store: PostgresStore) -> None:
    for n in range(40):
        backlog(store, f"t{n:02}", 25)
    short = buffers(store)
    for n in range(40):
        backlog(store, f"t{n:02}", 475)
    long = buffers(store)

    assert long <= 2 * short, (short, long)
    assert long < 1_500


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
