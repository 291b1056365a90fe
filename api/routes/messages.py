"""Messages: store a step, with its context in the same answer; list what is stored."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Annotated

from fastapi import Body, Header, Query
from fastapi.responses import JSONResponse
from starlette.concurrency import run_in_threadpool

from api.deps import MemoryDep, one_resource
from api.routes.contexts import context_arguments, no_context
from api.routes.replies import page_json, v1_router
from api.schemas import answers, examples
from api.schemas.fields import MAX_SEQ, CursorQuery, LimitQuery, ModeHeader, ResourceQuery, ThreadPath, strictest
from api.schemas.requests import MessagesBody
from om_core.formats import guess_format, parse_messages
from om_core.memory import Memory
from om_core.ports import Page
from om_core.services.ingest import StepRequest
from om_core.services.views import message_view, step_view
from om_core.store.cursors import decode_cursor, encode_cursor

if TYPE_CHECKING:
    from om_core.domain.message import JsonObject
    from om_core.services.ingest import StepResult

router = v1_router("messages")
IdempotencyKey = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        min_length=1,
        max_length=256,
        description="Gives messages without an id one that is the same at every retry.",
    ),
]


@router.post("/threads/{thread}/messages", response_model=answers.StepAnswer)
async def post_messages(
    thread: ThreadPath,
    body: Annotated[MessagesBody, Body(openapi_examples=examples.MESSAGES)],
    memory: MemoryDep,
    resource_id: ResourceQuery = None,
    x_om_mode: ModeHeader = None,
    idempotency_key: IdempotencyKey = None,
) -> JSONResponse:
    """Store one step and return at once; with `context`, the prompt comes in the same answer."""
    resource = one_resource(resource_id, body.resource_id)
    mode = strictest(x_om_mode, body.memory)
    format = body.format or guess_format(body.messages)
    answer = _nothing_done()
    if mode == "on":
        result = await run_in_threadpool(_store, memory, thread, resource, body, format, idempotency_key)
        answer, resource = step_view(result), result.thread.resource_id
    if body.context is not None:
        context_format = body.context.format or format
        arguments = context_arguments(body.context, format=context_format, model=body.model, path="context.")
        arguments["read_only"] = arguments["read_only"] or mode == "read_only"
        answer["context"] = (
            no_context(context_format)
            if mode == "off"
            else (await memory.context_async(thread, resource=resource, **arguments)).to_json(context_format)
        )
    answer["status"] = None if mode == "off" else await run_in_threadpool(memory.status, thread, resource=resource)
    return JSONResponse(answer)


def _nothing_done() -> JsonObject:
    return {"messages": [], "duplicates": [], "deleted": [], "ignored": [], "jobs": [], "created": False}


def _store(
    memory: Memory, thread: str, resource: str | None, body: MessagesBody, format: str, idempotency_key: str | None
) -> StepResult:
    """Store the step; everything that can be wrong in the request is found before."""
    messages = parse_messages(body.messages, format)
    if body.context is not None:
        context_arguments(body.context, format=body.context.format or format, model=None, path="context.")
    return memory.store(
        StepRequest(
            thread=thread,
            resource=resource,
            messages=tuple(messages),
            fallback_ids=() if idempotency_key is None else key_ids(idempotency_key, len(messages)),
            model=body.model,
            end_of_turn=body.end_of_turn,
            on_divergence=body.on_divergence,
        )
    )


def key_ids(key: str, count: int) -> tuple[str, ...]:
    """Ids that follow from a key and the places in its request: a repeat of the request is recognised by them."""
    stem = hashlib.sha256(key.encode()).hexdigest()[:32]
    return tuple(f"om-key-{stem}-{index}" for index in range(count))


@router.get("/threads/{thread}/messages", response_model=answers.ListOf[answers.StoredMessage])
def list_messages(
    thread: ThreadPath,
    memory: MemoryDep,
    resource_id: ResourceQuery = None,
    after_seq: Annotated[int | None, Query(ge=0, le=MAX_SEQ, description="Only messages after this seq.")] = None,
    before_seq: Annotated[int | None, Query(ge=1, le=MAX_SEQ, description="Only messages before this seq.")] = None,
    cursor: CursorQuery = None,
    limit: LimitQuery = 50,
) -> JSONResponse:
    """Stored messages in order of seq. With `before_seq` alone the newest come first, page by page."""
    backwards = before_seq is not None and after_seq is None
    reached = decode_cursor(cursor)
    if reached is not None and backwards:
        before_seq = reached
    elif reached is not None:
        after_seq = reached
    return page_json(
        _page(memory, thread, resource_id, after_seq, before_seq, limit, backwards=backwards), message_view
    )


def _page(
    memory: Memory,
    thread: str,
    resource: str | None,
    after_seq: int | None,
    before_seq: int | None,
    limit: int,
    *,
    backwards: bool,
) -> Page[object]:
    """One more than asked for tells whether there is a next page."""
    found = memory.messages(thread, resource=resource, after_seq=after_seq, before_seq=before_seq, limit=limit + 1)
    if len(found) <= limit:
        return Page(found)
    items = found[1:] if backwards else found[:limit]
    return Page(items, encode_cursor((items[0] if backwards else items[-1]).seq))
