"""Signing in with an API key."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qs

from fastapi import APIRouter
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from api.dashboard.serving import page
from api.dashboard.session import COOKIE, HOURS, resume, sign_in
from api.deps import state_of

if TYPE_CHECKING:
    from starlette.responses import HTMLResponse

router = APIRouter(include_in_schema=False)
WRONG: Final = "This key is not known, was revoked or has expired. Make one with: om keys create"
ELSEWHERE: Final = "This came from another site. Open the dashboard itself and sign in here."
NARROW: Final = "This key is narrowed to a resource or a thread; the dashboard shows a whole tenant. Use another key."


@router.get("/login")
def ask(request: Request, next: str = "/") -> HTMLResponse:
    """The form."""
    return page(request, "login.html", next=_local(next), wrong="")


@router.post("/login")
async def check(request: Request) -> Response:
    """Compare the key, and set the cookie; not for a page from elsewhere, which could sign somebody in as another."""
    if request.headers.get("sec-fetch-site", "same-origin") not in {"same-origin", "none"}:
        return page(request, "login.html", code=403, next="/", wrong=ELSEWHERE)
    given = {name: values[0] for name, values in parse_qs((await request.body()).decode(errors="replace")).items()}
    services = state_of(request).services
    store, now = services.store, services.clock.now()
    where = _local(given.get("next", "/"))
    cookie = await run_in_threadpool(sign_in, store, given.get("key", "").strip(), now)
    session = await run_in_threadpool(resume, store, cookie, now) if cookie else None
    if cookie is None or session is None or session.found is None:
        return page(request, "login.html", code=401, next=where, wrong=WRONG)
    if session.found.reach.narrowed:
        return page(request, "login.html", code=403, next=where, wrong=NARROW)
    answer = RedirectResponse(where, status_code=303)
    answer.set_cookie(
        COOKIE, cookie, max_age=HOURS * 3600, httponly=True, samesite="strict", secure=request.url.scheme == "https"
    )
    return answer


def _local(path: str) -> str:
    """A path of ours to go on to; anything that could lead elsewhere becomes the first page."""
    return path if path.startswith("/") and not path.startswith(("//", "/\\")) and path.isprintable() else "/"
