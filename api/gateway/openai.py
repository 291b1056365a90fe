"""`POST /v1/chat/completions` and `GET /v1/models`, as OpenAI's clients expect them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from api.deps import MemoryDep, state_of
from api.gateway.relay import relay
from api.gateway.routing import GatewayRoute, body_of, fallback_id, json_body, refusals
from api.gateway.switch import take_switch
from api.gateway.turn import GatewayTurn
from api.gateway.upstream import Upstream, UpstreamError, failure
from om_core.llm.library import litellm_module
from om_core.llm.names import provider_of
from om_core.services.render_context import render

if TYPE_CHECKING:
    from om_core.domain.message import JsonObject

DONE: Final = b"data: [DONE]\n\n"
_TYPES: Final = {401: "authentication_error", 403: "permission_error", 404: "not_found_error", 429: "rate_limit_error"}


class OpenAiRoute(GatewayRoute):
    """Errors as `{error: {message, type, param, code}}`."""

    @staticmethod
    def error_body(status: int, code: str, text: str) -> JsonObject:
        kind = _TYPES.get(status, "invalid_request_error" if status < 500 else "server_error")
        return {"error": {"message": text, "type": kind, "param": None, "code": code}}


_REFUSALS: Final = refusals(OpenAiRoute.error_body(401, "unauthorized", "send a key"))
router = APIRouter(prefix="/v1", tags=["gateways"], route_class=OpenAiRoute, responses=_REFUSALS)
_BODY: Final = body_of(
    {
        "model": "openai/gpt-5-mini",
        "messages": [{"role": "user", "content": "What did we agree on?"}],
        "memory": {"thread": "conversation-123", "resource": "user-123"},
    },
    "model",
    "messages",
)


@router.post("/chat/completions", openapi_extra=_BODY, response_model=None)
async def chat_completions(request: Request, memory: MemoryDep) -> Response:
    """A chat completion, with memory if `X-OM-Thread` (or `memory` in the body) names a thread."""
    body = await json_body(request)
    switch = take_switch(request.headers, body)
    upstream = Upstream(state_of(request).model_api_base)
    turn = None
    if switch is not None:
        turn = GatewayTurn(memory, switch, format="openai", model=body["model"])
        await turn.begin(body["messages"], fallback_id(request))
    try:
        answer = await upstream.chat(_forwarded(body, turn))
    except UpstreamError as error:
        if turn is None or not error.too_long or not await turn.shorten():
            raise
        answer = await upstream.chat(_forwarded(body, turn))
    headers: dict[str, str] = {"X-OM-Memory": turn.state if turn else "off"}
    if body.get("stream"):
        return _streamed(answer, turn, headers)
    reply: JsonObject = answer.model_dump(exclude_none=True)
    if turn is not None:
        await _finish(turn, reply)
    return JSONResponse(reply, headers=headers)


def _forwarded(body: JsonObject, turn: GatewayTurn | None) -> JsonObject:
    """The request with the client's own instructions, memory's, and the messages that memory chose."""
    context = turn.context if turn else None
    if context is None:
        return body
    own = [message for message in body["messages"] if message.get("role") in {"system", "developer"}]
    if context.system and _marks_cache(body["model"]):
        blocks: list[JsonObject] = [{"type": "text", "text": block.text} for block in context.system]
        cacheable = [index for index, block in enumerate(context.system) if block.cacheable]
        if cacheable:
            blocks[cacheable[-1]]["cache_control"] = {"type": "ephemeral"}
        own.append({"role": "system", "content": blocks})
    elif context.system:
        own.append({"role": "system", "content": "\n\n".join(block.text for block in context.system)})
    return {**body, "messages": own + render(context, "openai").messages}


def _marks_cache(model: str) -> bool:
    """Whether the provider keeps a prefix only where a breakpoint says so; others do by themselves, or refuse marks."""
    return "claude" in model.lower() or (("/" in model) and provider_of(model) == "anthropic")


def _streamed(answer: Any, turn: GatewayTurn | None, headers: dict[str, str]) -> StreamingResponse:
    async def finish(chunks: list[Any]) -> None:
        if turn is not None and chunks:
            built = litellm_module().stream_chunk_builder(chunks)
            await _finish(turn, built.model_dump(exclude_none=True))

    stream = relay(answer, encode=_chunk, fail=_failed, end=DONE, finish=finish)
    return StreamingResponse(stream, media_type="text/event-stream", headers=headers)


def _chunk(chunk: Any) -> bytes:
    found = chunk.model_dump(exclude_none=True, exclude_unset=True)
    for choice in found.get("choices", ()):
        choice.setdefault("finish_reason", None)
    return f"data: {json.dumps(found)}\n\n".encode()


def _failed(error: BaseException) -> bytes:
    found = failure(error)
    if isinstance(found, UpstreamError):
        body = found.body or OpenAiRoute.error_body(found.status, "upstream_error", found.text)
    else:
        body = OpenAiRoute.error_body(500, "server_error", str(found))
    return f"data: {json.dumps(body)}\n\n".encode()


async def _finish(turn: GatewayTurn, reply: JsonObject) -> None:
    """Store the first choice; a reply without tool calls ends the turn."""
    choices = reply.get("choices") or []
    if not choices:
        return
    message = {name: value for name, value in choices[0]["message"].items() if name != "provider_specific_fields"}
    await turn.finish(message, end_of_turn=not message.get("tool_calls"))


@router.get("/models", response_model=None)
async def list_models(request: Request, memory: MemoryDep) -> JsonObject:
    """Models of the providers whose keys are set where the API runs."""
    del memory  # asked for, so that a key is needed here too
    names = await Upstream(state_of(request).model_api_base).models()
    return {
        "object": "list",
        "data": [{"id": name, "object": "model", "created": 0, "owned_by": name.partition("/")[0]} for name in names],
    }
