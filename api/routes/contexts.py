"""Contexts: what the agent sees."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import Body, Query
from fastapi.responses import JSONResponse
from pydantic import AwareDatetime

from api.deps import MemoryDep, one_resource
from api.routes.replies import v1_router
from api.schemas import answers, examples
from api.schemas.fields import FormatName, ModeHeader, ModelName, ResourceQuery, ThreadPath, Tokens, strictest
from api.schemas.requests import ContextBody, ContextOptions
from om_core.domain.context import Context, ContextTokens
from om_core.formats import parse_messages
from om_core.services.render_context import context_to_json

if TYPE_CHECKING:
    from om_core.domain.message import JsonObject

router = v1_router("context")


def context_arguments(options: ContextOptions, *, format: str, model: str | None, path: str = "") -> dict[str, Any]:
    """Arguments of `Memory.context_async`; `path` is where the options stand in the body, as in `context.`.

    Raises:
        InvalidInputError: an ephemeral message is wrong.
    """
    return {
        "model": options.model or model,
        "max_tokens": options.max_tokens,
        "read_only": options.read_only,
        "ephemeral": tuple(parse_messages(options.ephemeral, format, f"{path}ephemeral")),
        "now": options.now,
    }


def no_context(format: str) -> JsonObject:
    """The answer in mode `off`: memory has nothing to say."""
    return context_to_json(
        Context(
            system=(),
            messages=(),
            stable_messages=0,
            volatile=(),
            tokens=ContextTokens(log=0, messages=0, total=0),
            generation=0,
            observed_seq=0,
            head_seq=0,
            prefix_hash="",
        ),
        format,
    )


@router.post("/threads/{thread}/context", response_model=answers.ContextAnswer)
async def post_context(
    thread: ThreadPath,
    memory: MemoryDep,
    body: Annotated[ContextBody | None, Body(openapi_examples=examples.CONTEXT)] = None,
    resource_id: ResourceQuery = None,
    x_om_mode: ModeHeader = None,
) -> JSONResponse:
    """Activate what is due, wait only as the policy allows, and answer with the prompt."""
    options = body or ContextBody()
    resource = one_resource(resource_id, options.resource_id)
    format = options.format or "om"
    mode = strictest(x_om_mode, options.memory)
    if mode == "off":
        return JSONResponse(no_context(format))
    arguments = context_arguments(options, format=format, model=None)
    if mode == "read_only":
        arguments["read_only"] = True
    result = await memory.context_async(thread, resource=resource, **arguments)
    return JSONResponse(result.to_json(format))


@router.get("/threads/{thread}/context", response_model=answers.ContextAnswer)
def get_context(
    thread: ThreadPath,
    memory: MemoryDep,
    resource_id: ResourceQuery = None,
    format: Annotated[FormatName, Query(description="Form of `messages`.")] = "om",
    model: Annotated[ModelName | None, Query(description="The actor's model.")] = None,
    max_tokens: Annotated[Tokens | None, Query(description="Cap in tokens.")] = None,
    now: Annotated[AwareDatetime | None, Query(description="The caller's time.")] = None,
    x_om_mode: ModeHeader = None,
) -> JSONResponse:
    """The same without changing anything."""
    if x_om_mode == "off":
        return JSONResponse(no_context(format))
    moment: datetime | None = now
    result = memory.context(
        thread, resource=resource_id, model=model, max_tokens=max_tokens, now=moment, read_only=True, wait=False
    )
    return JSONResponse(result.to_json(format))
