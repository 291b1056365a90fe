"""What breaks parsers and databases, sent to every place that takes a text or an object: refused or repaired, never 500."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from om_core.store.engine import PostgresStore
from tests.integration.api_server import ApiClient, api_of, say
from tests.support.fixtures import SMALL, build

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.support.servers import Servers

LEAKS = ("psycopg", "SELECT ", "INSERT ", "UPDATE ", "sqlalchemy", "Traceback", "/om_core/", "DETAIL:", "constraint")


@pytest.fixture(scope="module")
def client(servers: Servers) -> Iterator[ApiClient]:
    with servers.new_database() as url:
        store = PostgresStore(url, pool_size=4)
        with api_of(build(store, SMALL)) as found:
            say(found, "t", "Hello.")
            yield found
        store.close()


def nested(depth: int) -> str:
    return '{"a":' * depth + "1" + "}" * depth


VALUES = {
    "deep": nested(900),
    "deeper than the parser": nested(50_000),
    "a long list": "[" + "1," * 50_000 + "1]",
    "NUL": '{"a\\u0000b": "c\\u0000d"}',
    "lone surrogates": '{"\\ud800": "\\udfff x"}',
    "NaN": '{"a": NaN, "b": [Infinity, -Infinity]}',
    "an endless number": '{"a": 1e999, "b": -1e999}',
    "many digits": '{"a": ' + "9" * 4_000 + "}",
    "too many digits": '{"a": ' + "9" * 5_000 + "}",
    "a small number": '{"a": 1e-400, "b": 123456789.123456789e-200}',
    "a key twice": '{"a": 1, "a": 2}',
    "an empty key": '{"": {"": ""}}',
    "prototype": '{"__proto__": {"x": 1}, "__class__": "y"}',
    "text": '"' + "x" * 200_000 + '"',
    "SQL": """{"'; DROP TABLE messages; --": "%s %(x)s :x $1"}""",
    "null": "null",
}
PLACES: dict[str, tuple[str, str, Callable[[str], str]]] = {
    "metadata": ("PUT", "/v1/threads/m", lambda v: f'{{"resource_id": "r", "metadata": {v}}}'),
    "config": ("PUT", "/v1/threads/c", lambda v: f'{{"resource_id": "r", "config": {v}}}'),
    "title": ("PUT", "/v1/threads/c", lambda v: f'{{"resource_id": "r", "title": {v}}}'),
    "version": ("PUT", "/v1/threads/c", lambda v: f'{{"resource_id": "r", "version": {v}}}'),
    "working memory": ("PUT", "/v1/threads/t/working-memory", lambda v: f'{{"content": {v}}}'),
    "its change": ("POST", "/v1/threads/t/working-memory", lambda v: f'{{"memory": {v}}}'),
    "guidance": ("POST", "/v1/threads/t/reflect", lambda v: f'{{"guidance": {v}}}'),
    "call": (
        "POST",
        "/v1/threads/t/messages",
        lambda v: (
            '{"format": "om", "messages": [{"role": "assistant", "parts": [{"type": "tool_call", "call_id": "c1",'
            f' "name": "n", "args": {v}}}]}}]}}'
        ),
    ),
    "data": (
        "POST",
        "/v1/threads/t/messages",
        lambda v: (
            '{"format": "om", "messages": [{"role": "user", "parts": [{"type": "data", "type": "x",'
            f' "data": {v}}}], "metadata": {v}}}]}}'
        ),
    ),
    "openai": (
        "POST",
        "/v1/threads/t/messages",
        lambda v: f'{{"format": "openai", "messages": [{{"role": "user", "content": {v}}}]}}',
    ),
    "ephemeral": (
        "POST",
        "/v1/threads/t/context",
        lambda v: f'{{"format": "anthropic", "ephemeral": [{{"role": "user", "content": {v}}}]}}',
    ),
    "key": ("POST", "/v1/keys", lambda v: f'{{"name": {v}}}'),
    "body": ("POST", "/v1/threads/t/observe", lambda v: v),
    "gateway": (
        "POST",
        "/v1/chat/completions",
        lambda v: f'{{"model": "offline/x", "messages": [{v}], "memory": {v}}}',
    ),
}


@pytest.mark.parametrize("place", PLACES)
def test_a_value_that_breaks_things_is_refused_or_repaired(client: ApiClient, place: str) -> None:
    method, path, body = PLACES[place]
    for name, value in VALUES.items():
        request = client.build_request(
            method, path, content=body(value).encode(), headers={"Content-Type": "application/json"}
        )
        response = client.send(request)
        assert response.status_code in {200, 400, 404, 409, 422, 503}, (name, response.status_code, response.text[:500])
        assert response.status_code != 503 or place == "gateway", (name, response.text[:500])
        json.loads(response.content, parse_constant=refuse)
        assert not [leak for leak in LEAKS if leak in response.text and leak not in value], (name, response.text[:500])
        assert len(response.text) < 3_000 or response.status_code == 200, (name, len(response.text))


def refuse(constant: str) -> Any:
    raise AssertionError(f"{constant} is no JSON")


@pytest.mark.parametrize(
    "header",
    [
        ("Idempotency-Key", b"\xff\xfe"),
        ("Idempotency-Key", b"x" * 257),
        ("X-OM-Mode", b"\xff"),
        ("X-OM-Mode", b"ON"),
        ("Last-Event-ID", b"99999999999999999999999-1"),
        ("Content-Type", b"application/json; charset=utf-7"),
        ("Accept", b"\xff"),
        ("Content-Length", b"5"),
    ],
)
def test_an_odd_header_breaks_nothing(client: ApiClient, header: tuple[str, bytes]) -> None:
    content = b'{"messages": [{"role": "user", "content": "x"}]}'
    if header[0] == "Content-Length":
        content = content[:5]
    sent = [(b"Content-Type", b"application/json"), (header[0].encode(), header[1])]
    response = client.post("/v1/threads/t/messages", content=content, headers=sent)
    assert response.status_code in {200, 400, 422}, response.text


def test_what_a_caller_sends_stays_a_short_part_of_the_error(client: ApiClient) -> None:
    for path in (f"/v1/threads?{'x' * 5_000}=1", f"/v1/threads?cursor={'x' * 250}", f"/v1/jobs?state={'x' * 5_000}"):
        response = client.get(path)
        assert response.status_code == 422
        assert len(response.text) < 1_500, path
