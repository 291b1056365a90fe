"""`MemoryClient` and `AsyncMemoryClient`: the methods of `Memory`, over real HTTP, also when the network fails (API 5)."""

from __future__ import annotations

import asyncio
import inspect
from itertools import islice
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from om_core import AsyncMemoryClient, MemoryClient
from om_core.client import ApiError
from om_core.domain.errors import AmbiguousThreadError, ConflictError, InvalidInputError, NotFoundError, RetryLaterError
from om_core.memory import Memory
from om_core.services.keys import create_key
from tests.integration.api_server import ApiClient, api_of
from tests.support.jobs import work_off

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from om_core.services.deps import Services

HERE_ONLY = {"open", "for_tenant", "store", "context_async", "services", "tenant", "retry_discarded", "within"}
"""Of `Memory`: what belongs to a process with a database."""
TALK = "On 3 May 2026 Maria asked the Berlin office to send {n} blue boxes, which cost {n} euros each. "


def methods(kind: type) -> dict[str, Any]:
    return {
        name: value
        for name, value in inspect.getmembers(kind, callable)
        if not name.startswith("_") and not inspect.isclass(value)
    }


@pytest.fixture
def api(services: Services) -> Iterator[ApiClient]:
    with api_of(services) as opened:
        yield opened


@pytest.fixture
def client(api: ApiClient) -> Iterator[MemoryClient]:
    with MemoryClient(str(api.base_url)) as opened:
        yield opened


def ask_async(api: ApiClient, use: Callable[[AsyncMemoryClient], Any]) -> Any:
    async def run() -> Any:
        async with AsyncMemoryClient(str(api.base_url)) as client:
            return await use(client)

    return asyncio.run(run())


@pytest.mark.conforms("10.1")
def test_the_clients_have_the_methods_of_memory() -> None:
    assert set(methods(Memory)) - HERE_ONLY <= set(methods(MemoryClient))
    assert set(methods(MemoryClient)) == set(methods(AsyncMemoryClient))
    for name, method in methods(MemoryClient).items():
        other = methods(AsyncMemoryClient)[name]
        assert [*inspect.signature(method).parameters] == [*inspect.signature(other).parameters], name
        assert inspect.getdoc(method), name


def test_a_turn_over_http_stores_and_reads_as_memory_itself_does(services: Services, client: MemoryClient) -> None:
    memory = Memory(services)
    for place, thread in ((client, "over-http"), (memory, "in-process")):
        with place.turn(thread, "r", model="openai/gpt-5-mini") as turn:
            first = turn.start([{"role": "user", "content": "My favourite colour is blue."}])
            assert first.to_openai()[-1]["content"] == "My favourite colour is blue."
            last = turn.step([{"role": "assistant", "content": "Noted."}])
        assert turn.context is last
    over_http, in_process = (memory.context(thread, resource="r") for thread in ("over-http", "in-process"))
    assert over_http.to_openai() == in_process.to_openai()
    assert client.context("over-http", resource="r").to_anthropic() == in_process.to_anthropic()
    rows = memory.messages("over-http", resource="r")
    assert len({row.turn for row in rows}) == 1
    client.append("over-http", [{"role": "user", "content": "next"}], resource="r")
    assert memory.messages("over-http", resource="r")[-1].turn > rows[0].turn


def test_every_reading_and_working_method_answers(services: Services, client: MemoryClient) -> None:
    client.put_thread("t", resource="r", title="Boxes")
    for n in range(30):
        client.append("t", [{"role": "user", "content": 3 * TALK.format(n=n)}], resource="r", format="openai")
    work_off(services)
    assert client.activate("t", resource="r")["activated"]["chunks"] >= 1
    assert client.get_thread("t")["title"] == "Boxes"
    assert [item["id"] for item in client.threads(resource="r")["items"]] == ["t"]
    assert client.status("t")["head_seq"] == 30
    page = client.messages("t", limit=20)
    assert [item["seq"] for item in page["items"]] == list(range(1, 21))
    assert len(client.messages("t", limit=20, cursor=page["next_cursor"])["items"]) == 10
    assert client.observations("t", state="all")["items"][0]["from_seq"] == 1
    assert client.reflections("t")["items"] == []
    asked = client.observe("t", wait_s=0)
    job = client.jobs(thread="t")["items"][0]
    assert client.job(job["id"]) == job
    assert client.reflect("t", guidance="keep prices")["job"] is not None
    if asked["job"]:
        assert client.cancel_job(asked["job"])["state"] == "cancelled"
    with pytest.raises(ConflictError):
        client.retry_job(job["id"])
    assert client.flush("t", wait_s=0)["observe"] is not None
    assert client.set_working_memory("# About me", resource="r", version=0)["version"] == 1
    assert client.working_memory(resource="r")["content"] == "# About me"
    assert client.clone("t", "fork", resource="r", to_resource="other", to_seq=3)["resource_id"] == "other"
    assert client.tools() == Memory(services).tools()
    assert client.working_memory("t", resource="r")["format"] == "markdown"


def test_the_asynchronous_client_does_the_same(api: ApiClient) -> None:
    async def use(client: AsyncMemoryClient) -> Any:
        async with client.turn("t", "r") as turn:
            await turn.start([{"role": "user", "content": "hello"}])
            await turn.step([{"role": "assistant", "content": "hi"}])
        found = await asyncio.gather(*(client.status("t") for _ in range(20)))
        with pytest.raises(NotFoundError):
            await client.get_thread("unknown")
        return [status["head_seq"] for status in found], (await client.messages("t"))["items"]

    heads, items = ask_async(api, use)
    assert heads == [2] * 20
    assert [item["role"] for item in items] == ["user", "assistant"]


class Flaky(httpx.BaseTransport):
    """A network that fails so many times: before the request arrives, or after it was answered."""

    def __init__(self, failures: int, *, after: bool) -> None:
        self._real = httpx.HTTPTransport()
        self._left = failures
        self._after = after
        self.requests = 0

    def close(self) -> None:
        self._real.close()

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        self.requests += 1
        fails, self._left = self._left > 0, self._left - 1
        if fails and not self._after:
            raise httpx.ConnectError("no route")
        response = self._real.handle_request(request)
        if fails:
            response.read()
            raise httpx.ReadError("cut off")
        return response


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("om_core.client.transport.FIRST_PAUSE_S", 0.01)


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.usefixtures("quick")
def test_a_cut_connection_costs_no_message_and_stores_none_twice(
    services: Services, api: ApiClient, after: bool
) -> None:
    network = Flaky(2, after=after)
    with httpx.Client(transport=network) as http:
        client = MemoryClient(str(api.base_url), http=http)
        client.append("t", [{"role": "user", "content": "once"}], resource="r")
        network._left = 2
        with client.turn("t", "r") as turn:
            turn.start([{"role": "user", "content": "once more"}])
    texts = [row.message.parts[0].text for row in Memory(services).messages("t", resource="r")]  # type: ignore[union-attr]  # texts
    assert texts == ["once", "once more"]
    assert network.requests == 7


@pytest.mark.usefixtures("quick")
def test_an_api_that_stays_away_is_an_error_that_says_so(api: ApiClient) -> None:
    network = Flaky(100, after=False)
    with httpx.Client(transport=network) as http:
        client = MemoryClient(str(api.base_url), http=http)
        with pytest.raises(RetryLaterError, match="does not answer: ConnectError"):
            client.status("t")
    assert network.requests == 4


def answering(status: int, headers: dict[str, str]) -> tuple[MemoryClient, list[int]]:
    seen: list[int] = []

    def handle(request: httpx.Request) -> httpx.Response:
        seen.append(status)
        return httpx.Response(status, headers=headers, json={"code": "x", "detail": "later"})

    return MemoryClient("http://api", http=httpx.Client(transport=httpx.MockTransport(handle))), seen


@pytest.mark.parametrize(
    ("status", "headers", "attempts"),
    [
        (503, {}, 4),
        (429, {"Retry-After": "0"}, 4),
        (503, {"Retry-After": "3600"}, 1),
        (500, {}, 1),
        (422, {}, 1),
        (502, {"Retry-After": "soon"}, 4),
    ],
)
@pytest.mark.usefixtures("quick")
def test_what_may_pass_is_tried_again_and_nothing_else(status: int, headers: dict[str, str], attempts: int) -> None:
    client, seen = answering(status, headers)
    with pytest.raises(ApiError) as refused:
        client.status("t")
    assert (len(seen), refused.value.status) == (attempts, status)


def test_errors_have_the_classes_of_memory(client: MemoryClient) -> None:
    for resource in ("r1", "r2"):
        client.append("t", [{"role": "user", "content": "x", "id": "m1"}], resource=resource, format="openai")
    with pytest.raises(AmbiguousThreadError):
        client.get_thread("t")
    with pytest.raises(NotFoundError):
        client.context("unknown")
    with pytest.raises(ConflictError):
        client.append("t", [{"id": "m1", "role": "user", "content": "other"}], resource="r1")
    with pytest.raises(InvalidInputError) as wrong:
        client.append("t", [{"role": "wizard", "content": "x"}], resource="r1")
    assert wrong.value.path == "messages.0.role"
    with pytest.raises(InvalidInputError) as wrong:
        client.threads(limit=1_000)
    assert wrong.value.path == "limit"


def test_a_key_opens_the_api(services: Services) -> None:
    with api_of(services, auth="keys") as api:
        with MemoryClient(str(api.base_url)) as client, pytest.raises(ApiError, match="unauthorized"):
            client.threads()
        with MemoryClient(str(api.base_url), create_key(services, "default", name="k").secret) as client:
            assert client.threads()["items"] == []


@pytest.mark.usefixtures("quick")
def test_events_go_on_after_a_broken_connection(services: Services, api: ApiClient, client: MemoryClient) -> None:
    memory = Memory(services)
    for n in range(30):
        client.append("t", [{"role": "user", "content": 3 * TALK.format(n=n)}], resource="r")
    work_off(services)
    stored = memory.events("t", limit=200)

    class Cutting(httpx.BaseTransport):
        """Ends every stream after 400 bytes."""

        def handle_request(self, request: httpx.Request) -> httpx.Response:
            response = real.handle_request(request)

            def some() -> Iterator[bytes]:
                size = 0
                for piece in response.iter_raw():
                    size += len(piece)
                    yield piece
                    if size > 400:
                        response.close()
                        raise httpx.ReadError("cut off")

            return httpx.Response(response.status_code, headers=response.headers, content=some())

    with httpx.HTTPTransport() as real, httpx.Client(transport=Cutting()) as http:
        cut = MemoryClient(str(api.base_url), http=http)
        seen = list(islice(cut.events("t", last_id="0-0"), len(stored)))
    assert [(event.id, event.type, event.data) for event in seen] == [(row.id, row.type, row.payload) for row in stored]
    with pytest.raises(NotFoundError):
        next(iter(client.events("unknown")))
