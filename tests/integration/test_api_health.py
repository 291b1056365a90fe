"""Liveness and readiness, with servers that really go away; and what routes answer meanwhile."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import psycopg2
import pytest

from tests.integration.api_server import ApiClient, api_of, say
from tests.support.brokers import redis_down
from tests.support.waiting import eventually
from workers.dispatch import CeleryDispatcher

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from om_core.services.deps import Services
    from tests.support.servers import Servers


@contextmanager
def postgres_down(servers: Servers) -> Iterator[None]:
    servers.embedded.pause("postgres")
    try:
        yield
    finally:
        servers.embedded.resume("postgres")


def states(client: ApiClient, **query: Any) -> tuple[int, dict[str, str]]:
    """Status of /readyz, and the state of each check."""
    response = client.get("/readyz", params=query)
    return response.status_code, {name: check["state"] for name, check in response.json()["checks"].items()}


def test_with_everything_there_each_check_is_named_and_ok(
    services_with: Callable[..., Services], redis_url: str
) -> None:
    dispatcher = CeleryDispatcher(redis_url)
    with api_of(services_with(None, dispatcher=dispatcher)) as client:
        assert states(client) == (200, {"database": "ok", "schema": "ok", "broker": "ok"})
    dispatcher.close()


def test_without_a_broker_configured_the_service_is_ready(services: Services) -> None:
    with api_of(services) as client:
        assert states(client)[0] == 200


def test_with_postgres_down_the_process_is_alive_not_ready_and_routes_answer_503_until_it_is_back(
    services: Services, servers: Servers
) -> None:
    with api_of(services) as client:
        say(client, "t", "Hello.")
        with postgres_down(servers):
            assert client.ok("GET", "/healthz") == {"status": "ok"}
            status, found = states(client)
            assert (status, found["database"], found["schema"]) == (503, "failed", "unknown")
            for method, path in (("GET", "/v1/threads/t"), ("GET", "/v1/jobs"), ("POST", "/v1/threads/t/context")):
                response = client.request(method, path)
                assert (response.status_code, response.json()["code"]) == (503, "database_unavailable"), path
                assert int(response.headers["retry-after"]) >= 1
        eventually(lambda: client.get("/readyz").status_code == 200, what="ready again")
        eventually(lambda: client.get("/v1/threads/t").status_code == 200, what="served again")


@pytest.mark.report("M07")
def test_with_another_schema_version_the_service_is_not_ready_and_says_both_versions(
    services: Services, database_url: str, servers: Servers
) -> None:
    connection = servers.admin(database_url.split("@/")[1].split("?", maxsplit=1)[0])
    with connection.cursor() as cursor:
        cursor.execute("UPDATE alembic_version SET version_num = '0000'")
    connection.close()
    with api_of(services) as client:
        status, found = states(client)
        assert (status, found["database"], found["schema"]) == (503, "ok", "failed")
        assert "0000" in client.get("/readyz").json()["detail"]


def test_with_redis_down_turns_are_stored_and_readiness_names_the_broker(
    services_with: Callable[..., Services], servers: Servers, redis_url: str
) -> None:
    dispatcher = CeleryDispatcher(redis_url)
    with api_of(services_with(None, dispatcher=dispatcher)) as client:
        with redis_down(servers):
            say(client, "t", "Hello.", "Hello.")
            client.ok("POST", "/v1/threads/t/observe")  # its ring fails
            eventually(lambda: states(client)[0] == 503, what="not ready")
            assert states(client)[1] == {"database": "ok", "schema": "ok", "broker": "failed"}
            assert states(client, exclude="broker") == (200, {"database": "ok", "schema": "ok", "broker": "excluded"})
        eventually(lambda: states(client)[0] == 200, what="ready again")
    dispatcher.close()


def test_a_hanging_database_answers_not_ready_in_time(services: Services, database_url: str, servers: Servers) -> None:
    connection = servers.admin(database_url.split("@/")[1].split("?", maxsplit=1)[0])
    assert isinstance(connection, psycopg2.extensions.connection)
    connection.autocommit = False
    with connection.cursor() as cursor:
        cursor.execute("LOCK TABLE alembic_version IN ACCESS EXCLUSIVE MODE")
    with api_of(services) as client:
        response = client.get("/readyz", timeout=8)
        assert response.status_code == 503
        assert "no answer within" in response.json()["detail"]
        assert client.ok("GET", "/healthz", timeout=1) == {"status": "ok"}
        connection.rollback()
        eventually(lambda: client.get("/readyz").status_code == 200, what="ready again")
    connection.close()
