"""What memory made of the messages: observations and reflections."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import Query
from fastapi.responses import JSONResponse

from api.deps import MemoryDep
from api.routes.replies import page_json, v1_router
from api.schemas import answers
from api.schemas.fields import CursorQuery, LimitQuery, ResourceQuery, ThreadPath

router = v1_router("notes")


@router.get("/threads/{thread}/observations", response_model=answers.ListOf[answers.Observation])
def list_observations(
    thread: ThreadPath,
    memory: MemoryDep,
    resource_id: ResourceQuery = None,
    state: Annotated[
        Literal["active", "buffered", "all"], Query(description="In the log, waiting for activation, or both.")
    ] = "active",
    cursor: CursorQuery = None,
    limit: LimitQuery = 50,
) -> JSONResponse:
    """Chunks of notes, in order of the messages they cover."""
    return page_json(memory.observations(thread, resource=resource_id, state=state, cursor=cursor, limit=limit))


@router.get("/threads/{thread}/reflections", response_model=answers.ListOf[answers.ReflectionItem])
def list_reflections(
    thread: ThreadPath,
    memory: MemoryDep,
    resource_id: ResourceQuery = None,
    cursor: CursorQuery = None,
    limit: LimitQuery = 50,
) -> JSONResponse:
    """Generations with their text, newest first."""
    return page_json(memory.reflections(thread, resource=resource_id, cursor=cursor, limit=limit))
