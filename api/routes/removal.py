"""Taking content away again: a message, the end of a thread, a thread, a person; and an older generation as base."""

from __future__ import annotations

from typing import Annotated

from fastapi import Body, Path
from fastapi.responses import JSONResponse

from api.deps import MemoryDep, one_resource
from api.routes.replies import v1_router
from api.schemas import answers, examples
from api.schemas.fields import MAX_SEQ, Id, ResourceQuery, ThreadPath
from api.schemas.requests import RewindBody

router = v1_router("removal")
MessagePath = Annotated[Id, Path(description="The caller's own id of the message.", examples=["message-1"])]
ResourcePath = Annotated[Id, Path(description="The caller's own id of the person or thing.", examples=["user-123"])]
GenerationPath = Annotated[int, Path(description="As `reflections` lists it.", ge=1, le=MAX_SEQ, examples=[1])]


@router.delete("/threads/{thread}/messages/{message}", response_model=answers.Removed)
def delete_message(
    thread: ThreadPath, message: MessagePath, memory: MemoryDep, resource_id: ResourceQuery = None
) -> JSONResponse:
    """Remove one message and everything derived from it. Its id stays known: sent again, it is not stored."""
    return JSONResponse(memory.delete_message(thread, message, resource=resource_id))


@router.post("/threads/{thread}/rewind", response_model=answers.Removed)
def rewind(
    thread: ThreadPath,
    body: Annotated[RewindBody, Body(openapi_examples=examples.REWIND)],
    memory: MemoryDep,
    resource_id: ResourceQuery = None,
) -> JSONResponse:
    """Remove everything above `to_seq`, to edit and regenerate. The ids of what is removed are free again."""
    resource = one_resource(resource_id, body.resource_id)
    return JSONResponse(memory.rewind(thread, body.to_seq, resource=resource))


@router.delete("/threads/{thread}", response_model=answers.DeletedThread)
def delete_thread(thread: ThreadPath, memory: MemoryDep, resource_id: ResourceQuery = None) -> JSONResponse:
    """Delete a thread with everything derived from it; the answer counts what is gone."""
    return JSONResponse(memory.delete_thread(thread, resource=resource_id))


@router.delete("/resources/{resource}", response_model=answers.DeletedResource)
def delete_resource(resource: ResourcePath, memory: MemoryDep) -> JSONResponse:
    """Delete everything of one person or thing; the answer counts what is gone."""
    return JSONResponse(memory.delete_resource(resource))


@router.post("/threads/{thread}/reflections/{generation}/restore", response_model=answers.Restored)
def restore(
    thread: ThreadPath, generation: GenerationPath, memory: MemoryDep, resource_id: ResourceQuery = None
) -> JSONResponse:
    """Make an earlier generation the base of the log again. Nothing is erased; an erased one is 409."""
    return JSONResponse(memory.restore(thread, generation, resource=resource_id))
