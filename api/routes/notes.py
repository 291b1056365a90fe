"""What memory made of the messages: observations and reflections."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import Path, Query
from fastapi.responses import JSONResponse

from api.deps import MemoryDep
from api.routes.replies import page_json, v1_router
from api.schemas import answers, generations
from api.schemas.fields import MAX_SEQ, CursorQuery, LimitQuery, ResourceQuery, ThreadPath

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


@router.get("/threads/{thread}/reflections", response_model=answers.ListOf[generations.ReflectionItem])
def list_reflections(
    thread: ThreadPath,
    memory: MemoryDep,
    resource_id: ResourceQuery = None,
    cursor: CursorQuery = None,
    limit: LimitQuery = 50,
) -> JSONResponse:
    """Generations with their text, newest first."""
    return page_json(memory.reflections(thread, resource=resource_id, cursor=cursor, limit=limit))


@router.get("/threads/{thread}/reflections/{generation}", response_model=generations.Generation)
def get_reflection(
    thread: ThreadPath,
    generation: Annotated[int, Path(ge=1, le=MAX_SEQ, description="Number of the generation.", examples=[1])],
    memory: MemoryDep,
    resource_id: ResourceQuery = None,
    against: Annotated[
        int | None,
        Query(ge=0, le=MAX_SEQ, description="Compare with this generation; default its base. 0: no text."),
    ] = None,
) -> JSONResponse:
    """One generation, the messages whose notes it condenses, and the lines that changed."""
    return JSONResponse(memory.reflection(thread, generation, resource=resource_id, against=against))
