"""Work asked for by hand: observe, reflect, activate, flush."""

from __future__ import annotations

from typing import Annotated

from fastapi import Body, Depends
from fastapi.responses import JSONResponse

from api import waiting
from api.deps import MemoryDep, get_waiter, one_resource
from api.routes.replies import v1_router
from api.schemas import answers, examples
from api.schemas.fields import ResourceQuery, ThreadPath
from api.schemas.requests import ReflectBody, WaitBody
from om_core.services.waiting import JobWaiter

router = v1_router("work by hand")
WaiterDep = Annotated[JobWaiter, Depends(get_waiter)]
Wait = Annotated[WaitBody | None, Body(openapi_examples=examples.WAIT)]


@router.post("/threads/{thread}/observe", response_model=answers.Asked)
async def observe(
    thread: ThreadPath, memory: MemoryDep, waiter: WaiterDep, body: Wait = None, resource_id: ResourceQuery = None
) -> JSONResponse:
    """Observe everything pending up to the last cut, whatever the thresholds say."""
    given = body or WaitBody()
    resource = one_resource(resource_id, given.resource_id)
    asked = await waiting.ask(memory, waiter, lambda: memory.observe(thread, resource=resource), given.wait_s)
    return JSONResponse(asked)


@router.post("/threads/{thread}/reflect", response_model=answers.Asked)
async def reflect(
    thread: ThreadPath,
    memory: MemoryDep,
    waiter: WaiterDep,
    body: Annotated[ReflectBody | None, Body(openapi_examples=examples.REFLECT)] = None,
    resource_id: ResourceQuery = None,
) -> JSONResponse:
    """Condense the log now; `guidance` is shown to the Reflector."""
    given = body or ReflectBody()
    resource = one_resource(resource_id, given.resource_id)
    asked = await waiting.ask(
        memory, waiter, lambda: memory.reflect(thread, resource=resource, guidance=given.guidance), given.wait_s
    )
    return JSONResponse(asked)


@router.post("/threads/{thread}/activate", response_model=answers.ActivateAnswer)
def activate(
    thread: ThreadPath, memory: MemoryDep, body: Wait = None, resource_id: ResourceQuery = None
) -> JSONResponse:
    """Move every ready chunk into the log; nothing is waited for."""
    given = body or WaitBody()
    return JSONResponse(memory.activate(thread, resource=one_resource(resource_id, given.resource_id)))


@router.post("/threads/{thread}/flush", response_model=answers.FlushAnswer)
async def flush(
    thread: ThreadPath, memory: MemoryDep, waiter: WaiterDep, body: Wait = None, resource_id: ResourceQuery = None
) -> JSONResponse:
    """Observe everything pending to the last cut, wait (at most `wait_s`, 120 unless given), activate."""
    given = body or WaitBody()
    resource = one_resource(resource_id, given.resource_id)
    return JSONResponse(await waiting.flush(memory, waiter, thread, resource, given.wait_s))
