"""The truth about the queue, and its redrive."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import Query
from fastapi.responses import JSONResponse

from api.deps import MemoryDep
from api.routes.replies import page_json, v1_router
from api.schemas import answers
from api.schemas.fields import CursorQuery, Id, JobPath, LimitQuery, ResourceQuery
from om_core.domain.job import JobKind, JobState

router = v1_router("jobs")


@router.get("/jobs", response_model=answers.ListOf[answers.JobItem])
def list_jobs(
    memory: MemoryDep,
    state: Annotated[JobState | None, Query(description="Only jobs in this state.")] = None,
    kind: Annotated[JobKind | None, Query(description="Only jobs of this kind.")] = None,
    thread: Annotated[Id | None, Query(description="Only jobs of this thread.")] = None,
    resource_id: ResourceQuery = None,
    cursor: CursorQuery = None,
    limit: LimitQuery = 50,
) -> JSONResponse:
    """Jobs, newest first."""
    return page_json(
        memory.jobs(
            state=None if state is None else state.value,
            kind=None if kind is None else kind.value,
            thread=thread,
            resource=resource_id,
            cursor=cursor,
            limit=limit,
        )
    )


@router.post("/jobs/retry", response_model=answers.ListOf[answers.JobItem])
def retry_jobs(
    memory: MemoryDep, state: Annotated[Literal["discarded"], Query(description="Which jobs.", examples=["discarded"])]
) -> JSONResponse:
    """Redrive every discarded job that has no live one in its place; the jobs that are due again."""
    return JSONResponse({"items": memory.retry_discarded(), "next_cursor": None})


@router.get("/jobs/{job_id}", response_model=answers.JobItem)
def get_job(job_id: JobPath, memory: MemoryDep) -> JSONResponse:
    """One job."""
    return JSONResponse(memory.job(job_id))


@router.post("/jobs/{job_id}/retry", response_model=answers.JobItem)
def retry_job(job_id: JobPath, memory: MemoryDep) -> JSONResponse:
    """Run a discarded job again."""
    return JSONResponse(memory.retry_job(job_id))


@router.post("/jobs/{job_id}/cancel", response_model=answers.JobItem)
def cancel_job(job_id: JobPath, memory: MemoryDep) -> JSONResponse:
    """Cancel a live job; a worker that holds it writes nothing."""
    return JSONResponse(memory.cancel_job(job_id))
