"""Threads: create, change, read, list, and the status of one."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Body
from fastapi.responses import JSONResponse

from api.deps import MemoryDep
from api.routes.replies import page_json, v1_router
from api.schemas import answers, examples
from api.schemas.fields import CursorQuery, LimitQuery, ResourceQuery, ThreadPath
from api.schemas.requests import CloneBody, ThreadBody
from om_core.services.views import thread_view

router = v1_router("threads")
_KEPT_IF_ABSENT = ("title", "metadata", "timezone", "scope", "config", "version")


@router.put("/threads/{thread}", response_model=answers.PutThread)
def put_thread(
    thread: ThreadPath, body: Annotated[ThreadBody, Body(openapi_examples=examples.THREAD)], memory: MemoryDep
) -> JSONResponse:
    """Create a thread, or change it: absent fields are kept, null clears, metadata is merged by key."""
    given: dict[str, Any] = {name: getattr(body, name) for name in _KEPT_IF_ABSENT if name in body.model_fields_set}
    state, created = memory.put_thread(thread, resource=body.resource_id, **given)
    return JSONResponse({**thread_view(state), "created": created})


@router.get("/threads/{thread}", response_model=answers.Thread)
def get_thread(thread: ThreadPath, memory: MemoryDep, resource_id: ResourceQuery = None) -> JSONResponse:
    """One thread."""
    return JSONResponse(thread_view(memory.get_thread(thread, resource=resource_id)))


@router.get("/threads", response_model=answers.ListOf[answers.Thread])
def list_threads(
    memory: MemoryDep, resource_id: ResourceQuery = None, cursor: CursorQuery = None, limit: LimitQuery = 50
) -> JSONResponse:
    """Threads, newest first."""
    return page_json(memory.threads(resource=resource_id, cursor=cursor, limit=limit), thread_view)


@router.get("/threads/{thread}/status", response_model=answers.StatusAnswer)
def get_status(thread: ThreadPath, memory: MemoryDep, resource_id: ResourceQuery = None) -> JSONResponse:
    """Token windows, cursors, running jobs, errors, and why nothing happens where nothing does."""
    return JSONResponse(memory.status(thread, resource=resource_id))


@router.post("/threads/{thread}/clone", response_model=answers.Thread)
def clone_thread(
    thread: ThreadPath,
    body: Annotated[CloneBody, Body(openapi_examples=examples.CLONE)],
    memory: MemoryDep,
    resource_id: ResourceQuery = None,
) -> JSONResponse:
    """Fork a thread with its memory. `resource_id` of the query is the original's, that of the body the fork's."""
    made = memory.clone(thread, body.thread, resource=resource_id, to_resource=body.resource_id, to_seq=body.to_seq)
    return JSONResponse(thread_view(made))
