"""Server-sent events: live, resumable, in order past open transactions, and only the tenant's own (API 4)."""

from __future__ import annotations

import json
import socket
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import httpx
import pytest
import sqlalchemy as sa

from api.routes import events as routes
from om_core.memory import Memory
from om_core.services.keys import create_key, revoke_key
from tests.integration.api_server import ApiClient, api_of, say
from tests.support.fixtures import raw_session
from tests.support.jobs import work_off
from tests.support.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

    from om_core.services.deps import Services

ADD = (
    "INSERT INTO events (tenant_id, thread_id, resource_id, type, payload)"
    " SELECT tenant_id, id, resource_id, 'data-om-activation', CAST(%s AS json) FROM threads WHERE external_id = %s"
)


class Listener:
    """Reads a stream in a thread of its own."""

    def __init__(self, response: httpx.Response) -> None:
        self.seen: list[dict[str, Any]] = []
        self.comments = 0
        self.ended = threading.Event()
        self._response = response
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        event: dict[str, Any] = {}
        try:
            for line in self._response.iter_lines():
                name, _, value = line.partition(": ")
                if line.startswith(":"):
                    self.comments += 1
                elif name == "data":
                    event["data"] = json.loads(value)
                elif name in {"id", "event"}:
                    event[name] = value
                elif not line and event:
                    self.seen.append(event)
                    event = {}
        except httpx.HTTPError:
            pass  # the test closes the stream under the reader
        self.ended.set()

    def numbers(self) -> list[int]:
        return [event["data"]["n"] for event in self.seen]


@contextmanager
def listening(client: ApiClient, path: str, **headers: str) -> Iterator[Listener]:
    with (
        httpx.Client(base_url=client.base_url, timeout=30, headers=dict(client.headers)) as own,
        own.stream("GET", path, headers=headers) as response,
    ):
        assert response.status_code == 200, response.read()
        assert response.headers["content-type"].startswith("text/event-stream")
        listener = Listener(response)
        eventually(lambda: listener.comments > 0, what="the stream is open")
        yield listener


@pytest.fixture
def client(services: Services) -> Iterator[ApiClient]:
    with api_of(services) as opened:
        say(opened, "t", "hello")
        yield opened


def add(services: Services, *numbers: int, thread: str = "t") -> None:
    """Write events, each in a transaction of its own."""
    for n in numbers:
        with raw_session(services.store) as session:
            session.later(ADD, (json.dumps({"n": n}), thread))


def test_work_shows_as_it_happens(services: Services, client: ApiClient) -> None:
    with listening(client, "/v1/threads/t/events") as listener:
        say(client, "t", *[f"On 3 May Maria called about the {n} boxes, which cost {n} euros. " * 4 for n in range(24)])
        work_off(services)
        client.ok("POST", "/v1/threads/t/activate")

        eventually(lambda: "data-om-activation" in {event["event"] for event in listener.seen}, what="an activation")
        kinds = [event["event"] for event in listener.seen]
        stored = Memory(services).events("t", limit=200)
        assert kinds == [row.type for row in stored]
        assert [event["data"] for event in listener.seen] == [row.payload for row in stored]
        assert kinds[0] in {"data-om-buffering-start", "data-om-observation-start"}


def test_a_reader_that_was_away_resumes_without_a_gap_and_without_a_repetition(
    services: Services, client: ApiClient
) -> None:
    with listening(client, "/v1/threads/t/events") as listener:
        add(services, 1, 2)
        eventually(lambda: listener.numbers() == [1, 2])
        last = listener.seen[-1]["id"]
    add(services, *range(3, 260))

    with listening(client, "/v1/threads/t/events", **{"Last-Event-ID": last}) as listener:
        add(services, 260)
        eventually(lambda: len(listener.seen) == 258)
        assert listener.numbers() == list(range(3, 261))


def test_a_stream_without_an_id_begins_now(services: Services, client: ApiClient) -> None:
    add(services, 1)
    with listening(client, "/v1/threads/t/events") as listener:
        add(services, 2)
        eventually(lambda: bool(listener.seen))
        assert listener.numbers() == [2]


def test_a_stream_never_passes_an_open_transaction(services: Services, client: ApiClient) -> None:
    with listening(client, "/v1/threads/t/events") as listener, raw_session(services.store) as older:
        older.later(ADD, (json.dumps({"n": 1}), "t"))
        older.rows(sa.text("SELECT 1"))  # sends it
        add(services, 2)
        later = Memory(services).events("t", last_id="0-0")
        assert later == ()
        assert listener.numbers() == []
    with listening(client, "/v1/threads/t/events", **{"Last-Event-ID": "0-0"}) as listener:
        eventually(lambda: len(listener.seen) == 2)
        assert listener.numbers() == [1, 2]


def test_a_resource_is_followed_across_its_threads_and_no_further(services: Services, client: ApiClient) -> None:
    say(client, "second", "hello")
    say(client, "foreign", "hello", resource="user-2")
    with (
        listening(client, "/v1/events?resource_id=user-1") as one,
        listening(client, "/v1/events") as everything,
        listening(client, "/v1/threads/t/events") as only_t,
    ):
        for n, thread in enumerate(["t", "foreign", "second"]):
            add(services, n, thread=thread)
        eventually(lambda: len(everything.seen) == 3 and len(one.seen) == 2 and len(only_t.seen) == 1)
        assert (one.numbers(), everything.numbers(), only_t.numbers()) == ([0, 2], [0, 1, 2], [0])


def test_an_idle_stream_sends_comments_and_ends_when_its_key_is_revoked(
    services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(routes, "HEARTBEAT_S", 0.1)
    made = create_key(services, "default", name="reader")
    with api_of(services, auth="keys") as client:
        client.headers["Authorization"] = f"Bearer {made.secret}"
        say(client, "t", "hello")
        with listening(client, "/v1/threads/t/events") as listener:
            eventually(lambda: listener.comments > 2, what="comments keep the stream open")
            revoke_key(services, "default", made.row.id)
            assert listener.ended.wait(10)


def test_another_tenant_s_events_are_not_seen(services: Services) -> None:
    with api_of(services, auth="keys") as client:
        for tenant in ("one", "two"):
            client.headers["Authorization"] = f"Bearer {create_key(services, tenant, name='reader').secret}"
            say(client, "t", "hello")
        with listening(client, "/v1/events") as listener:
            for tenant in ("one", "two"):
                with raw_session(services.store, tenant) as session:
                    session.later(ADD, (json.dumps({"n": len(tenant), "tenant": tenant}), "t"))
            eventually(lambda: bool(listener.seen))
            assert [event["data"]["tenant"] for event in listener.seen] == ["two"]


def test_a_reader_that_takes_nothing_is_dropped_and_resumes_without_loss(
    services: Services, client: ApiClient, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "om.api")
    monkeypatch.setattr(routes, "SLOW_READER_S", 0.3)
    with raw_session(services.store) as session:
        for n in range(200):
            session.later(ADD, (json.dumps({"n": n, "text": "x" * 100_000}), "t"))
    host, port = client.base_url.host, client.base_url.port
    with socket.create_connection((host, port)) as slow:
        slow.sendall(b"GET /v1/threads/t/events HTTP/1.1\r\nHost: localhost\r\nLast-Event-ID: 0-0\r\n\r\n")
        assert slow.recv(15) == b"HTTP/1.1 200 OK"
        eventually(lambda: "was dropped" in caplog.text, what="the reader is dropped")

    with listening(client, "/v1/threads/t/events", **{"Last-Event-ID": "0-0"}) as listener:
        eventually(lambda: len(listener.seen) == 200, seconds=30)
        assert listener.numbers() == list(range(200))


@pytest.mark.parametrize(
    "wrong", ["seven", "12", "x-1", "1-x", "-", "99999999999999999999999-1", "1-99999999999999999999"]
)
def test_an_id_that_is_none_is_refused_before_the_stream_begins(client: ApiClient, wrong: str) -> None:
    response = client.get("/v1/threads/t/events", headers={"Last-Event-ID": wrong})
    assert response.status_code == 422
    assert "event id" in response.json()["detail"]


def test_an_unknown_thread_has_no_stream(client: ApiClient) -> None:
    assert client.get("/v1/threads/unknown/events").status_code == 404
