"""Working memory and tools over HTTP."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from om_core.store.engine import PostgresStore
from tests.integration.api_server import ApiClient, api_of
from tests.support.fixtures import SMALL, build

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.servers import Servers


@pytest.fixture(scope="module")
def client(servers: Servers) -> Iterator[ApiClient]:
    """One database for this module; tests keep apart by their thread ids."""
    with servers.new_database() as url:
        store = PostgresStore(url, pool_size=8)
        with api_of(build(store, SMALL)) as found:
            yield found
        store.close()


@pytest.fixture
def thread(request: pytest.FixtureRequest) -> str:
    """A thread id of this test's own."""
    return f"t-{abs(hash(request.node.name))}"


@pytest.mark.parametrize("path", ["/v1/threads/{thread}/working-memory", "/v1/resources/user-1/working-memory"])
def test_a_document_is_read_replaced_and_a_stale_version_refused(client: ApiClient, thread: str, path: str) -> None:
    client.ok("PUT", f"/v1/threads/{thread}", json={"resource_id": "user-1"})
    where = path.format(thread=thread)
    start = client.ok("GET", where)
    version = start["version"]

    written = client.ok("PUT", where, json={"content": f"# Name: Eve of {thread}", "version": version})
    stale = client.put(where, json={"content": "# Name: Adam", "version": version})

    assert written["version"] == version + 1
    assert (stale.status_code, stale.json()["code"]) == (409, "conflict")
    assert client.ok("GET", where) == written
    as_json = client.ok("PUT", where, json={"content": {"name": "Eve"}, "format": "json"})
    assert (as_json["content"], as_json["format"], as_json["version"]) == ({"name": "Eve"}, "json", version + 2)


@pytest.mark.parametrize(
    ("body", "path"),
    [
        ({}, "content"),
        ({"content": 3}, "content"),
        ({"content": "x", "format": "yaml"}, "format"),
        ({"content": "x", "version": -1}, "version"),
        ({"content": "x" * 20_000}, "content"),
    ],
)
def test_a_wrong_body_names_its_field(client: ApiClient, body: dict[str, object], path: str) -> None:
    response = client.put("/v1/resources/user-1/working-memory", json=body)

    assert response.status_code == 422
    assert any(error["path"].startswith(path) for error in response.json()["errors"])


def test_the_context_shows_what_was_put(client: ApiClient, thread: str) -> None:
    message = {"role": "user", "content": "hello"}
    client.ok("POST", f"/v1/threads/{thread}/messages", json={"resource_id": "user-1", "messages": [message]})
    client.ok("PUT", f"/v1/threads/{thread}/working-memory", json={"content": "Eve lives in Lyon."})

    volatile = client.ok("POST", f"/v1/threads/{thread}/context", json={})["volatile"]
    assert {"kind": "working_memory", "name": "thread", "text": "Eve lives in Lyon."} in volatile


def test_no_tool_is_offered_where_none_is_configured(client: ApiClient) -> None:
    assert client.ok("GET", "/v1/tools", params={"format": "anthropic"}) == {"items": [], "next_cursor": None}
    assert client.get("/v1/tools", params={"format": "cohere"}).status_code == 422
