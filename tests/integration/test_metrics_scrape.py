"""Metrics over real HTTP, and what Postgres says in them."""

from __future__ import annotations

import socket
import subprocess
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import httpx
import pytest

from om_core.domain.errors import RetryLaterError
from om_core.memory import Memory
from om_core.services.run_jobs import JobRunner
from om_core.services.sweep import Sweeper
from om_core.store.gauges import read_gauges
from tests.integration.api_server import api_of, say
from tests.integration.test_api_health import postgres_down
from tests.integration.test_stuck_work import Interrupted
from tests.support.fixtures import SMALL, raw_session
from tests.support.jobs import work_off
from tests.support.metrics import counted, samples, value
from tests.support.processes import environment, worker_process
from tests.support.services import conversation, settings_services
from tests.support.waiting import eventually
from workers.dispatch import CeleryDispatcher

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from threading import Event

    from om_core.config import Settings
    from om_core.ports import ModelReply, ModelRequest, QueueGauge
    from om_core.services.deps import Services
    from om_core.store.engine import PostgresStore
    from tests.integration.api_server import ApiClient
    from tests.support.servers import Servers

MODEL = "offline/extractive"
TEXT = "The blue box goes to the Berlin office on Friday and Maria calls them. " * 6
LANE = {"queue": "buffering", "kind": "observe"}


class Away:
    """A model service that is out of order."""

    def complete(self, request: ModelRequest, *, timeout_s: float, cancelled: Event | None) -> ModelReply:
        raise RetryLaterError("the provider is overloaded")

    def window_tokens(self, model: str) -> int | None:
        return None


def scrape(client: ApiClient) -> str:
    response = client.get("/metrics")
    assert response.status_code == 200
    assert response.headers["content-type"].startswith("text/plain")
    return response.text


def lane(store: PostgresStore, queue: str = "buffering") -> QueueGauge:
    [found] = [row for row in store.system.gauges().queues if row.queue == queue]
    return found


def exchange(client: ApiClient, number: int) -> None:
    say(client, "t", f"{number}. {TEXT}", f"{number}, noted. {TEXT}")


def change(services: Services, sql: str) -> None:
    with raw_session(services.store) as session:
        session.hot(sql)


def test_a_step_its_job_and_a_context_are_found_in_the_scrape(services: Services) -> None:
    with api_of(services) as client:
        before = scrape(client)
        exchange(client, 0)
        exchange(client, 1)
        eventually(lambda: value(scrape(client), "om_due_jobs", **LANE) == 1, what="the job is due in a scrape")
        outcomes = work_off(services)
        for number in range(2, 8):
            exchange(client, number)
            outcomes += work_off(services)
        for _ in range(2):
            client.ok("POST", "/v1/threads/t/context", json={})
        assert client.post("/v1/threads/nowhere/context", json={}).status_code == 404
        after = scrape(client)

    def rise(name: str, **labels: str) -> float:
        return value(after, name, **labels) - value(before, name, **labels)

    assert rise("om_turn_duration_seconds_count", operation="append", outcome="ok") == 8
    assert rise("om_turn_duration_seconds_count", operation="context", outcome="ok") == 2
    assert rise("om_turn_duration_seconds_count", operation="context", outcome="refused") == 1
    assert rise("om_attempts_total", kind="observe", outcome="ok") == outcomes.count("ok")
    assert rise("om_due_to_claim_seconds_count", kind="observe") >= 1
    assert rise("om_claim_to_store_seconds_count", kind="observe") >= 1
    assert rise("om_llm_duration_seconds_count", model=MODEL, outcome="ok") >= 1
    assert rise("om_llm_tokens_total", model=MODEL, direction="input") > 0
    assert rise("om_llm_tokens_total", model=MODEL, direction="output") > 0
    assert value(after, "om_llm_inflight", model=MODEL) == 0
    assert rise("om_activation_total", reason="threshold") == 1
    assert rise("om_prefix_tokens_total", state="kept") > 0
    assert rise("om_prefix_tokens_total", state="new") == 0, "the second context is the first"


def test_the_scrape_needs_no_key_and_names_nobody(services: Services) -> None:
    Memory(services, "tenant-secret").append("thread-secret", conversation(12), resource="person-secret")
    work_off(services)
    with api_of(services, auth="keys") as client:
        text = scrape(client)
    assert "om_turn_duration_seconds" in text
    assert "secret" not in text
    assert "TRACE" not in text


def test_with_postgres_down_the_scrape_is_served_and_says_so(services: Services, servers: Servers) -> None:
    with api_of(services) as client:
        say(client, "t", TEXT)
        with postgres_down(servers):
            text = scrape(client)
            assert value(text, "om_database_up") == 0
            assert ("om_workers", frozenset()) not in samples(text)
            assert value(text, "om_turn_duration_seconds_count", operation="append", outcome="ok") >= 1
        eventually(lambda: value(scrape(client), "om_database_up") == 1, what="the database is asked again")


def test_openmetrics_is_spoken_to_who_asks_for_it(services: Services) -> None:
    with api_of(services) as client:
        response = client.get("/metrics", headers={"accept": "application/openmetrics-text; version=1.0.0"})
    assert response.headers["content-type"].startswith("application/openmetrics-text")
    assert response.text.endswith("# EOF\n")


@pytest.mark.report("J08")
def test_depth_and_ages_follow_a_job_through_its_states(services: Services, store: PostgresStore) -> None:
    memory = Memory(services)
    empty = store.system.gauges()
    assert (empty.queues, empty.oldest_pending_age_s, empty.discarded, empty.workers) == ((), 0, {}, 0)

    memory.append("t", conversation(8), resource="r")
    change(services, "UPDATE jobs SET run_at = now() - interval '90 seconds'")
    change(services, "UPDATE threads SET oldest_pending_at = now() - interval '500 seconds'")
    due = lane(store)
    assert (due.due, due.waiting, due.running) == (1, 0, 0)
    assert 90 <= due.oldest_due_age_s < 120
    assert 500 <= store.system.gauges().oldest_pending_age_s < 530

    change(services, "UPDATE jobs SET run_at = now() + interval '1 hour', state = 'retryable'")
    later = lane(store)
    assert (later.due, later.waiting, later.oldest_due_age_s) == (0, 1, 0)
    assert 500 <= store.system.gauges().oldest_pending_age_s < 530, "backoff hides no age"

    change(services, "UPDATE jobs SET run_at = now()")
    assert store.system.claim(queue="buffering", owner="w", lease_s=60) is not None
    held = lane(store)
    assert (held.due, held.waiting, held.running) == (0, 0, 1)
    assert 500 <= store.system.gauges().oldest_pending_age_s < 530

    change(
        services,
        "UPDATE jobs SET state = 'discarded', finished_at = now(), lease_owner = NULL, lease_expires_at = NULL",
    )
    assert store.system.gauges().discarded == {"observe": 1}
    store.system.heartbeat(name="w", queues=["buffering"], slots=7, running=0, version="")
    found = store.system.gauges()
    assert (found.workers, found.slots) == (1, 7)


def test_counting_stops_at_a_bound_and_still_finds_the_oldest(services: Services, store: PostgresStore) -> None:
    memory = Memory(services)
    for number in range(6):
        memory.append(f"t{number}", conversation(8), resource="r")
    change(services, "UPDATE jobs SET run_at = now() - id * interval '1 minute'")
    with store.session("om_system", "") as session:
        [found] = read_gauges(session, most_jobs=4).queues
    assert found.due == 4
    assert found.oldest_due_age_s == pytest.approx(lane(store).oldest_due_age_s, abs=5)


def test_what_a_worker_loses_is_counted_where_it_is_seen(
    services: Services, services_with: Callable[..., Services]
) -> None:
    Memory(services).append("t", conversation(8), resource="r")
    runner = JobRunner(services_with(SMALL, model=Interrupted(services)))
    with counted("om_fence_rejected_total", kind="observe") as refused:
        assert runner.run("buffering") == "lost"
    runner.close()
    assert refused() == 1

    sweeper = Sweeper(services, JobRunner(services), name="w", queues=["buffering"], slots=4, period_s=60)
    change(services, "UPDATE jobs SET lease_expires_at = now() - interval '1 second'")
    with (
        counted("om_lease_expired_total", kind="observe") as expired,
        counted("om_sweep_rescued_total") as rescued,
        counted("om_sweep_rung_total") as rung,
        counted("om_attempts_total", kind="observe", outcome="lease_expired") as attempts,
    ):
        sweeper.sweep_once()
    assert (expired(), rescued(), rung(), attempts()) == (1, 1, 1, 1)


def test_a_lease_that_another_took_is_counted_once_when_it_is_renewed(services: Services) -> None:
    Memory(services).append("t", conversation(8), resource="r")
    runner = JobRunner(services)
    claimed = services.store.system.claim(queue="buffering", owner=services.owner, lease_s=60)
    assert claimed is not None
    cancelled = runner.leases.hold(claimed.job)
    change(services, "UPDATE jobs SET attempt = attempt + 1, lease_owner = 'other'")
    with counted("om_lease_lost_total") as lost:
        runner.leases.renew_once()
        runner.leases.renew_once()
    runner.close()
    assert cancelled.is_set()
    assert lost() == 1


def test_calls_of_a_model_that_is_away_are_counted_by_their_policy(services_with: Callable[..., Services]) -> None:
    services = services_with(SMALL, model=Away())
    Memory(services).append("t", conversation(8), resource="r")
    runner = JobRunner(services)
    with (
        counted("om_llm_duration_seconds_count", model=MODEL, outcome="retry_later") as calls,
        counted("om_attempts_total", kind="observe", outcome="retry_later") as attempts,
    ):
        runner.run("buffering")
    runner.close()
    assert (calls(), attempts()) == (1, 1)


def test_a_context_that_waits_in_vain_is_a_blocked_turn(services_with: Callable[..., Services]) -> None:
    options = {**SMALL, "observation": {**SMALL["observation"], "buffer_tokens": 0.9, "block_timeout": 50}}
    services = services_with(options)
    memory = Memory(services)
    memory.append("t", conversation(24), resource="r")
    services.store.system.heartbeat(name="w", queues=["observation"], slots=1, running=0, version="")
    with (
        counted("om_turn_wait_seconds_count", outcome="timeout") as blocked,
        counted("om_turn_wait_seconds_sum", outcome="timeout") as seconds,
    ):
        memory.context("t")
        memory.context("t")
    assert blocked() == 1
    assert seconds() >= 0.05


def test_a_broker_that_is_away_is_counted() -> None:
    dispatcher = CeleryDispatcher("redis://127.0.0.1:1/0", pauses_s=(60.0, 60.0))
    with counted("om_doorbell_publish_failures_total") as failures:
        dispatcher._broke(ConnectionError("away"), lost=1)
    dispatcher.close()
    assert failures() == 1


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_a_worker_serves_its_own_metrics_on_the_port_it_is_given(settings: Settings, tmp_path: Path) -> None:
    port = free_port()
    ports = {"OM_METRICS_PORT": str(port), "OTEL_TRACES_EXPORTER": "console"}
    with (
        worker_process(replace(settings, sweep_s=0.3), tmp_path, **ports) as worker,
        settings_services(settings) as services,
    ):
        Memory(services).append("t", conversation(8), resource="r")

        def text() -> str:
            return httpx.get(f"http://127.0.0.1:{port}/metrics", timeout=10).text

        worker.eventually(lambda: value(text(), "om_attempts_total", kind="observe", outcome="ok") == 1)
        found = text()
        assert value(found, "om_workers") == 1
        assert value(found, "om_worker_slots") == settings.worker_concurrency
        assert value(found, "om_llm_duration_seconds_count", model=MODEL, outcome="ok") >= 1
        assert value(found, "om_turn_duration_seconds_count", operation="append", outcome="ok") == 0
        second = subprocess.run(
            [sys.executable, "-m", "workers"],
            env=environment(settings, **ports),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert second.returncode == 2
        assert f"127.0.0.1:{port}" in second.stderr and "OM_METRICS_PORT" in second.stderr
        assert worker.stop() == 0
        assert '"name": "om observe"' in worker.output
        assert '"name": "chat extractive"' in worker.output
        assert "TRACE-1" not in worker.output
