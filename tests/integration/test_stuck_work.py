"""What must not stop the rest: a broken connection, a bad thread, an answer nobody can use, a setting since corrected."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest
import sqlalchemy as sa

from om_core.domain.errors import SetupError
from om_core.llm.registry import ModelRegistry
from om_core.memory import Memory
from om_core.services.leases import LeaseKeeper
from om_core.services.run_jobs import JobRunner
from om_core.services.sweep import Sweeper
from om_core.store.engine import PostgresStore
from om_core.testing.scripted_replies import answer_reply
from om_core.testing.scripted_server import Reply, ScriptedModelServer
from tests.integration.test_pipeline import settle, talk
from tests.integration.test_races import active_chunk, run_one
from tests.integration.test_sweep import Bell, idle, shift
from tests.support.fixtures import COUNTER, SMALL
from tests.support.jobs import QUEUES

if TYPE_CHECKING:
    from collections.abc import Callable
    from threading import Event

    from om_core.ports import ModelReply, ModelRequest
    from om_core.services.deps import Services
    from tests.support.servers import Servers


@pytest.fixture
def narrow_store(database_url: str) -> object:
    """A store with a single connection: what one transaction leaves behind, the next one finds."""
    opened = PostgresStore(database_url, pool_size=1)
    yield opened
    opened.close()


def test_a_transaction_that_cannot_open_leaves_nothing_open(narrow_store: PostgresStore) -> None:
    with pytest.raises(Exception, match="nobody"), narrow_store.session("nobody", "") as session:
        session.execute(sa.text("SELECT 1"))

    with narrow_store.transaction("default") as tx:
        assert tx.threads.get("r", "t") is None


def test_connections_that_the_server_closed_are_replaced_unnoticed(
    services: Services, store: PostgresStore, servers: Servers
) -> None:
    memory = Memory(services)
    opened = [store.engine.connect() for _ in range(4)]
    for connection in opened:
        connection.close()
    servers.run("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'om'")

    memory.append("t", [{"role": "user", "content": "hello"}], resource="r")

    assert memory.get_thread("t", resource="r").head_seq == 1


def test_a_connection_that_breaks_within_a_transaction_is_not_replaced(store: PostgresStore, servers: Servers) -> None:
    """What was read before the break is void: the transaction fails as a whole."""
    with pytest.raises(Exception, match=r"terminat|closed"), store.transaction("default") as tx:  # noqa: PT012 - both belong to it
        tx.threads.get("r", "t")
        servers.run("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'om'")
        tx.threads.get("r", "t")


@pytest.mark.report("J23")
def test_a_thread_that_cannot_be_woken_does_not_stop_the_sweep(services_with: Callable[..., Services]) -> None:
    bell = Bell()
    services = services_with(dispatcher=bell)
    memory = Memory(services)
    memory.append("bad", [{"role": "user", "content": "hello"}], resource="r")
    shift(services, "UPDATE threads SET open_calls = '[5]'")
    idle(services, 4000)
    talk(memory, "t", 10)
    bell.rung.clear()
    sweeper = Sweeper(services, JobRunner(services), name="w", queues=QUEUES, slots=4, period_s=60)

    found = sweeper.sweep_once()

    assert (found.woken, found.rung) == (0, 1)


def test_an_idle_thread_that_cannot_move_is_looked_at_ever_more_rarely(services_with: Callable[..., Services]) -> None:
    services = services_with({**SMALL, "activate_after_idle": "5m"})
    memory = Memory(services)
    sweeper = Sweeper(services, JobRunner(services), name="w", queues=QUEUES, slots=4, period_s=60)
    talk(memory, "t", 2)
    memory.observe("t", resource="r")
    settle(memory)
    pauses = []
    for days in (1, 10):
        shift(services, "UPDATE threads SET last_activity_at = clock_timestamp() - %s * interval '1 day'", days)
        shift(services, "UPDATE threads SET idle_due_at = clock_timestamp()")
        sweeper.sweep_once()
        due = memory.get_thread("t", resource="r").idle_due_at
        assert due is not None
        pauses.append((due - datetime.now(UTC)).total_seconds())

    assert pauses[0] > 3600
    assert pauses[1] > 5 * pauses[0]


def test_a_step_brings_the_next_look_of_a_resting_thread_forward(services_with: Callable[..., Services]) -> None:
    memory = Memory(services_with({**SMALL, "activate_after_idle": "5m"}))
    talk(memory, "t", 1)
    shift(memory.services, "UPDATE threads SET idle_due_at = clock_timestamp() + interval '10 days'")

    talk(memory, "t", 1, start=1)

    due = memory.get_thread("t", resource="r").idle_due_at
    assert due is not None
    assert (due - datetime.now(UTC)).total_seconds() <= 300


@pytest.mark.report("F02")
def test_an_unusable_reflection_is_asked_for_again_and_paid_for_once(services_with: Callable[..., Services]) -> None:
    broken = False

    def script(request: dict[str, object], _: int) -> Reply:
        return Reply(text="I'm sorry, I can't help." if broken else answer_reply(request))

    with ScriptedModelServer(script) as server:
        model = ModelRegistry(count_tokens=COUNTER.count_text, api_base=server.base_url, api_key="none")
        services = services_with({**SMALL, "model": "openai/scripted", "job": {"backoff_base": 1}}, model=model)
        memory = Memory(services)
        active_chunk(memory)
        broken = True
        job_id = memory.reflect("t", resource="r")["job"]
        calls = []
        for _ in range(2):
            before = len(server.calls)
            shift(services, "UPDATE jobs SET run_at = clock_timestamp() WHERE state = 'retryable'")
            assert run_one(services, "reflection") == "unusable"
            calls.append(len(server.calls) - before)

    assert calls[0] == calls[1] > 0
    attempts = memory.job(job_id)["attempts"]
    assert attempts[0]["input_tokens"] == attempts[1]["input_tokens"] > 0


class Choosy:
    """Knows one model name only."""

    def __init__(self, services: Services, known: str) -> None:
        self._model = services.model
        self._known = known

    def complete(self, request: ModelRequest, *, timeout_s: float, cancelled: Event | None = None) -> ModelReply:
        if request.model != self._known:
            raise SetupError(f"unknown model {request.model}")
        return self._model.complete(request, timeout_s=timeout_s, cancelled=cancelled)

    def window_tokens(self, model: str) -> int | None:
        return None


@pytest.mark.parametrize("queue", ["buffering"])
def test_a_model_name_that_was_wrong_is_taken_anew_once_it_is_corrected(
    services: Services, services_with: Callable[..., Services], queue: str
) -> None:
    choosy = Choosy(services, "offline/extractive")
    wrong = services_with({**SMALL, "model": "offline/extractiv"}, model=choosy)
    talk(Memory(wrong), "t", 10)
    assert run_one(wrong, queue) == "retry_later"
    right = services_with(SMALL, model=choosy)

    outcomes = []
    for _ in range(2):
        shift(right, "UPDATE jobs SET run_at = clock_timestamp() WHERE state = 'retryable'")
        outcomes.append(run_one(right, queue))

    assert outcomes == ["retry_later", "ok"]


def test_a_second_claim_of_a_job_stops_the_call_of_the_first(services: Services) -> None:
    talk(Memory(services), "t", 10)
    keeper = LeaseKeeper(services)
    first = services.store.system.claim(queue="buffering", owner=services.owner, lease_s=60)
    assert first is not None
    lost = keeper.hold(first.job)
    shift(services, "UPDATE jobs SET state = 'retryable', lease_owner = NULL, lease_expires_at = NULL")
    second = services.store.system.claim(queue="buffering", owner=services.owner, lease_s=60)
    assert second is not None
    held = keeper.hold(second.job)
    keeper.stop()

    assert lost.is_set()
    assert not held.is_set()


def test_the_clock_of_a_client_does_not_put_off_an_activation(services_with: Callable[..., Services]) -> None:
    services = services_with({**SMALL, "activate_after_idle": "5m"})
    memory = Memory(services)
    talk(memory, "t", 10)
    settle(memory)
    talk(memory, "t", 4, start=10)
    shift(services, "UPDATE threads SET last_activity_at = clock_timestamp() - interval '1 hour'")

    found = memory.context("t", resource="r", now=datetime(2020, 1, 1, tzinfo=UTC))

    assert found.activated is not None
    assert found.activated.reason == "ttl"


class Interrupted:
    """The offline model; while it answers, somebody else takes the job over."""

    def __init__(self, services: Services) -> None:
        self._services = services

    def complete(self, request: ModelRequest, *, timeout_s: float, cancelled: Event | None) -> ModelReply:
        shift(self._services, "UPDATE jobs SET attempt = attempt + 1, lease_owner = 'other' WHERE state = 'running'")
        return self._services.model.complete(request, timeout_s=timeout_s, cancelled=cancelled)

    def window_tokens(self, model: str) -> int | None:
        return self._services.model.window_tokens(model)


def test_the_cost_of_a_dropped_result_is_booked(
    services: Services, store: PostgresStore, services_with: Callable[..., Services]
) -> None:
    talk(Memory(services), "t", 10)

    assert run_one(services_with(SMALL, model=Interrupted(services)), "buffering") == "lost"

    with store.session("om_app", "default") as session:
        [row] = session.rows(sa.text("SELECT kind, calls, input_tokens FROM usage"))
    assert (row["kind"], row["calls"]) == ("observe", 1)
    assert row["input_tokens"] > 0
