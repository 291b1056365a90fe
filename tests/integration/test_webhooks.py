"""Webhooks: signed, in order, at least once, with a log; never to addresses inside (API 3)."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import socket
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import pytest

from om_core.domain.errors import InvalidInputError, RetryLaterError
from om_core.memory import Memory
from om_core.outgoing import PublicSender, is_public
from om_core.services.webhook_loop import WebhookLoop
from om_core.services.webhooks import MOST, check_url, signed
from tests.integration.api_server import ApiClient, api_of, say
from tests.integration.test_api_events import add
from tests.integration.test_sweep import shift
from tests.support.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from om_core.services.deps import Services

ALL_DUE = "UPDATE webhooks SET due_at = clock_timestamp()"


class Receiver:
    """A server that keeps what it gets; `answers` are the statuses of the next requests, then 200."""

    def __init__(self) -> None:
        self.got: list[tuple[dict[str, str], bytes]] = []
        self.answers: list[int] = []
        self.before: Callable[[], None] = lambda: None
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                receiver.before()
                receiver.got.append(({name.lower(): value for name, value in self.headers.items()}, body))
                status = receiver.answers.pop(0) if receiver.answers else 200
                self.send_response(status)
                if status == 302:
                    self.send_header("Location", "/elsewhere")
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}/om?x=1"

    def numbers(self) -> list[int]:
        return [json.loads(body)["data"]["n"] for _, body in self.got]

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    opened = Receiver()
    yield opened
    opened.close()


@pytest.fixture
def client(services: Services) -> Iterator[ApiClient]:
    with api_of(services) as opened:
        say(opened, "t", "hello")
        yield opened


@contextmanager
def loop_of(services: Services, *, private: bool = True) -> Iterator[WebhookLoop]:
    loop = WebhookLoop(services, period_s=0.1, allow_private=private)
    try:
        yield loop
    finally:
        loop.stop()


def create(client: ApiClient, receiver: Receiver, **body: Any) -> dict[str, Any]:
    made: dict[str, Any] = client.ok("POST", "/v1/webhooks", json={"url": receiver.url, **body})
    return made


def test_events_arrive_in_order_signed_and_once(services: Services, client: ApiClient, receiver: Receiver) -> None:
    add(services, 0)
    made = create(client, receiver)
    add(services, *range(1, 8))
    with loop_of(services) as loop:
        assert loop.deliver_once() == 7
        assert loop.deliver_once() == 0
    assert receiver.numbers() == list(range(1, 8))
    key = base64.b64decode(made["secret"].removeprefix("whsec_"))
    for headers, body in receiver.got:
        text = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
        expected = base64.b64encode(hmac.new(key, text, hashlib.sha256).digest()).decode()
        assert headers["webhook-signature"] == f"v1,{expected}"
        assert headers["content-type"] == "application/json"
    assert [headers["webhook-id"] for headers, _ in receiver.got] == [
        row.id for row in Memory(services).events("t", limit=7)
    ]
    log = client.ok("GET", f"/v1/webhooks/{made['id']}/deliveries")["items"]
    assert [(item["status"], item["error"], item["attempt"]) for item in log] == [(200, None, 1)] * 7


def test_the_signature_is_that_of_the_specification() -> None:
    headers = signed("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, BODY)
    assert headers["webhook-signature"] == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


BODY = b'{"test": 2432232314}'


@pytest.mark.parametrize("answer", [500, 302, 404, 199 + 200])
def test_what_was_not_taken_is_sent_again_later_and_nothing_passes_it(
    services: Services, client: ApiClient, receiver: Receiver, answer: int
) -> None:
    made = create(client, receiver)
    add(services, 1, 2)
    receiver.answers = [answer, answer]
    with loop_of(services) as loop:
        assert loop.deliver_once() == 0
        assert loop.deliver_once() == 0  # not due yet
        [found] = client.ok("GET", "/v1/webhooks")["items"]
        assert (found["failures"], found["last_error"]) == (1, f"the receiver answered {answer}")
        shift(services, ALL_DUE)
        assert loop.deliver_once() == 0
        shift(services, ALL_DUE)
        assert loop.deliver_once() == 2
    assert receiver.numbers() == [1, 1, 1, 2]
    log = client.ok("GET", f"/v1/webhooks/{made['id']}/deliveries")["items"]
    assert [(item["status"], item["attempt"]) for item in log] == [(200, 1), (200, 3), (answer, 2), (answer, 1)]
    assert client.ok("GET", "/v1/webhooks")["items"][0]["failures"] == 0


def test_a_receiver_that_is_away_is_tried_again(services: Services, client: ApiClient, receiver: Receiver) -> None:
    create(client, receiver)
    receiver.close()
    add(services, 1)
    with loop_of(services) as loop:
        assert loop.deliver_once() == 0
    assert client.ok("GET", "/v1/webhooks")["items"][0]["last_error"] == "no answer: ConnectError"


def test_only_the_types_and_the_resource_that_were_asked_for_are_sent(
    services: Services, client: ApiClient, receiver: Receiver
) -> None:
    say(client, "other", "hello", resource="user-2")
    create(client, receiver, resource_id="user-2")
    create(client, receiver, types=["data-om-thread-update"])
    add(services, 1)
    add(services, 2, thread="other")
    with loop_of(services) as loop:
        assert loop.deliver_once() == 1
        assert receiver.numbers() == [2]
        assert loop.deliver_once() == 0


def test_another_tenant_s_events_are_not_sent(services: Services, client: ApiClient, receiver: Receiver) -> None:
    create(client, receiver)
    Memory(services, "theirs").append("t", [{"role": "user", "content": "x"}], resource="r")
    with services.store.session("om_app", "theirs") as session:  # type: ignore[attr-defined]  # the real store
        session.later(
            "INSERT INTO events (tenant_id, thread_id, resource_id, type)"
            " SELECT tenant_id, id, resource_id, 'data-om-activation' FROM threads",
            (),
        )
    with loop_of(services) as loop:
        assert loop.deliver_once() == 0
    assert receiver.got == []


def test_two_workers_send_one_webhook_s_events_once(services: Services, client: ApiClient, receiver: Receiver) -> None:
    create(client, receiver)
    add(services, *range(30))
    with loop_of(services) as one, loop_of(services) as two:
        one.start()
        two.start()
        eventually(lambda: len(receiver.got) >= 30)
    assert receiver.numbers() == list(range(30))


def test_a_worker_that_was_taken_for_dead_moves_nothing_back(
    services: Services, client: ApiClient, receiver: Receiver
) -> None:
    create(client, receiver)
    add(services, 1)
    with loop_of(services) as slow, loop_of(services) as other:

        def overtaken() -> None:
            receiver.before = lambda: None
            shift(services, ALL_DUE)
            assert other.deliver_once() == 1
            add(services, 2)
            shift(services, ALL_DUE)
            assert other.deliver_once() == 1

        receiver.before = overtaken
        slow.deliver_once()
        shift(services, ALL_DUE)
        assert other.deliver_once() == 0
    assert receiver.numbers() == [1, 2, 1]


def test_a_webhook_that_is_deleted_sends_no_more(services: Services, client: ApiClient, receiver: Receiver) -> None:
    made = create(client, receiver)
    add(services, 1)
    client.ok("DELETE", f"/v1/webhooks/{made['id']}")
    with loop_of(services) as loop:
        assert loop.deliver_once() == 0
    assert client.get(f"/v1/webhooks/{made['id']}/deliveries").status_code == 404
    assert client.delete(f"/v1/webhooks/{made['id']}").status_code == 404


def test_an_address_inside_is_refused_at_each_delivery(
    services: Services, client: ApiClient, receiver: Receiver
) -> None:
    create(client, receiver)
    add(services, 1)
    with loop_of(services, private=False) as loop:
        assert loop.deliver_once() == 0
    assert receiver.got == []
    [found] = client.ok("GET", "/v1/webhooks")["items"]
    assert "127.0.0.1 has an address that is not public" in found["last_error"]


@pytest.mark.parametrize(
    ("address", "public"),
    [
        ("8.8.8.8", True),
        ("2001:4860:4860::8888", True),
        ("127.0.0.1", False),
        ("10.1.2.3", False),
        ("172.16.0.1", False),
        ("192.168.1.1", False),
        ("169.254.169.254", False),
        ("100.64.0.1", False),
        ("0.0.0.0", False),
        ("224.0.0.1", False),
        ("255.255.255.255", False),
        ("::1", False),
        ("::", False),
        ("fe80::1%eth0", False),
        ("fd00::1", False),
        ("::ffff:127.0.0.1", False),
        ("::ffff:8.8.8.8", True),
        ("64:ff9b::7f00:1", False),
        ("2002:7f00:1::", False),
    ],
)
def test_which_addresses_are_public(address: str, public: bool) -> None:
    assert is_public(address) is public


def test_a_name_is_looked_up_once_and_its_address_is_the_one_that_is_reached(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked_up = []

    def resolve(host: str, port: int, *_: Any, **__: Any) -> list[Any]:
        if host != "127.0.0.1":
            looked_up.append(host)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port))]

    sender = PublicSender(allow_private=True)
    url = receiver.url.replace("127.0.0.1", "hooks.example")
    with monkeypatch.context() as patch:
        patch.setattr("om_core.outgoing.socket.getaddrinfo", resolve)
        assert sender(url, b"{}", {}) == 200
        assert looked_up == ["hooks.example"]
        assert receiver.got[0][0]["host"].startswith("hooks.example:")
        with pytest.raises(InvalidInputError, match="not public"):
            PublicSender()(url, b"{}", {})
    with pytest.raises(RetryLaterError, match="has no address"):
        sender("http://nowhere.invalid/", b"{}", {})
    sender.close()


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("ftp://example.com/x", "http or https"),
        ("example.com", "http or https"),
        ("http://", "http or https"),
        ("https://user:secret@example.com/", "user name"),
        ("https://example.com:99999/", "not a URL"),
        ("https://exa\nmple.com/", "http"),
        ("https://[::1", "not a URL"),
        ("https://example.com/" + "x" * 2_000, "2000 characters"),
    ],
)
def test_what_is_no_address_of_a_receiver_is_refused(url: str, why: str) -> None:
    with pytest.raises(InvalidInputError, match=why):
        check_url(url)


def test_unknown_types_and_too_many_webhooks_are_refused(client: ApiClient, receiver: Receiver) -> None:
    asked = {"url": receiver.url, "types": ["data-om-everything"]}
    response = client.post("/v1/webhooks", json=asked)
    assert (response.status_code, response.json()["errors"][0]["path"]) == (422, "types")
    for _ in range(MOST):
        create(client, receiver)
    assert client.post("/v1/webhooks", json={"url": receiver.url}).status_code == 409
    page = client.ok("GET", "/v1/webhooks", params={"limit": 15})
    rest = client.ok("GET", "/v1/webhooks", params={"limit": 15, "cursor": page["next_cursor"]})
    assert len(page["items"]) + len(rest["items"]) == MOST
    assert "secret" not in str(page)
