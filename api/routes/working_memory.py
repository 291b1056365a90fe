"""Working memory of a thread and of a resource: the document that every context shows."""

from __future__ import annotations

from typing import Annotated

from fastapi import Body
from fastapi.responses import JSONResponse

from api.deps import MemoryDep, one_resource
from api.routes.replies import v1_router
from api.schemas import answers, examples
from api.schemas.fields import ResourcePath, ResourceQuery, ThreadPath
from api.schemas.requests import WorkingMemoryBody, WorkingMemoryChangeBody

router = v1_router("working memory")


@router.get("/threads/{thread}/working-memory", response_model=answers.WorkingMemory)
def get_thread_memory(thread: ThreadPath, memory: MemoryDep, resource_id: ResourceQuery = None) -> JSONResponse:
    """The thread's own document; version 0 where nothing was written."""
    return JSONResponse(memory.working_memory(thread, resource=resource_id))


@router.put("/threads/{thread}/working-memory", response_model=answers.WorkingMemory)
def put_thread_memory(
    thread: ThreadPath,
    body: Annotated[WorkingMemoryBody, Body(openapi_examples=examples.WORKING_MEMORY)],
    memory: MemoryDep,
    resource_id: ResourceQuery = None,
) -> JSONResponse:
    """Replace the thread's document; a stale `version` is 409."""
    resource = one_resource(resource_id, body.resource_id)
    return JSONResponse(
        memory.set_working_memory(
            body.content, thread=thread, resource=resource, format=body.format, version=body.version
        )
    )


@router.post("/threads/{thread}/working-memory", response_model=answers.WorkingMemory)
def change_memory(
    thread: ThreadPath,
    body: Annotated[WorkingMemoryChangeBody, Body(openapi_examples=examples.WORKING_MEMORY_CHANGE)],
    memory: MemoryDep,
    resource_id: ResourceQuery = None,
) -> JSONResponse:
    """What the agent's tool `update_working_memory` was called with: text replaces, an object is merged."""
    resource = one_resource(resource_id, body.resource_id)
    return JSONResponse(memory.update_working_memory(body.memory, thread=thread, resource=resource))


@router.get("/resources/{resource}/working-memory", response_model=answers.WorkingMemory)
def get_resource_memory(resource: ResourcePath, memory: MemoryDep) -> JSONResponse:
    """The document shown in all threads of a resource; version 0 where nothing was written."""
    return JSONResponse(memory.working_memory(resource=resource))


@router.put("/resources/{resource}/working-memory", response_model=answers.WorkingMemory)
def put_resource_memory(
    resource: ResourcePath,
    body: Annotated[WorkingMemoryBody, Body(openapi_examples=examples.WORKING_MEMORY)],
    memory: MemoryDep,
) -> JSONResponse:
    """Replace the resource's document; a stale `version` is 409."""
    resource = one_resource(resource, body.resource_id) or resource
    return JSONResponse(
        memory.set_working_memory(body.content, resource=resource, format=body.format, version=body.version)
    )
