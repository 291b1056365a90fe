"""Server-sent events: what memory does, as it happens (API 4)."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from typing import TYPE_CHECKING, Annotated, Any, Final

from fastapi import Header
from fastapi.responses import StreamingResponse
from fastapi.sse import format_sse_event
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request

from api.access import find_access
from api.deps import MemoryDep, state_of
from api.errors import TooManyRequestsError
from api.routes.replies import v1_router
from api.schemas.fields import ResourceQuery, ThreadPath
from om_core.domain.errors import OmError
from om_core.services.feed import Watch, first_position, read_events

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from starlette.types import Message, Send

    from om_core.memory import Memory
    from om_core.ports import EventRow

log = logging.getLogger("om.api")
router = v1_router("events")

HEARTBEAT_S: Final = 15.0
"""Idle streams send a comment this often: proxies keep them open, and the key is looked at again."""
SLOW_READER_S: Final = 30.0
"""A reader that takes nothing for so long is dropped. It loses nothing: it resumes with its last id."""
BATCH: Final = 200
RETRY_MS: Final = 1_000
HEARTBEAT: Final = b": still here\n\n"

LastEventId = Annotated[
    str | None,
    Header(
        alias="Last-Event-ID",
        max_length=64,
        description="Resume after this `id`; browsers send it by themselves. Without it the stream begins now.",
        examples=["4242-17"],
    ),
]
STREAM: Final[dict[int | str, dict[str, Any]]] = {
    200: {
        "description": "Events until the client leaves: `id`, `event: data-om-…`, and its fields as JSON in `data`",
        "content": {
            "text/event-stream": {
                "schema": {"type": "string"},
                "example": 'id: 4242-17\nevent: data-om-activation\ndata: {"threadId": "conversation-123"}\n\n',
            }
        },
    }
}


class EventStream(StreamingResponse):
    """A stream that gives up a reader who takes nothing."""

    media_type = "text/event-stream"

    def __init__(self, content: AsyncIterator[bytes]) -> None:
        super().__init__(content, headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"})

    async def stream_response(self, send: Send) -> None:
        """Send what comes, until the reader does not take it."""

        async def in_time(message: Message) -> None:
            async with asyncio.timeout(SLOW_READER_S):
                await send(message)

        try:
            await super().stream_response(in_time)
        except TimeoutError:
            log.info("a reader of events took nothing for %.0f s and was dropped", SLOW_READER_S)


@router.get("/threads/{thread}/events", response_class=EventStream, status_code=200, responses=STREAM)
async def stream_thread_events(
    request: Request,
    thread: ThreadPath,
    memory: MemoryDep,
    resource_id: ResourceQuery = None,
    last_event_id: LastEventId = None,
) -> EventStream:
    """What happens in one thread, live."""
    found = await run_in_threadpool(memory.get_thread, thread, resource=resource_id)
    return await open_stream(request, memory, last_event_id, thread_id=found.id, resource_id=None)


@router.get("/events", response_class=EventStream, status_code=200, responses=STREAM)
async def stream_events(
    request: Request,
    memory: MemoryDep,
    resource_id: ResourceQuery = None,
    last_event_id: LastEventId = None,
) -> EventStream:
    """What happens in all threads of a resource, or of everybody, live."""
    return await open_stream(request, memory, last_event_id, thread_id=None, resource_id=resource_id)


async def open_stream(
    request: Request, memory: Memory, last_id: str | None, *, thread_id: int | None, resource_id: str | None
) -> EventStream:
    """Find where the stream begins before it is answered: what is wrong is a problem document, not a broken stream."""
    store, feed = memory.services.store, state_of(request).feed
    loop, news = asyncio.get_running_loop(), asyncio.Event()

    def wake() -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(news.set)

    watch = feed.watch(memory.tenant, wake, thread_id=thread_id, resource_id=resource_id)
    try:
        begin = await run_in_threadpool(first_position, store, memory.tenant) if last_id is None else last_id
        first = await run_in_threadpool(read_events, store, watch, begin, limit=BATCH)
    except BaseException:
        feed.forget(watch)
        raise
    return EventStream(_stream(request, memory, watch, news, begin, first))


async def _stream(
    request: Request, memory: Memory, watch: Watch, news: asyncio.Event, last_id: str, rows: tuple[EventRow, ...]
) -> AsyncIterator[bytes]:
    feed = state_of(request).feed
    try:
        yield format_sse_event(comment="events of memory", retry=RETRY_MS)
        while not feed.closed:
            if rows:
                yield b"".join(map(encoded, rows))
                last_id = rows[-1].id
            elif not await _woken(news):
                if not await _still_admitted(request):
                    return
                yield HEARTBEAT
            news.clear()
            rows = await run_in_threadpool(read_events, memory.services.store, watch, last_id, limit=BATCH)
    finally:
        feed.forget(watch)


async def _woken(news: asyncio.Event) -> bool:
    try:
        async with asyncio.timeout(HEARTBEAT_S):
            return await news.wait()
    except TimeoutError:
        return False


async def _still_admitted(request: Request) -> bool:
    """Whether the key still opens this stream: it may have expired or been revoked meanwhile."""
    try:
        await find_access(request, state_of(request))
    except TooManyRequestsError:
        return True
    except OmError:
        return False
    return True


def encoded(row: EventRow) -> bytes:
    """One event on the wire."""
    return format_sse_event(data_str=json.dumps(row.payload, ensure_ascii=False), event=row.type, id=row.id)
