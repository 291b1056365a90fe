"""Attacks on the keys of the API: odd headers, narrowed and read-only keys by every way in, use and rates of keys."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import sqlalchemy as sa

from api.dashboard import session as sessions
from om_core.domain.errors import ForbiddenError
from om_core.domain.reach import EVERYTHING, Reach
from om_core.memory import Memory
from om_core.services.keys import create_key, list_keys, revoke_key
from om_core.store.engine import PostgresStore
from tests.integration.api_server import ApiClient, api_of, say
from tests.support.fixtures import SMALL, build, raw_session
from tests.support.jobs import work_off

if TYPE_CHECKING:
    from collections.abc import Iterator

    from om_core.services.deps import Services
    from tests.support.servers import Servers

ALICE, ONE_THREAD = Reach(resource="alice"), Reach(resource="alice", thread="t")
LONG_TEXT = "The cat of my neighbour sat on the red wall for an hour. " * 20


@pytest.fixture(scope="module")
def shared(servers: Servers) -> Iterator[Services]:
    with servers.new_database() as url:
        store = PostgresStore(url, pool_size=8)
        yield build(store, SMALL)
        store.close()


@pytest.fixture(scope="module")
def client(shared: Services) -> Iterator[ApiClient]:
    """Threads `t` and `u` of alice, `t` and `b` of bob, in tenant `default`; the client presents no key."""
    memory = Memory(shared)
    for resource, thread in (("alice", "t"), ("alice", "u"), ("bob", "t"), ("bob", "b")):
        memory.append(thread, [{"role": "user", "content": f"{LONG_TEXT} {resource} {thread}"}], resource=resource)
    with api_of(shared, auth="keys") as found:
        yield found


def headers(services: Services, reach: Reach = EVERYTHING, tenant: str = "default") -> dict[str, str]:
    return {"Authorization": f"Bearer {create_key(services, tenant, name='test', reach=reach).secret}"}


@pytest.mark.parametrize(
    "given",
    [
        "",
        "Bearer",
        "bearer",
        "om_live_x",
        "Basic {key}",
        "Bearer {key} {key}",
        "Bearer {key},",
        "Bearer {key}x",
        "Bearer om_",
        "Bearer om_\u00e9\u00ff",
        "Bearer {prefix}",
        "Bearer\t{key}",
        "Bearer om_" + "x" * 60_000,
        "Bearer om_live_' OR 1=1 --",
    ],
)
def test_an_odd_authorization_header_is_401_and_says_what_to_send(
    client: ApiClient, shared: Services, given: str
) -> None:
    made = create_key(shared, "default", name="odd")
    sent = given.replace("{key}", made.secret).replace("{prefix}", made.row.prefix).encode("latin-1")

    response = client.get("/v1/threads", headers=[(b"Authorization", sent)])

    assert response.status_code == 401
    assert response.headers["www-authenticate"] == "Bearer"
    assert made.secret not in response.text


def test_two_authorization_headers_are_401(client: ApiClient, shared: Services) -> None:
    one, two = (headers(shared)["Authorization"] for _ in range(2))
    response = client.get("/v1/threads", headers=[("Authorization", one), ("Authorization", two)])
    assert response.status_code == 401


def test_the_scheme_may_be_written_as_one_likes(client: ApiClient, shared: Services) -> None:
    key = headers(shared)["Authorization"].removeprefix("Bearer ")
    for given in (f"bearer {key}", f"BEARER   {key}"):
        assert client.get("/v1/threads", headers={"Authorization": given}).status_code == 200


BEYOND = [
    ("GET", "/v1/threads/t?resource_id=bob", None),
    ("GET", "/v1/threads/b", None),
    ("GET", "/v1/threads/b/messages", None),
    ("GET", "/v1/threads/b/events", None),
    ("PUT", "/v1/threads/t", {"resource_id": "bob", "title": "mine"}),
    ("PUT", "/v1/threads/new", {"resource_id": "bob"}),
    ("POST", "/v1/threads/t/messages", {"resource_id": "bob", "messages": [{"role": "user", "content": "x"}]}),
    ("POST", "/v1/threads/new/messages", {"resource_id": "bob", "messages": [{"role": "user", "content": "x"}]}),
    ("POST", "/v1/threads/t/messages?resource_id=bob", {"messages": [{"role": "user", "content": "x"}]}),
    ("POST", "/v1/threads/t/context", {"resource_id": "bob"}),
    ("POST", "/v1/threads/b/flush", {"wait_s": 0}),
    ("GET", "/v1/resources/bob/working-memory", None),
    ("PUT", "/v1/resources/bob/working-memory", {"content": "mine"}),
    ("GET", "/v1/resources/bob/usage", None),
    ("GET", "/v1/jobs?thread=b", None),
    ("GET", "/v1/usage?thread=t&resource_id=bob", None),
]


@pytest.mark.parametrize(("method", "path", "body"), BEYOND)
def test_a_key_of_one_resource_finds_nothing_of_another(
    client: ApiClient, shared: Services, method: str, path: str, body: Any
) -> None:
    response = client.request(method, path, json=body, headers=headers(shared, ALICE))

    assert (response.status_code, response.json()["code"]) == (404, "not_found")
    missing = client.request(method, path.replace("bob", "nobody"), json=_renamed(body), headers=headers(shared, ALICE))
    assert missing.status_code == 404
    told = [found.json()["detail"].replace("nobody", "bob") for found in (response, missing)]
    assert told[0] == told[1], "whether it exists is not told"


def _renamed(body: Any) -> Any:
    return {**body, "resource_id": "nobody"} if body and "resource_id" in body else body


def test_what_a_narrowed_key_lists_is_its_own(client: ApiClient, shared: Services) -> None:
    resource, thread = headers(shared, ALICE), headers(shared, ONE_THREAD)

    assert {item["id"] for item in client.ok("GET", "/v1/threads", headers=resource)["items"]} == {"t", "u"}
    assert {item["id"] for item in client.ok("GET", "/v1/threads", headers=thread)["items"]} == {"t"}
    assert client.ok("GET", "/v1/threads?resource_id=bob", headers=resource)["items"] == []
    whole = client.ok("GET", "/v1/jobs", headers=headers(shared))["items"]
    assert len(whole) == 4
    assert {job["thread"] for job in client.ok("GET", "/v1/jobs", headers=resource)["items"]} == {"t", "u"}
    assert len(client.ok("GET", "/v1/jobs", headers=resource)["items"]) == 2
    assert len(client.ok("GET", "/v1/jobs", headers=thread)["items"]) == 1


def test_jobs_of_a_resource_are_its_own(client: ApiClient, shared: Services) -> None:
    key = headers(shared)
    found = client.ok("GET", "/v1/jobs?resource_id=bob", headers=key)["items"]
    assert {job["thread"] for job in found} == {"t", "b"}
    assert len(found) == 2
    assert client.ok("GET", "/v1/jobs?resource_id=nobody", headers=key)["items"] == []
    assert client.ok("GET", "/v1/jobs?resource_id=bob", headers=headers(shared, ALICE))["items"] == []


def test_a_thread_id_of_two_resources_is_the_narrowed_keys_own(client: ApiClient, shared: Services) -> None:
    assert client.get("/v1/threads/t", headers=headers(shared)).status_code == 409
    assert client.ok("GET", "/v1/threads/t", headers=headers(shared, ALICE))["resource_id"] == "alice"


@pytest.mark.report("R07")
def test_a_key_of_one_thread_does_not_reach_its_sibling_nor_the_resources_document(
    client: ApiClient, shared: Services
) -> None:
    key = headers(shared, ONE_THREAD)

    assert client.get("/v1/threads/u", headers=key).status_code == 404
    assert client.put("/v1/threads/new", json={"resource_id": "alice"}, headers=key).status_code == 404
    assert client.get("/v1/resources/alice/working-memory", headers=key).status_code == 404
    assert client.ok("GET", "/v1/threads/t/messages", headers=key)["items"]


def test_a_narrowed_key_redrives_only_its_own(client: ApiClient, shared: Services) -> None:
    with raw_session(shared.store) as session:
        session.hot(
            "UPDATE jobs SET state = 'discarded', finished_at = clock_timestamp()"
            " WHERE thread IN ('u', 'b') AND state = 'available' RETURNING 1"
        )
    done = client.ok("POST", "/v1/jobs/retry?state=discarded", headers=headers(shared, ALICE))["items"]

    assert [job["thread"] for job in done] == ["u"]
    left = client.ok("GET", "/v1/jobs?state=discarded", headers=headers(shared))["items"]
    assert [job["thread"] for job in left] == ["b"]


WRITING = [
    ("PUT", "/v1/threads/u", {"resource_id": "alice"}),
    ("POST", "/v1/threads/u/messages", {"messages": [{"role": "user", "content": "x"}]}),
    ("POST", "/v1/threads/u/messages", {"messages": [{"role": "user", "content": "x"}], "memory": "read_only"}),
    ("POST", "/v1/threads/u/observe", {}),
    ("POST", "/v1/threads/u/activate", {}),
    ("PUT", "/v1/threads/u/working-memory", {"content": "x"}),
    ("POST", "/v1/jobs/retry?state=discarded", None),
    ("POST", "/v1/keys", {"name": "mine"}),
]


@pytest.mark.parametrize(("method", "path", "body"), WRITING)
def test_a_key_that_may_read_changes_nothing(
    client: ApiClient, shared: Services, method: str, path: str, body: Any
) -> None:
    response = client.request(method, path, json=body, headers=headers(shared, Reach(read_only=True)))
    assert (response.status_code, response.json()["code"]) == (403, "forbidden")


def test_a_context_for_a_key_that_may_read_activates_nothing(services: Services) -> None:
    with api_of(services, auth="keys") as client:
        client.headers = headers(services)
        say(client, "t", *(f"{n}: {LONG_TEXT}" for n in range(12)))
        work_off(services)
        reader = headers(services, Reach(read_only=True))

        seen = client.ok("POST", "/v1/threads/t/context", json={"read_only": False}, headers=reader)
        assert seen["activated"] is None
        assert Memory(services).get_thread("t").observed_seq == 0

        assert client.ok("POST", "/v1/threads/t/context", json={})["activated"] is not None


def test_the_data_layer_refuses_a_writer_who_may_only_read(shared: Services) -> None:
    store = shared.store.within(Reach(read_only=True))
    with pytest.raises(ForbiddenError, match="may only read"), store.transaction("default"):
        raise AssertionError


@pytest.mark.parametrize("reach", [ALICE, ONE_THREAD])
def test_who_signs_a_cookie_with_a_narrowed_key_does_not_get_into_the_dashboard(
    client: ApiClient, shared: Services, reach: Reach
) -> None:
    secret = create_key(shared, "default", name="narrow", reach=reach).secret
    cookie = sessions.sign_in(shared.store, secret, shared.clock.now())
    for path in ("/", "/workers", "/threads/t?resource_id=alice"):
        response = client.send(client.build_request("GET", path, headers={"Cookie": f"{sessions.COOKIE}={cookie}"}))
        assert response.status_code == 303, path


def test_the_last_use_of_a_key_is_kept_to_the_minute_and_not_written_by_every_request(
    services: Services, store: PostgresStore
) -> None:
    made = create_key(services, "default", name="busy")
    writes: list[str] = []

    def seen(_c: Any, _u: Any, statement: str, *_: Any) -> None:
        if "UPDATE api_keys" in statement:
            writes.append(statement)

    sa.event.listen(store.engine, "before_cursor_execute", seen)
    with api_of(services, auth="keys") as client:
        for _ in range(5):
            client.ok("GET", "/v1/threads", headers={"Authorization": f"Bearer {made.secret}"})

    assert len(writes) == 1
    [row] = list_keys(services, "default").items
    assert row.last_used_at is not None


def test_a_request_goes_on_where_the_last_use_cannot_be_written(services: Services) -> None:
    made = create_key(services, "default", name="busy")
    with raw_session(services.store) as session:
        session.hot("SELECT 1 FROM api_keys WHERE id = %s FOR UPDATE", (made.row.id,))
        with api_of(services, auth="keys") as client:
            client.timeout = 5  # less than any lock timeout: it does not wait
            client.ok("GET", "/v1/threads", headers={"Authorization": f"Bearer {made.secret}"})


def test_keys_are_made_shown_once_listed_in_pages_and_revoked(services: Services) -> None:
    with api_of(services, auth="keys") as client:
        client.headers = headers(services)
        made = client.ok("POST", "/v1/keys", json={"name": "a", "resource_id": "r", "read_only": True, "days": 1})
        assert made["key"].startswith(made["prefix"])
        own = {"Authorization": f"Bearer {made['key']}"}
        assert client.get("/v1/threads", headers=own).status_code == 200

        client.ok("POST", "/v1/keys", json={"name": "b"})
        first = client.ok("GET", "/v1/keys?limit=1")
        second = client.ok("GET", f"/v1/keys?limit=1&cursor={first['next_cursor']}")
        [listed] = second["items"]
        assert (listed["name"], listed["resource_id"], listed["read_only"]) == ("a", "r", True)
        assert "key" not in listed

        assert client.ok("DELETE", f"/v1/keys/{made['id']}")["state"] == "revoked"
        assert client.get("/v1/threads", headers=own).status_code == 401


def test_keys_are_not_for_narrowed_keys_nor_those_of_others(client: ApiClient, shared: Services) -> None:
    for reach in (ALICE, ONE_THREAD, Reach(read_only=True)):
        for method, path in (("GET", "/v1/keys"), ("POST", "/v1/keys"), ("DELETE", "/v1/keys/1")):
            assert client.request(method, path, headers=headers(shared, reach)).status_code == 403
    other = create_key(shared, "other", name="theirs")
    response = client.delete(f"/v1/keys/{other.row.id}", headers=headers(shared))
    unknown = client.delete("/v1/keys/987654321", headers=headers(shared))
    assert response.status_code == unknown.status_code == 404
    assert response.json()["detail"] == f"no key {other.row.id}"


@pytest.mark.parametrize(
    ("body", "path"),
    [
        ({}, "name"),
        ({"name": " "}, "name"),
        ({"name": "x" * 101}, "name"),
        ({"name": "x", "thread": "t"}, "resource_id"),
        ({"name": "x", "resource_id": "a/b"}, "resource_id"),
        ({"name": "x", "days": 0}, "days"),
        ({"name": "x", "days": 1e9}, "days"),
        ({"name": "x", "tenant": "other"}, "tenant"),
    ],
)
def test_what_is_wrong_with_a_new_key_is_named(client: ApiClient, shared: Services, body: Any, path: str) -> None:
    response = client.post("/v1/keys", json=body, headers=headers(shared))
    assert response.status_code == 422
    assert [error["path"] for error in response.json()["errors"]] == [path]


def test_a_key_is_useless_from_the_moment_it_is_revoked_or_expires(client: ApiClient, shared: Services) -> None:
    made = create_key(shared, "default", name="short", days=1)
    key = {"Authorization": f"Bearer {made.secret}"}
    assert client.get("/v1/threads", headers=key).status_code == 200

    with raw_session(shared.store) as session:
        session.hot(
            "UPDATE api_keys SET expires_at = clock_timestamp() - interval '1 s' WHERE id = %s RETURNING 1",
            (made.row.id,),
        )
    expired = client.get("/v1/threads", headers=key)
    revoke_key(shared, "default", made.row.id)
    revoked = client.get("/v1/threads", headers=key)
    unknown = client.get("/v1/threads", headers={"Authorization": "Bearer om_live_unknown"})

    assert expired.status_code == revoked.status_code == unknown.status_code == 401
    assert expired.json()["detail"] == revoked.json()["detail"] == unknown.json()["detail"]


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_no_page_from_elsewhere_signs_anybody_in(client: ApiClient, shared: Services, site: str) -> None:
    key = create_key(shared, "default", name="attacker").secret
    request = client.build_request("POST", "/login", data={"key": key}, headers={"Sec-Fetch-Site": site})
    response = client.send(request)
    assert response.status_code == 403
    assert "set-cookie" not in response.headers
