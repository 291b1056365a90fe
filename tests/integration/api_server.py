"""The HTTP API over a real socket, and a client that compares every answer with the OpenAPI document."""

from __future__ import annotations

import re
import socket
import threading
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any

import httpx
import uvicorn
from jsonschema import Draft202012Validator

from api.app import create_app
from api.server import ApiServer
from tests.support.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fastapi import FastAPI

    from om_core.services.deps import Services

PROBLEM = "application/problem+json"
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")


class ApiClient(httpx.Client):
    """Checks every answer: successes against the schema of their route, errors against the problem document."""

    @cached_property
    def document(self) -> dict[str, Any]:
        response = super().request("GET", "/openapi.json")
        assert response.status_code == 200
        found: dict[str, Any] = response.json()
        return found

    def request(self, method: str, url: Any, **options: Any) -> httpx.Response:
        response = super().request(method, url, **options)
        if response.status_code >= 400:
            check_problem(response, self.document)
        elif "json" in response.headers.get("content-type", "") and url != "/openapi.json":
            check_answer(response, self.document)
        return response

    def raw(self, method: str, url: str, **options: Any) -> httpx.Response:
        """An answer that is not of our form: the gateways answer as providers do."""
        return super().request(method, url, **options)

    def ok(self, method: str, url: str, **options: Any) -> Any:
        """The JSON of a request that succeeds."""
        response = self.request(method, url, **options)
        assert response.status_code == 200, response.text
        return response.json()


def check_problem(response: httpx.Response, document: dict[str, Any]) -> None:
    """An error is an RFC 9457 document, whichever layer refused the request."""
    assert response.headers["content-type"] == PROBLEM, response.text
    body = response.json()
    assert body["status"] == response.status_code
    assert body["type"] == f"urn:om:problem:{body['code']}"
    assert body["title"]
    assert body["detail"]
    _validate(body, {"$ref": "#/components/schemas/Problem"}, document)
    assert "Traceback" not in response.text


def check_answer(response: httpx.Response, document: dict[str, Any]) -> None:
    """A success has the form that the document promises, and times are RFC 3339 with Z."""
    operation = operation_of(response.request.method, response.request.url.path, document)
    content = operation["responses"][str(response.status_code)]["content"]
    _validate(response.json(), content["application/json"]["schema"], document)
    for name, value in _times(response.json()):
        assert TIME.fullmatch(value), f"{name} is {value}"


def operation_of(method: str, path: str, document: dict[str, Any]) -> dict[str, Any]:
    """The operation of the document that serves a path; paths without parameters win, as in routing."""
    for template, operations in sorted(document["paths"].items(), key=lambda item: item[0].count("{")):
        pattern = re.sub(r"\\\{[^}]+\\\}", "[^/]+", re.escape(template))
        if re.fullmatch(pattern, path) and method.lower() in operations:
            found: dict[str, Any] = operations[method.lower()]
            return found
    raise AssertionError(f"{method} {path} is not in the document")


def _validate(value: Any, schema: dict[str, Any], document: dict[str, Any]) -> None:
    whole = {**schema, "components": document["components"]}
    errors = [
        f"{'.'.join(map(str, error.absolute_path))}: {error.message[:300]}"
        for error in Draft202012Validator(whole).iter_errors(value)
    ]
    assert not errors, errors


def _times(value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        for name, item in value.items():
            if name.endswith("_at") and isinstance(item, str):
                yield name, item
            yield from _times(item)
    elif isinstance(value, list):
        for item in value:
            yield from _times(item)


@contextmanager
def serving(app: FastAPI) -> Iterator[ApiClient]:
    """Serve the application on a free port of the loopback address, as `om api` does."""
    # With the protocol named asyncio sends answers at once; without it each waits 40 ms for an acknowledgement.
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.bind(("127.0.0.1", 0))
    listener.listen()
    config = uvicorn.Config(app, log_level="error", lifespan="on", ws="none", timeout_graceful_shutdown=5)
    server = ApiServer(app, config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    try:
        eventually(lambda: server.started or not thread.is_alive(), what="the API listens")
        assert server.started
        with ApiClient(base_url=f"http://127.0.0.1:{listener.getsockname()[1]}", timeout=30) as client:
            yield client
    finally:
        server.stop()
        thread.join(timeout=15)
        listener.close()


@contextmanager
def api_of(services: Services, *, auth: str = "off") -> Iterator[ApiClient]:
    with serving(create_app(services, auth=auth)) as client:
        yield client


def say(client: ApiClient, thread: str, *texts: str, resource: str = "user-1", **body: Any) -> Any:
    """Store user and assistant messages in turn."""
    messages = [{"role": "assistant" if n % 2 else "user", "content": text} for n, text in enumerate(texts)]
    path = f"/v1/threads/{thread}/messages"
    return client.ok("POST", path, json={"resource_id": resource, "format": "openai", "messages": messages, **body})
