"""The pages: reading ones, what live pages fetch again, and the forms' targets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

from fastapi import APIRouter, Query
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from api.dashboard import views
from api.dashboard.serving import HEADERS, PageRoute, form_of, memory_of, page, path_of
from api.dashboard.session import COOKIE
from api.routes.events import EventStream, LastEventId, open_stream
from api.schemas.fields import Id
from om_core.domain.job import JobKind, JobState

if TYPE_CHECKING:
    from starlette.responses import HTMLResponse

router = APIRouter(route_class=PageRoute, include_in_schema=False)

PAGE_SIZE: Final = 50
Text = Annotated[str, Query(max_length=256)]
Resource = Annotated[str, Query(alias="resource_id", max_length=256)]
SEE_OTHER: Final = 303


@router.get("/")
def threads(request: Request, q: Text = "", cursor: Text = "") -> HTMLResponse:
    """All threads of the tenant, newest first; `q` searches ids, titles and resources."""
    found = memory_of(request).threads(search=q.strip() or None, cursor=cursor or None, limit=PAGE_SIZE)
    return page(request, "threads.html", found=found, q=q)


@router.get("/threads/{thread}")
def thread(request: Request, thread: Id, resource: Resource) -> HTMLResponse:
    """What memory does for a thread now, and its events."""
    memory = memory_of(request)
    return page(
        request,
        "thread.html",
        **views.head(memory, thread, resource),
        **views.now(memory, thread, resource),
    )


@router.get("/threads/{thread}/now")
def thread_now(request: Request, thread: Id, resource: Resource) -> HTMLResponse:
    """The part of the thread's page that changes as events come."""
    memory = memory_of(request)
    return page(request, "now.html", **views.head(memory, thread, resource), **views.now(memory, thread, resource))


@router.get("/threads/{thread}/context")
def thread_context(request: Request, thread: Id, resource: Resource) -> HTMLResponse:
    """The prompt that the agent would get now."""
    memory = memory_of(request)
    return page(
        request, "context.html", **views.head(memory, thread, resource), **views.context(memory, thread, resource)
    )


@router.get("/threads/{thread}/log")
def thread_log(request: Request, thread: Id, resource: Resource, cursor: Text = "") -> HTMLResponse:
    """The log, and the chunks that wait for activation, each with the messages it was made from."""
    memory = memory_of(request)
    return page(
        request, "log.html", **views.head(memory, thread, resource), **views.log(memory, thread, resource, cursor)
    )


@router.get("/threads/{thread}/reflections")
def thread_reflections(request: Request, thread: Id, resource: Resource, cursor: Text = "") -> HTMLResponse:
    """Generations, each compared with the one before."""
    memory = memory_of(request)
    return page(
        request,
        "reflections.html",
        **views.head(memory, thread, resource),
        **views.generations(memory, thread, resource, cursor),
    )


@router.get("/threads/{thread}/messages")
def thread_messages(
    request: Request,
    thread: Id,
    resource: Resource,
    first: Annotated[int, Query(ge=1)] = 1,
    last: Annotated[int | None, Query(ge=1)] = None,
    part: Text = "",
) -> HTMLResponse:
    """Stored messages from `first` to `last`; `part` asks for the list alone, to be shown inside a page."""
    memory = memory_of(request)
    shown = views.messages(memory, thread, resource, first, last)
    template = "messages_part.html" if part else "messages.html"
    return page(request, template, **views.head(memory, thread, resource), **shown)


@router.get("/threads/{thread}/live", response_class=EventStream, status_code=200)
async def thread_live(
    request: Request, thread: Id, resource: Resource, last_event_id: LastEventId = None
) -> EventStream:
    """The thread's events for the page's script."""
    memory = memory_of(request)
    found = await run_in_threadpool(memory.get_thread, thread, resource=resource)
    return await open_stream(request, memory, last_event_id, thread_id=found.id, resource_id=None)


@router.get("/jobs")
def jobs(request: Request, state: Text = "", kind: Text = "", cursor: Text = "") -> HTMLResponse:
    """Every job with its reason, and what can be done about it."""
    found = memory_of(request).jobs(
        state=state if state in set(JobState) else None,
        kind=kind if kind in set(JobKind) else None,
        cursor=cursor or None,
        limit=PAGE_SIZE,
    )
    return page(request, "jobs.html", found=found, state=state, kind=kind, states=list(JobState), kinds=list(JobKind))


@router.get("/workers")
def workers(request: Request) -> HTMLResponse:
    """Workers, queues and their ages, circuit breakers."""
    return page(request, "workers.html", **views.workers(memory_of(request)))


@router.get("/usage")
def usage(request: Request, cursor: Text = "") -> HTMLResponse:
    """What model calls cost, by day and model."""
    return page(request, "usage.html", **views.usage(memory_of(request), cursor))


@router.get("/usage.csv")
def usage_csv(request: Request) -> Response:
    """The same as a table for spreadsheets, with every row."""
    headers = {**HEADERS, "Content-Disposition": 'attachment; filename="usage.csv"'}
    return Response(views.usage_csv(memory_of(request)), media_type="text/csv", headers=headers)


@router.get("/invariants")
def invariants(request: Request, cursor: Text = "") -> HTMLResponse:
    """The promises, checked now for a page of threads."""
    return page(request, "invariants.html", **views.invariants(memory_of(request), cursor))


# What forms do


@router.post("/threads/{thread}/do/{action}")
async def act_on_thread(request: Request, thread: Id, action: str, resource: Resource) -> Response:
    """Observe, reflect, activate or restore, as the buttons say."""
    form = await form_of(request)
    memory = memory_of(request)
    await run_in_threadpool(views.act, memory, thread, resource, action, form)
    back = "/reflections" if action == "restore" else ""
    return RedirectResponse(path_of(thread, resource, back), status_code=SEE_OTHER)


@router.post("/jobs/{job_id}/{action}")
async def act_on_job(request: Request, job_id: int, action: str) -> Response:
    """Retry a discarded job, or cancel a live one."""
    await form_of(request)
    await run_in_threadpool(views.act_on_job, memory_of(request), job_id, action)
    return RedirectResponse("/jobs", status_code=SEE_OTHER)


@router.post("/retry-discarded")
async def retry_discarded(request: Request) -> Response:
    """Redrive everything that was given up."""
    await form_of(request)
    await run_in_threadpool(memory_of(request).retry_discarded)
    return RedirectResponse("/jobs", status_code=SEE_OTHER)


@router.post("/logout")
async def logout(request: Request) -> Response:
    """End the session in this browser."""
    answer = RedirectResponse("/login", status_code=SEE_OTHER)
    answer.delete_cookie(COOKIE)
    return answer
