"""The OpenAPI document: well formed, complete, and each of its examples works when it is sent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from jsonschema import Draft202012Validator

from om_core.store.engine import PostgresStore
from tests.integration.api_server import PROBLEM, ApiClient, api_of, say
from tests.support.fixtures import SMALL, build, raw_session

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.servers import Servers

METHODS = {"get", "put", "post", "delete", "patch"}


@pytest.fixture(scope="module")
def store(servers: Servers) -> Iterator[PostgresStore]:
    with servers.new_database() as url:
        opened = PostgresStore(url, pool_size=4)
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def client(store: PostgresStore) -> Iterator[ApiClient]:
    with api_of(build(store, SMALL)) as found:
        yield found


@pytest.fixture(scope="module")
def document(client: ApiClient) -> dict[str, Any]:
    return client.document


def operations(document: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, item in document["paths"].items():
        for method in METHODS & item.keys():
            yield method, path, item[method]


def nodes(value: Any) -> Iterator[Any]:
    yield value
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from nodes(inner)


def test_schemas_are_json_schema_and_references_resolve(document: dict[str, Any]) -> None:
    assert document["openapi"].startswith("3.1")
    for schema in document["components"]["schemas"].values():
        Draft202012Validator.check_schema(schema)
    references = {node["$ref"] for node in nodes(document) if isinstance(node, dict) and "$ref" in node}
    assert references
    known = {f"#/components/schemas/{name}" for name in document["components"]["schemas"]}
    assert references <= known


def test_each_operation_says_what_it_does_and_declares_its_parameters(document: dict[str, Any]) -> None:
    ids = [operation["operationId"] for _, _, operation in operations(document)]
    assert len(ids) == len(set(ids))
    for method, path, operation in operations(document):
        assert operation["description"], (method, path)
        declared = {item["name"] for item in operation.get("parameters", []) if item["in"] == "path"}
        assert declared == {part[1:-1] for part in path.split("/") if part.startswith("{")}, path


def test_each_operation_below_v1_asks_for_a_key_and_answers_errors_with_problem_documents(
    document: dict[str, Any],
) -> None:
    for method, path, operation in operations(document):
        errors = {status: found for status, found in operation["responses"].items() if status >= "400"}
        form = "application/json" if operation["tags"] == ["gateways"] else PROBLEM  # as each provider has it
        assert all(list(found["content"]) == [form] for found in errors.values()), (method, path)
        assert "422" in errors, (method, path)
        if path.startswith("/v1"):
            assert operation["security"], (method, path)
            assert {"401", "404", "409", "413", "503"} <= errors.keys(), (method, path)


def test_every_route_of_this_part_is_in_the_document(document: dict[str, Any]) -> None:
    thread = "/v1/threads/{thread}"
    assert {f"{method.upper()} {path}" for method, path, _ in operations(document)} >= {
        f"PUT {thread}",
        f"GET {thread}",
        "GET /v1/threads",
        f"POST {thread}/messages",
        f"GET {thread}/messages",
        f"POST {thread}/context",
        f"GET {thread}/context",
        f"GET {thread}/status",
        f"GET {thread}/observations",
        f"GET {thread}/reflections",
        f"POST {thread}/observe",
        f"POST {thread}/reflect",
        f"POST {thread}/activate",
        f"POST {thread}/flush",
        "GET /v1/jobs",
        "GET /v1/jobs/{job_id}",
        "POST /v1/jobs/{job_id}/retry",
        "POST /v1/jobs/{job_id}/cancel",
        "POST /v1/jobs/retry",
        "GET /healthz",
        "GET /readyz",
    }


def test_each_operation_with_a_body_has_examples_and_each_one_works(
    client: ApiClient, document: dict[str, Any]
) -> None:
    for method, path, operation in sorted(operations(document), key=lambda item: item[0] != "put"):
        if "requestBody" not in operation or operation["tags"] == ["gateways"]:  # those ask a provider
            continue
        examples = operation["requestBody"]["content"]["application/json"]["examples"]
        assert examples, (method, path)
        for name, example in examples.items():
            body = example["value"]
            if path.endswith("/flush"):
                body = {**body, "wait_s": 0}  # nobody works here
            response = client.request(method.upper(), filled(path, operation), json=body)
            assert response.status_code == 200, (path, name, response.text)


def test_each_reading_operation_works_with_the_examples_of_its_parameters(
    client: ApiClient, document: dict[str, Any], store: PostgresStore
) -> None:
    say(client, "conversation-123", "Hello.", "Hello.", resource="user-123")
    job = client.ok("POST", "/v1/threads/conversation-123/observe")["job"]
    client.ok("POST", "/v1/webhooks", json={"url": "https://example.com/"})
    with raw_session(store) as session:
        session.hot(
            "INSERT INTO reflections (tenant_id, memory_id, generation, base_generation, through_position, state, text,"
            " tokens, input_tokens) SELECT tenant_id, id, 1, 0, 0, 'superseded', '', 0, 0 FROM memories RETURNING 1"
        )
    for method, path, operation in operations(document):
        if method == "get":
            with client.stream("GET", filled(path, operation).replace("/jobs/1", f"/jobs/{job}")) as response:
                # Not read: a stream of events has no end.
                assert response.status_code == 200, path


def filled(path: str, operation: dict[str, Any]) -> str:
    """The path with the examples of its parameters."""
    for item in operation.get("parameters", []):
        if item["in"] == "path":
            path = path.replace(f"{{{item['name']}}}", str(item["schema"]["examples"][0]))
    return path


def test_the_documentation_page_is_served(client: ApiClient) -> None:
    response = client.get("/docs")

    assert response.status_code == 200
    assert "/openapi.json" in response.text
