"""Gateway routes: keys as each provider's client sends them, bodies as they come, errors in the provider's form."""

from __future__ import annotations

import hashlib
import json
import time
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Final

from fastapi.routing import APIRoute
from starlette.responses import Response

from api.deps import KeyedRoute
from api.errors import DATABASE_ERRORS, STATUS_OF, UNAVAILABLE, UnauthorizedError, retry_after
from api.gateway.upstream import UpstreamError
from api.routes.messages import key_ids
from om_core.domain.errors import InvalidInputError, OmError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from fastapi import Request

    from api.access import Access
    from om_core.domain.message import JsonObject

KNOWN_S: Final = 3_600.0
"""While the database is away, keys that were good so recently are taken on trust: the model still answers (API 3)."""
MOST_KNOWN: Final = 10_000


def refusals(example: JsonObject) -> dict[int | str, dict[str, Any]]:
    """Entries of the OpenAPI document for errors in a provider's form."""
    content = {"application/json": {"schema": {"type": "object"}, "example": example}}
    meaning = {
        401: "A key is needed",
        404: "No such thread",
        409: "Several resources have this thread: name one",
        413: "The body is too large",
        422: "A field is wrong",
        502: "The provider cannot be reached; its own refusals come with their own status and body",
        503: "The model's key is not set, or the database is away and the key was not seen lately",
    }
    return {status: {"description": text, "content": content} for status, text in meaning.items()}


def body_of(example: JsonObject, *required: str) -> JsonObject:
    """The request body of the OpenAPI document: what memory looks at, and an example."""
    messages = {"type": "array", "items": {"type": "object"}}
    fields = {"model": {"type": "string"}, "messages": messages, "max_tokens": {"type": "integer"}}
    inner = {name: {"type": "string"} for name in ("thread", "resource", "mode")}
    schema = {
        "type": "object",
        "required": list(required),
        "properties": {**fields, "memory": {"type": "object", "properties": inner}},
    }
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema, "example": example}}}}


class GatewayRoute(KeyedRoute):
    """A route of a provider's interface: unknown parameters are let through, errors have the provider's form."""

    @staticmethod
    def error_body(status: int, code: str, text: str) -> JsonObject:
        """An error in the provider's form."""
        raise NotImplementedError

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = APIRoute.get_route_handler(self)  # without the check of parameters

        async def answered(request: Request) -> Response:
            try:
                await self.admit(request)
                return await handle(request)
            except UpstreamError as error:
                body = error.body or self.error_body(error.status, "upstream_error", error.text)
                headers = {"Retry-After": error.retry_after} if error.retry_after else {}
                return _json(body, status_code=error.status, headers=headers)
            except OmError as error:
                status = next(STATUS_OF[kind] for kind in type(error).__mro__ if kind in STATUS_OF)
                headers = retry_after(error)
                return _json(self.error_body(status, error.code, str(error)), status_code=status, headers=headers)
            except DATABASE_ERRORS:
                text = "the database does not answer, and this key was not seen within the last hour"
                return _json(self.error_body(UNAVAILABLE, "database_unavailable", text), status_code=UNAVAILABLE)

        return answered

    async def identify(self, request: Request) -> Access:
        """As every `/v1` route; a key that was good lately also without a database."""
        _accept_x_api_key(request)
        known = _Known.of(request)
        key = hashlib.sha256(request.headers.get("authorization", "").encode()).digest()
        try:
            access = await super().identify(request)
        except DATABASE_ERRORS:
            kept = known.recall(key)
            if kept is None:
                raise
            return kept
        except UnauthorizedError:
            known.forget(key)  # revoked: also for the next outage
            raise
        known.remember(key, access)
        return access


def _json(body: JsonObject, *, status_code: int, headers: dict[str, str] | None = None) -> Response:
    """As ASCII: an error may quote input that UTF-8 cannot hold (lone surrogates)."""
    return Response(json.dumps(body), status_code=status_code, headers=headers, media_type="application/json")


class _Known:
    """Keys that were good lately, with their tenant and reach."""

    def __init__(self) -> None:
        self._keys: OrderedDict[bytes, tuple[float, Access]] = OrderedDict()

    @classmethod
    def of(cls, request: Request) -> _Known:
        state = request.app.state
        if not hasattr(state, "om_known_keys"):
            state.om_known_keys = cls()
        found: _Known = state.om_known_keys
        return found

    def remember(self, key: bytes, access: Access) -> None:
        self._keys[key] = (time.monotonic(), access)
        self._keys.move_to_end(key)
        while len(self._keys) > MOST_KNOWN:
            self._keys.popitem(last=False)

    def forget(self, key: bytes) -> None:
        self._keys.pop(key, None)

    def recall(self, key: bytes) -> Access | None:
        seen, access = self._keys.get(key, (float("-inf"), None))
        return None if time.monotonic() - seen > KNOWN_S else access


def _accept_x_api_key(request: Request) -> None:
    """Anthropic's clients send their key in a header of their own. The raw ones: `request.headers` is made once."""
    headers = request.scope["headers"]
    given = dict(headers)
    if b"x-api-key" in given and b"authorization" not in given:
        request.scope["headers"] = [*headers, (b"authorization", b"Bearer " + given[b"x-api-key"])]


async def json_body(request: Request) -> JsonObject:
    """The body as an object with a model and messages; everything else is the provider's business.

    Raises:
        InvalidInputError: it is not.
    """
    try:
        body = json.loads(await request.body())
    except (ValueError, RecursionError) as error:
        raise InvalidInputError(f"not JSON: {error}", path="") from None
    if not isinstance(body, dict):
        raise InvalidInputError("a JSON object is expected", path="")
    if not isinstance(body.get("model"), str) or not body["model"].strip():
        raise InvalidInputError("the name of a model is expected", path="model")
    if not isinstance(body.get("messages"), list):
        raise InvalidInputError("a list of messages is expected", path="messages")
    return body


def fallback_id(request: Request) -> str | None:
    """The id of a single new message that follows from `Idempotency-Key`."""
    key = request.headers.get("idempotency-key")
    return key_ids(key, 1)[0] if key else None
