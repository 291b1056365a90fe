"""How pages are made and sent: templates, headers, error pages, the session of each request."""

from __future__ import annotations

import hmac
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qs, quote

from fastapi.routing import APIRoute
from jinja2 import Environment, PackageLoader, StrictUndefined, pass_context
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.staticfiles import StaticFiles

from api import access
from api.dashboard.session import COOKIE, Session, resume, without_key
from api.deps import state_of
from api.errors import STATUS_OF, TITLES
from om_core.domain.errors import ForbiddenError, OmError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from datetime import datetime

    from jinja2.runtime import Context

    from om_core.memory import Memory

HEADERS: Final = {
    # Nothing from elsewhere, nothing inline: text of a conversation can run nothing, even if escaping failed.
    "Content-Security-Policy": "default-src 'self'; frame-ancestors 'none'; form-action 'self'; base-uri 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-store",
}


def static_files() -> StaticFiles:
    """The style sheet and the script."""
    return StaticFiles(directory=Path(__file__).parent / "static")


@pass_context
def ago(values: Context, moment: datetime | None) -> str:
    """How long before the page was made, in the largest unit that fits."""
    return "never" if moment is None else f"{span((values['now'] - moment).total_seconds())} ago"


def span(seconds: float | None) -> str:
    """A length of time in words."""
    if seconds is None:
        return "–"
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{max(0.0, seconds):.0f} s"


def number(value: float | None) -> str:
    """With thousands separated."""
    return "–" if value is None else f"{value:,.0f}"


def money(value: float | None) -> str:
    """US dollars."""
    return "–" if value is None else f"${value:,.4f}"


def path_of(thread: str, resource: str, page: str = "", **query: object) -> str:
    """The address of a thread's page."""
    more = "".join(f"&{name}={quote(str(value), safe='')}" for name, value in query.items())
    return f"/threads/{quote(thread, safe='')}{page}?resource_id={quote(resource, safe='')}{more}"


_PAGES: Final = Environment(
    loader=PackageLoader("api.dashboard"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_PAGES.filters |= {"ago": ago, "span": span, "number": number, "money": money}
_PAGES.globals |= {"path_of": path_of}


def page(request: Request, template: str, *, code: int = 200, **values: Any) -> HTMLResponse:
    """A page, or a part of one, for this request's viewer."""
    session: Session | None = getattr(request.state, "om_session", None)
    text = _PAGES.get_template(template).render(
        **{
            "csrf": session.csrf if session else "",
            "signed_in": session is not None and session.found is not None,
            "here": request.url.path,
            "now": state_of(request).services.clock.now(),
            "flower": state_of(request).flower_url(request.url.hostname),
            **values,
        }
    )
    return HTMLResponse(text, status_code=code, headers=HEADERS)


def memory_of(request: Request) -> Memory:
    """Memory of the viewer's tenant."""
    return access.memory_of(state_of(request), request.state.access)


class PageRoute(APIRoute):
    """A page for signed-in viewers; others are sent to the login. Errors become pages."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def shown(request: Request) -> Response:
            session = await run_in_threadpool(_session, request)
            if session is None:
                return RedirectResponse(f"/login?next={quote(_where(request), safe='')}", status_code=303)
            request.state.om_session = session
            request.state.access = session.access
            try:
                return await handle(request)
            except OmError as error:
                status = next(STATUS_OF[kind] for kind in type(error).__mro__ if kind in STATUS_OF)
                title = TITLES.get(error.code, "That did not work")
                return page(request, "error.html", code=status, title=title, detail=str(error))

        return shown


def _session(request: Request) -> Session | None:
    state = state_of(request)
    if state.auth == "off":
        return without_key()
    cookie = request.cookies.get(COOKIE)
    session = resume(state.services.store, cookie, state.services.clock.now()) if cookie else None
    # Who holds a key can sign a cookie with it, so a narrowed one is refused here too, not only at the login.
    return None if session is not None and session.access.reach.narrowed else session


def _where(request: Request) -> str:
    return request.url.path + (f"?{request.url.query}" if request.url.query else "")


async def form_of(request: Request) -> dict[str, str]:
    """The fields of a form that this session's own page sent.

    Raises:
        ForbiddenError: another site sent it, or the session has ended meanwhile, or it may only read.
    """
    session: Session = request.state.om_session
    given = {name: values[0] for name, values in parse_qs((await request.body()).decode(errors="replace")).items()}
    if request.headers.get("sec-fetch-site", "same-origin") != "same-origin" or not hmac.compare_digest(
        given.get("csrf", "").encode(), session.csrf.encode()
    ):
        raise ForbiddenError("the form does not come from this page; open the page again and repeat it")
    if session.access.reach.read_only:
        raise ForbiddenError("this key may only read")
    return given
