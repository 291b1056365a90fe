"""`POST /v1/messages`, as Anthropic's clients expect it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from api.deps import MemoryDep, state_of
from api.gateway.anthropic_stream import reply_of
from api.gateway.native import Native
from api.gateway.relay import relay
from api.gateway.routing import GatewayRoute, body_of, fallback_id, json_body, refusals
from api.gateway.switch import take_switch
from api.gateway.turn import GatewayTurn
from api.gateway.upstream import Upstream, UpstreamError, failure, name_of
from om_core.llm.keys import missing_key
from om_core.services.render_context import to_anthropic

if TYPE_CHECKING:
    from om_core.domain.message import JsonObject

_TYPES: Final = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    529: "overloaded_error",
}
MOST_BREAKPOINTS: Final = 4
"""Of one request; Anthropic refuses more."""


class AnthropicRoute(GatewayRoute):
    """Errors as `{type: "error", error: {type, message}}`."""

    @staticmethod
    def error_body(status: int, code: str, text: str) -> JsonObject:
        del code  # this form has none
        kind = _TYPES.get(status, "invalid_request_error" if status < 500 else "api_error")
        return {"type": "error", "error": {"type": kind, "message": text}}


_REFUSALS: Final = refusals(AnthropicRoute.error_body(401, "unauthorized", "send a key"))
router = APIRouter(prefix="/v1", tags=["gateways"], route_class=AnthropicRoute, responses=_REFUSALS)
_BODY: Final = body_of(
    {
        "model": "claude-sonnet-4-5",
        "max_tokens": 1024,
        "messages": [{"role": "user", "content": "What did we agree on?"}],
        "memory": {"thread": "conversation-123", "resource": "user-123"},
    },
    "model",
    "messages",
    "max_tokens",
)


@router.post("/messages", openapi_extra=_BODY, response_model=None)
async def create_message(request: Request, memory: MemoryDep) -> Response:
    """An Anthropic message, with memory if `X-OM-Thread` (or `memory` in the body) names a thread."""
    body = await json_body(request)
    switch = take_switch(request.headers, body)
    turn = None
    if switch is not None:
        turn = GatewayTurn(memory, switch, format="anthropic", model=name_of(body["model"], "anthropic"))
        await turn.begin(body["messages"], fallback_id(request))
    try:
        answer = await _ask(request, _forwarded(body, turn))
    except UpstreamError as error:
        if turn is None or not error.too_long or not await turn.shorten():
            raise
        answer = await _ask(request, _forwarded(body, turn))
    headers: dict[str, str] = {"X-OM-Memory": turn.state if turn else "off"}
    if body.get("stream"):
        return _streamed(answer, turn, headers)
    if turn is not None:
        await _finish(turn, answer)
    return JSONResponse(answer, headers=headers)


async def _ask(request: Request, body: JsonObject) -> Any:
    """The provider's answer: Anthropic in its own form, others through LiteLLM."""
    provider, name = name_of(body["model"], "anthropic").split("/", 1)
    state = state_of(request)
    if provider == "anthropic" and missing_key(f"anthropic/{name}") is None:
        return await Native(state.http).messages({**body, "model": name}, request.headers)
    return await Upstream(state.model_api_base).messages(body)


def _forwarded(body: JsonObject, turn: GatewayTurn | None) -> JsonObject:
    """The request with the client's own instructions, memory's, and the messages that memory chose."""
    context = turn.context if turn else None
    if context is None:
        return body
    given = body.get("system") or []
    own: list[JsonObject] = [{"type": "text", "text": given}] if isinstance(given, str) else list(given)
    made = to_anthropic(context)
    left = MOST_BREAKPOINTS - _breakpoints([*own, *(body.get("tools") or [])])
    system, messages = _limited(made["system"], made["messages"], left)
    forwarded = {**body, "messages": messages}
    return {**forwarded, "system": own + system} if own or system else forwarded


def _breakpoints(blocks: list[Any]) -> int:
    return sum(isinstance(block, dict) and "cache_control" in block for block in blocks)


def _limited(
    system: list[JsonObject], messages: list[JsonObject], left: int
) -> tuple[list[JsonObject], list[JsonObject]]:
    """Memory's own breakpoints as far as the client's leave room: the one after the log first."""
    if left <= 0:
        system = [{name: value for name, value in block.items() if name != "cache_control"} for block in system]
    if left - _breakpoints(system) <= 0:
        messages = [_without_marks(message) for message in messages]
    return system, messages


def _without_marks(message: JsonObject) -> JsonObject:
    content = message.get("content")
    if not isinstance(content, list):
        return message
    kept = [{name: value for name, value in block.items() if name != "cache_control"} for block in content]
    return {**message, "content": kept}


def _streamed(answer: Any, turn: GatewayTurn | None, headers: dict[str, str]) -> StreamingResponse:
    async def finish(chunks: list[Any]) -> None:
        if turn is not None and (reply := reply_of(b"".join(map(_bytes, chunks)))) is not None:
            await _finish(turn, reply)

    stream = relay(answer, encode=_bytes, fail=_failed, end=b"", finish=finish)
    return StreamingResponse(stream, media_type="text/event-stream", headers=headers)


def _bytes(chunk: Any) -> bytes:
    return chunk if isinstance(chunk, bytes) else str(chunk).encode()


def _failed(error: BaseException) -> bytes:
    found = failure(error)
    if isinstance(found, UpstreamError):
        body = found.body or AnthropicRoute.error_body(found.status, "", found.text)
    else:
        body = AnthropicRoute.error_body(500, "", str(found))
    return f"event: error\ndata: {json.dumps(body)}\n\n".encode()


async def _finish(turn: GatewayTurn, reply: JsonObject) -> None:
    """Store the reply; one that calls no tool ends the turn."""
    message = {"role": "assistant", "content": reply.get("content") or []}
    await turn.finish(message, end_of_turn=reply.get("stop_reason") != "tool_use")
