"""Where requests come from, and what they are called: pages of other sites, other names of this machine, ids of requests."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Any

import pytest
import structlog

from om_core.memory import Memory
from om_core.services.keys import create_key
from om_core.store.engine import PostgresStore
from tests.integration.api_server import ApiClient, api_of
from tests.support.fixtures import SMALL, build

if TYPE_CHECKING:
    from collections.abc import Iterator

    from om_core.services.deps import Services
    from tests.support.servers import Servers


@pytest.fixture(scope="module")
def shared(servers: Servers) -> Iterator[Services]:
    """One thread `u`."""
    with servers.new_database() as url:
        store = PostgresStore(url, pool_size=4)
        found = build(store, SMALL)
        Memory(found).append("u", [{"role": "user", "content": "Hello."}], resource="alice")
        yield found
        store.close()


@pytest.fixture(scope="module")
def keyless(shared: Services) -> Iterator[ApiClient]:
    with api_of(shared, auth="off") as found:
        yield found


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "", "[::1", "10.0.0.1"])
def test_without_keys_no_other_name_of_this_machine_is_answered(keyless: ApiClient, host: str) -> None:
    assert raw(keyless, f"GET /v1/threads HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n") == 403


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST:8080", "127.0.0.1", "127.1.2.3:99", "[::1]:8080", "om.localhost"]
)
def test_without_keys_this_machine_is_answered(keyless: ApiClient, host: str) -> None:
    assert raw(keyless, f"GET /v1/threads HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n") == 200


def raw(client: ApiClient, request: str) -> int:
    with socket.create_connection((client.base_url.host, client.base_url.port or 80), timeout=10) as line:
        line.sendall(request.encode())
        return int(line.makefile("rb").readline().split()[1])


@pytest.mark.parametrize(
    "sent",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:1"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
def test_without_keys_a_page_from_elsewhere_changes_nothing(keyless: ApiClient, sent: dict[str, str]) -> None:
    for path in ("/v1/jobs/retry?state=discarded", "/v1/threads/u/activate", "/retry-discarded"):
        response = keyless.post(path, headers=sent)
        assert response.status_code == 403, path


def test_without_keys_our_own_page_and_programs_may(keyless: ApiClient) -> None:
    own = str(keyless.base_url).rstrip("/")
    for sent in ({"Origin": own}, {"Origin": own, "Sec-Fetch-Site": "same-origin"}, {}):
        assert keyless.post("/v1/threads/u/activate", headers=sent).status_code == 200


def test_with_keys_any_name_is_answered(shared: Services) -> None:
    key = f"Bearer {create_key(shared, 'default', name='test').secret}"
    request = f"GET /v1/threads HTTP/1.1\r\nHost: om.example\r\nAuthorization: {key}\r\nConnection: close\r\n\r\n"
    with api_of(shared, auth="keys") as client:
        assert raw(client, request) == 200


@pytest.mark.parametrize("given", ["abc-1.2:3_4", "x" * 64])
def test_the_callers_request_id_comes_back_in_header_and_problem(keyless: ApiClient, given: str) -> None:
    for path in ("/v1/threads", "/v1/threads/nobody", "/nothing", "/healthz"):
        response = keyless.get(path, headers={"X-Request-Id": given})
        assert response.headers["x-request-id"] == given
        if response.status_code >= 400:
            assert response.json()["request_id"] == given


@pytest.mark.parametrize("given", ["", "x" * 65, "a b", "a\tb", "<script>", "\u00e9", 'a"b', "a;b"])
def test_a_request_id_that_could_forge_something_is_replaced(keyless: ApiClient, given: str) -> None:
    response = keyless.get("/v1/threads/nobody", headers=[(b"X-Request-Id", given.encode("latin-1"))])
    assert response.headers["x-request-id"] == response.json()["request_id"] != given
    assert len(response.headers["x-request-id"]) == 32


def test_log_lines_of_a_request_have_its_id(keyless: ApiClient, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[dict[str, Any]] = []
    threads = Memory.threads

    def watched(*arguments: Any, **options: Any) -> Any:
        seen.append(structlog.contextvars.get_contextvars())
        return threads(*arguments, **options)

    monkeypatch.setattr(Memory, "threads", watched)
    for name in ("mine-7", "mine-8"):
        keyless.ok("GET", "/v1/threads", headers={"X-Request-Id": name})

    assert seen == [{"request": "mine-7"}, {"request": "mine-8"}], "every line of a log carries what is bound here"
