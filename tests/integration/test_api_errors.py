"""Every refusal over a real socket: its status, its code, the path of the wrong field. The client checks the document's form."""

from __future__ import annotations

import json
import socket
from typing import TYPE_CHECKING, Any

import pytest

from api.guards import MAX_BODY_BYTES
from om_core.services.keys import create_key, revoke_key
from om_core.store.engine import PostgresStore
from tests.integration.api_server import ApiClient, api_of, say
from tests.support.fixtures import SMALL, build

if TYPE_CHECKING:
    from collections.abc import Iterator

    from om_core.services.deps import Services
    from tests.support.servers import Servers

USER = {"role": "user", "content": "Hello."}
JSON = {"Content-Type": "application/json"}


@pytest.fixture(scope="module")
def shared(servers: Servers) -> Iterator[Services]:
    with servers.new_database() as url:
        store = PostgresStore(url, pool_size=8)
        yield build(store, SMALL)
        store.close()


@pytest.fixture(scope="module")
def client(shared: Services) -> Iterator[ApiClient]:
    """A client of an API with one thread `t` of `user-1` that holds one message with the id `m-1`."""
    with api_of(shared) as found:
        say(found, "t", "Hello.")
        body = {"resource_id": "user-1", "format": "om", "messages": [_text("m-1", "First.")]}
        found.ok("POST", "/v1/threads/t/messages", json=body)
        yield found


def _text(message_id: str, text: str) -> dict[str, Any]:
    return {"id": message_id, "role": "user", "parts": [{"type": "text", "text": text}]}


def refusal(client: ApiClient, method: str, path: str, **options: Any) -> tuple[int, str, list[str]]:
    """Status, code, and the paths of the fields that the answer names."""
    response = client.request(method, path, **options)
    body = response.json()
    return response.status_code, body["code"], [error["path"] for error in body.get("errors", [])]


LONG = "x" * 257
PATHS = [
    ("/v1/threads/%00", "thread"),
    ("/v1/threads/a%0Ab/status", "thread"),
    ("/v1/threads/%C2%85/context", "thread"),
    ("/v1/threads/%2E/messages", "thread"),
    ("/v1/threads/%2E%2E", "thread"),
    (f"/v1/threads/{LONG}/observations", "thread"),
    ("/v1/threads/a%2Fstatus", ""),
    ("/v1/threads/a%2fb/status", ""),
    ("/v1/threads/%FF", ""),
    ("/v1/jobs/abc", "job_id"),
    ("/v1/jobs/0", "job_id"),
    ("/v1/jobs/9223372036854775808", "job_id"),
]


@pytest.mark.report("I01")
@pytest.mark.parametrize(("path", "field"), PATHS)
def test_an_id_in_the_path_that_is_no_id_is_422_and_named(client: ApiClient, path: str, field: str) -> None:
    # Sent by hand: httpx would tidy the dots away.
    assert raw_get(client, path) == (422, "invalid_input", [field])


def raw_get(client: ApiClient, path: str) -> tuple[int, str, list[str]]:
    """One GET whose path goes out byte for byte."""
    with socket.create_connection((client.base_url.host, client.base_url.port or 80), timeout=10) as line:
        line.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
        received = b"".join(iter(lambda: line.recv(65536), b""))
    head, _, content = received.partition(b"\r\n\r\n")
    assert b"content-type: application/problem+json" in head.lower()
    body = json.loads(content)
    return int(head.split()[1]), body["code"], [error["path"] for error in body.get("errors", [])]


READING = [
    "/v1/threads",
    "/v1/threads/t",
    "/v1/threads/t/status",
    "/v1/threads/t/messages",
    "/v1/threads/t/context",
    "/v1/threads/t/observations",
    "/v1/threads/t/reflections",
    "/v1/jobs",
    "/v1/jobs/1",
    "/healthz",
    "/readyz",
]
WRITING = [
    ("PUT", "/v1/threads/t"),
    ("POST", "/v1/threads/t/messages"),
    ("POST", "/v1/threads/t/context"),
    ("POST", "/v1/threads/t/observe"),
    ("POST", "/v1/threads/t/reflect"),
    ("POST", "/v1/threads/t/activate"),
    ("POST", "/v1/threads/t/flush"),
    ("POST", "/v1/jobs/1/retry"),
    ("POST", "/v1/jobs/1/cancel"),
    ("POST", "/v1/jobs/retry"),
]


@pytest.mark.parametrize(("method", "path"), [*(("GET", path) for path in READING), *WRITING])
def test_an_unknown_query_parameter_is_422_on_every_route(client: ApiClient, method: str, path: str) -> None:
    assert refusal(client, method, path, params={"no_such": "1"}) == (422, "invalid_input", ["no_such"])


QUERIES = [
    ("/v1/threads?resource_id=", "resource_id"),
    ("/v1/threads?limit=", "limit"),
    ("/v1/threads?limit=0", "limit"),
    ("/v1/threads?limit=201", "limit"),
    ("/v1/threads?limit=ten", "limit"),
    ("/v1/threads?limit=1&limit=2", "limit"),
    ("/v1/threads?cursor=nonsense", "cursor"),
    ("/v1/threads?cursor=djE6OTk5OTk5OTk5OTk5OTk5OTk5OTk5OQ", "cursor"),  # a number larger than any id
    ("/v1/threads?resource_id=a/b", "resource_id"),
    ("/v1/threads?Limit=5", "Limit"),
    ("/v1/threads/t/messages?after_seq=-1", "after_seq"),
    ("/v1/threads/t/messages?before_seq=9223372036854775808", "before_seq"),
    ("/v1/threads/t/context?format=xml", "format"),
    ("/v1/threads/t/context?max_tokens=0", "max_tokens"),
    ("/v1/threads/t/context?now=2026-05-03T10:00:00", "now"),
    ("/v1/threads/t/observations?state=gone", "state"),
    ("/v1/jobs?state=lost", "state"),
    ("/v1/jobs?kind=dance", "kind"),
    ("/v1/jobs?thread=..", "thread"),
    ("/readyz?exclude=database", "exclude"),
]


@pytest.mark.parametrize(("path", "field"), QUERIES)
def test_a_query_parameter_that_is_empty_repeated_or_wrong_is_422_and_named(
    client: ApiClient, path: str, field: str
) -> None:
    assert refusal(client, "GET", path) == (422, "invalid_input", [field])


def test_redriving_needs_the_state_and_knows_only_discarded(client: ApiClient) -> None:
    assert refusal(client, "POST", "/v1/jobs/retry") == (422, "invalid_input", ["state"])
    assert refusal(client, "POST", "/v1/jobs/retry?state=running") == (422, "invalid_input", ["state"])


BODIES: list[tuple[str, str, dict[str, Any], str]] = [
    ("PUT", "", {}, "resource_id"),
    ("PUT", "", {"resource_id": "a/b"}, "resource_id"),
    ("PUT", "", {"resource_id": ".."}, "resource_id"),
    ("PUT", "", {"resource_id": "u", "colour": "blue"}, "colour"),
    ("PUT", "", {"resource_id": "u", "timezone": "Mars/Olympus"}, "timezone"),
    ("PUT", "", {"resource_id": "u", "scope": "world"}, "scope"),
    ("PUT", "", {"resource_id": "u", "metadata": [1]}, "metadata"),
    ("PUT", "", {"resource_id": "u", "version": -1}, "version"),
    ("POST", "/messages", {}, "messages"),
    ("POST", "/messages", {"messages": [USER], "surprise": 1}, "surprise"),
    ("POST", "/messages", {"messages": "hello"}, "messages"),
    ("POST", "/messages", {"messages": ["hello"]}, "messages.0"),
    ("POST", "/messages", {"messages": [USER], "format": "xml"}, "format"),
    ("POST", "/messages", {"messages": [USER], "model": ""}, "model"),
    ("POST", "/messages", {"messages": [USER], "memory": "perhaps"}, "memory"),
    ("POST", "/messages", {"messages": [USER], "on_divergence": "panic"}, "on_divergence"),
    (
        "POST",
        "/messages",
        {"format": "openai", "messages": [USER, {"role": "pirate", "content": "x"}]},
        "messages.1.role",
    ),
    ("POST", "/messages", {"format": "om", "messages": [{"role": "user"}]}, "messages.0.parts"),
    ("POST", "/messages", {"format": "om", "messages": [{**_text("a/b", "x")}]}, "messages.0.id"),
    ("POST", "/messages", {"messages": [USER], "context": {"limit": 1}}, "context.limit"),
    (
        "POST",
        "/messages",
        {"messages": [USER], "context": {"format": "om", "ephemeral": [{"role": "user"}]}},
        "context.ephemeral.0.parts",
    ),
    ("POST", "/messages", {"messages": [USER] * 1001}, "messages"),
    ("POST", "/context", {"max_tokens": 0}, "max_tokens"),
    ("POST", "/context", {"now": "yesterday"}, "now"),
    ("POST", "/context", {"messages": []}, "messages"),
    ("POST", "/context", {"ephemeral": [{"role": "user", "parts": 5}]}, "ephemeral.0.parts"),
    ("POST", "/observe", {"wait_s": -1}, "wait_s"),
    ("POST", "/observe", {"wait_s": 601}, "wait_s"),
    ("POST", "/observe", {"guidance": "no effect there"}, "guidance"),
    ("POST", "/reflect", {"guidance": 5}, "guidance"),
    ("POST", "/activate", {"force": True}, "force"),
    ("POST", "/flush", {"wait_s": "long"}, "wait_s"),
]


@pytest.mark.parametrize(("method", "suffix", "body", "field"), BODIES)
def test_a_body_field_that_is_wrong_or_unknown_is_422_and_named(
    client: ApiClient, method: str, suffix: str, body: dict[str, Any], field: str
) -> None:
    before = client.ok("GET", "/v1/threads/t", params={"resource_id": "user-1"})["head_seq"]

    assert refusal(client, method, f"/v1/threads/t{suffix}", json=body) == (422, "invalid_input", [field])

    assert client.ok("GET", "/v1/threads/t", params={"resource_id": "user-1"})["head_seq"] == before


def test_an_option_out_of_its_range_is_422_and_named(client: ApiClient) -> None:
    body = {"resource_id": "user-1", "config": {"observation": {"message_tokens": -5}}}

    status, code, [field] = refusal(client, "PUT", "/v1/threads/t", json=body)

    assert (status, code) == (422, "invalid_option")
    assert field == "config.observation.message_tokens"


@pytest.mark.parametrize(
    ("content", "headers", "status"),
    [
        (b"{", JSON, 422),
        (b"", JSON, 422),
        (b"[]", JSON, 422),
        (b"null", JSON, 422),
        (b'{"messages": []}', {"Content-Type": "text/plain"}, 422),
        (b'{"messages": [], "model": "\xff"}', JSON, 400),
        (b'{"messages": ' + b"[" * 100_000, JSON, 400),
        (b'{"messages": [], "model": ' + b"1" * 5000 + b"}", JSON, 400),
    ],
    ids=["cut off", "empty", "a list", "null", "not called JSON", "not UTF-8", "too deep", "a huge number"],
)
def test_a_body_that_is_no_json_object_is_refused(
    client: ApiClient, content: bytes, headers: dict[str, str], status: int
) -> None:
    found = refusal(client, "POST", "/v1/threads/t/messages", content=content, headers=headers)

    assert found[:2] == (status, {422: "invalid_input", 400: "bad_request"}[status])


@pytest.mark.parametrize("declared", [True, False], ids=["declared", "chunked"])
def test_a_body_above_the_limit_is_413_also_when_its_size_is_not_declared(client: ApiClient, declared: bool) -> None:
    piece = b"x" * 1_000_000
    count = MAX_BODY_BYTES // len(piece) + 1
    content: Any = piece * count if declared else (piece for _ in range(count))

    assert refusal(client, "POST", "/v1/threads/t/messages", content=content, headers=JSON)[:2] == (
        413,
        "payload_too_large",
    )
    assert client.ok("GET", "/healthz") == {"status": "ok"}


def test_a_body_just_below_the_limit_is_taken(client: ApiClient) -> None:
    pictures = [
        {"type": "image", "data": "A" * 3_900_000, "mime_type": "image/png", "width": 800, "height": 600}
        for _ in range(2)
    ]
    body = {"resource_id": "user-1", "format": "om", "messages": [{"role": "user", "parts": pictures}]}

    assert client.ok("POST", "/v1/threads/pictures/messages", json=body)["messages"][0]["seq"] == 1


MISSING = [
    ("GET", "/v1/threads/nobody", None),
    ("GET", "/v1/threads/nobody/status", None),
    ("GET", "/v1/threads/nobody/messages", None),
    ("GET", "/v1/threads/nobody/context", None),
    ("GET", "/v1/threads/nobody/observations", None),
    ("GET", "/v1/threads/nobody/reflections", None),
    ("GET", "/v1/threads/t?resource_id=somebody-else", None),
    ("POST", "/v1/threads/nobody/messages", {"messages": [USER]}),
    ("POST", "/v1/threads/nobody/context", {}),
    ("POST", "/v1/threads/nobody/observe", {}),
    ("POST", "/v1/threads/nobody/reflect", {}),
    ("POST", "/v1/threads/nobody/activate", {}),
    ("POST", "/v1/threads/nobody/flush", {}),
    ("GET", "/v1/jobs?thread=nobody", None),
    ("GET", "/v1/jobs/987654321", None),
    ("POST", "/v1/jobs/987654321/retry", None),
    ("POST", "/v1/jobs/987654321/cancel", None),
    ("GET", "/v1/nothing", None),
    ("GET", "/v1/threads/", None),
    ("GET", "/nothing", None),
    ("DELETE", "/nothing", None),
]


@pytest.mark.parametrize(("method", "path", "body"), MISSING)
def test_what_is_not_there_is_404(client: ApiClient, method: str, path: str, body: Any) -> None:
    assert refusal(client, method, path, json=body)[:2] == (404, "not_found")


@pytest.mark.parametrize(
    ("method", "path", "allow"),
    [
        ("POST", "/v1/threads", "GET"),
        ("PATCH", "/v1/threads/t", "GET, PUT"),
        ("DELETE", "/v1/threads/t/context", "GET, POST"),
        ("DELETE", "/v1/jobs/1", "GET"),
        ("PUT", "/healthz", "GET"),
    ],
)
def test_a_method_that_a_path_does_not_have_is_405_and_names_those_it_has(
    client: ApiClient, method: str, path: str, allow: str
) -> None:
    response = client.request(method, path)

    assert (response.status_code, response.json()["code"]) == (405, "method_not_allowed")
    assert set(allow.split(", ")) <= set(response.headers["allow"].split(", "))
    assert method not in response.headers["allow"]


def test_a_known_id_with_other_content_is_409_and_stores_nothing(client: ApiClient) -> None:
    body = {"resource_id": "user-1", "format": "om", "messages": [_text("m-9", "New."), _text("m-1", "Other words.")]}

    assert refusal(client, "POST", "/v1/threads/t/messages", json=body)[:2] == (409, "conflict")
    stored = client.ok("GET", "/v1/threads/t/messages", params={"resource_id": "user-1"})["items"]
    assert "m-9" not in [message["id"] for message in stored]


def test_a_body_and_a_query_that_name_different_resources_are_refused(client: ApiClient) -> None:
    found = refusal(client, "POST", "/v1/threads/t/context?resource_id=a", json={"resource_id": "b"})

    assert found == (422, "invalid_input", ["resource_id"])


def test_headers_are_checked_too(client: ApiClient) -> None:
    path, body = "/v1/threads/t/messages", {"messages": [USER]}

    assert refusal(client, "POST", path, json=body, headers={"X-OM-Mode": "on!"})[2] == ["X-OM-Mode"]
    assert refusal(client, "POST", path, json=body, headers={"Idempotency-Key": ""})[2] == ["Idempotency-Key"]
    assert refusal(client, "POST", path, json=body, headers={"Idempotency-Key": "k" * 257})[2] == ["Idempotency-Key"]


@pytest.mark.parametrize("authorization", [None, "Bearer om_wrong", "Bearer other", "Basic b206b20=", "om_wrong", ""])
def test_with_keys_every_route_below_v1_needs_one_before_its_body_is_read(
    shared: Services, authorization: str | None
) -> None:
    headers = {} if authorization is None else {"Authorization": authorization}
    with api_of(shared, auth="keys") as client:
        for method, path in [*(("GET", path) for path in READING if path.startswith("/v1")), *WRITING]:
            response = client.request(method, path, headers=headers, content=b"{" if method != "GET" else None)
            assert (response.status_code, response.json()["code"]) == (401, "unauthorized"), (method, path)
            assert response.headers["www-authenticate"] == "Bearer"
        assert client.ok("GET", "/healthz", headers=headers) == {"status": "ok"}


def test_a_key_serves_its_tenant_until_it_is_revoked(shared: Services) -> None:
    made, other = (create_key(shared, tenant, name="app") for tenant in ("keyed-one", "keyed-two"))
    path, body = "/v1/threads/t/messages", {"resource_id": "r", "messages": [USER]}
    with api_of(shared, auth="keys") as client:
        headers = {"Authorization": f"Bearer {made.secret}"}
        assert client.ok("POST", path, json=body, headers=headers)["created"]
        assert client.ok("GET", "/v1/threads", headers={"Authorization": f"Bearer {other.secret}"})["items"] == []

        revoke_key(shared, "keyed-one", made.row.id)
        assert client.request("GET", "/v1/threads", headers=headers).status_code == 401


@pytest.mark.report("M01")
def test_metadata_with_nul_surrogates_and_nan_is_stored_repaired(client: ApiClient) -> None:
    content = b'{"resource_id": "user-1", "title": "a\\u0000b", "metadata": {"k": "\\ud800", "n": NaN}}'

    found = client.ok("PUT", "/v1/threads/odd", content=content, headers=JSON)

    assert (found["title"], found["metadata"]["k"]) == ("a\ufffdb", "\ufffd")
