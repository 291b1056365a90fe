"""Work asked for by hand, waited for over HTTP: with a worker, without one, and many at once."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from api.app import create_app
from om_core.domain.job import JobState
from om_core.ports import FinishedJob
from om_core.services.local import LocalDispatcher, LocalWorker
from tests.integration.api_server import ApiClient, api_of, say, serving
from tests.support.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from om_core.services.deps import Services

TALK = "We agreed on 3 May 2026 that Maria calls the Berlin office about the {n} boxes, and that they cost {n} euros. "


@pytest.fixture
def worked(services_with: Callable[..., Services]) -> Iterator[ApiClient]:
    """An API with a worker beside it."""
    dispatcher = LocalDispatcher()
    services = services_with(None, dispatcher=dispatcher)
    worker = LocalWorker(services, dispatcher, period_s=0.5)
    worker.start()
    with api_of(services) as client:
        yield client
    worker.stop()


def fill(client: ApiClient, count: int = 24) -> None:
    say(client, "t", *[f"{n}: " + TALK.format(n=n) for n in range(count)])


@pytest.mark.conforms("4.10")
def test_observe_with_a_wait_answers_with_the_finished_job(worked: ApiClient) -> None:
    say(worked, "t", "I moved to Lisbon in May 2026.", "Noted.")

    found = worked.ok("POST", "/v1/threads/t/observe", json={"wait_s": 20})

    assert (found["state"], found["result"]["state"], found["result"]["kind"]) == ("completed", "completed", "observe")
    assert len(worked.ok("GET", "/v1/threads/t/observations", params={"state": "buffered"})["items"]) == 1


@pytest.mark.conforms("10.1")
@pytest.mark.report("A06")
def test_flush_observes_everything_pending_and_activates_it(worked: ApiClient) -> None:
    fill(worked)

    found = worked.ok("POST", "/v1/threads/t/flush", json={"wait_s": 20})

    assert found["activated"]["chunks"] >= 1
    thread = worked.ok("GET", "/v1/threads/t")
    assert (thread["observed_seq"], thread["pending_tokens"]) == (thread["head_seq"], 0)
    again = worked.ok("POST", "/v1/threads/t/flush", json={"wait_s": 20})
    assert (again["activated"], again["observe"]["job"]) == (None, None)


@pytest.mark.conforms("10.1")
def test_reflect_with_a_wait_makes_a_generation(worked: ApiClient) -> None:
    for start in (0, 8, 16, 24):
        say(worked, "t", *[f"{n}: " + TALK.format(n=n) for n in range(start, start + 8)])
        worked.ok("POST", "/v1/threads/t/flush", json={"wait_s": 20})

    found = worked.ok("POST", "/v1/threads/t/reflect", json={"wait_s": 20, "guidance": "Keep the prices."})

    assert found["state"] == "completed"
    assert [item["generation"] for item in worked.ok("GET", "/v1/threads/t/reflections")["items"]] == [1]


@pytest.mark.report("A03")
def test_a_context_above_the_wait_threshold_comes_back_with_what_the_observer_noted(worked: ApiClient) -> None:
    body = {"resource_id": "user-1", "format": "openai", "context": {"format": "openai"}}
    messages = [{"role": "user", "content": f"{n}: " + TALK.format(n=n) * 3} for n in range(30)]

    found = worked.ok("POST", "/v1/threads/t/messages", json={**body, "messages": messages})

    assert found["context"]["activated"]["chunks"] >= 1, "at once or after a wait, as the worker's pace has it"
    assert not found["context"]["over_budget"]


def test_without_a_worker_a_wait_ends_with_the_job_as_it_stands(services: Services) -> None:
    with api_of(services) as client:
        say(client, "t", "Hello.", "Hello.")

        found = client.ok("POST", "/v1/threads/t/observe", json={"wait_s": 0.2})

        assert (found["state"], found["result"]["id"]) == ("available", found["job"])


@pytest.mark.report("K05")
@pytest.mark.parametrize(("end", "status", "code"), [("cancelled", 409, "conflict"), ("discarded", 422, "give_up")])
def test_an_awaited_job_that_fails_is_an_error(services: Services, end: str, status: int, code: str) -> None:
    app = create_app(services, auth="off")
    with serving(app) as client, ThreadPoolExecutor(1) as pool:
        say(client, "t", "Hello.", "Hello.")
        waiting = pool.submit(client.post, "/v1/threads/t/observe", json={"wait_s": 20})
        eventually(lambda: waiters(app) == 1, what="the request waits")

        if end == "cancelled":
            [job] = client.ok("GET", "/v1/jobs")["items"]
            client.ok("POST", f"/v1/jobs/{job['id']}/cancel")
        else:
            give_up(services)

        body = waiting.result(timeout=20).json()
        assert (body["status"], body["code"]) == (status, code)
        assert ("three refusals" in body["detail"]) == (end == "discarded")


def give_up(services: Services) -> None:
    """End the job as a worker that has no attempts left."""
    claimed = services.store.system.claim(queue="buffering", owner="test", lease_s=30)
    assert claimed is not None
    with services.store.transaction("default") as tx:
        error = {"code": "unusable_output", "message": "three refusals"}
        assert tx.jobs.finish(claimed.job, FinishedJob(state=JobState.DISCARDED, error=error, failed=True))


def waiters(app: Any) -> int:
    return sum(len(futures) for futures in app.state.om.waiter._waiting.values())


@pytest.mark.report("J18")
def test_many_waiting_requests_hold_no_thread_and_no_connection(services: Services) -> None:
    """60 wait, more than the pool has threads (40) or connections (8), and others are answered meanwhile."""
    app = create_app(services, auth="off")
    with serving(app) as client:
        say(client, "t", "Hello.", "Hello.")

        async def wait_all() -> list[int]:
            limits = httpx.Limits(max_connections=80)
            async with httpx.AsyncClient(base_url=client.base_url, timeout=60, limits=limits) as crowd:
                asked = [crowd.post("/v1/threads/t/observe", json={"wait_s": 40}) for _ in range(60)]
                return [response.status_code for response in await asyncio.gather(*asked)]

        with ThreadPoolExecutor(1) as pool:
            crowd = pool.submit(lambda: asyncio.run(wait_all()))
            eventually(lambda: waiters(app) == 60, what="60 requests wait")

            [job] = client.ok("GET", "/v1/jobs", timeout=5)["items"]
            client.ok("GET", "/v1/threads/t/status", timeout=5)
            client.ok("POST", f"/v1/jobs/{job['id']}/cancel", timeout=5)

            assert crowd.result(timeout=30) == [409] * 60
