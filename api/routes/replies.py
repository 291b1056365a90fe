"""What every route module shares: the router for `/v1`, pages, and the problem responses of the OpenAPI document."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from fastapi import APIRouter
from fastapi.responses import JSONResponse

from api.deps import KeyedRoute
from api.errors import MEDIA_TYPE

if TYPE_CHECKING:
    from collections.abc import Callable

    from om_core.ports import Page

PROBLEM_SCHEMA: Final = "#/components/schemas/Problem"
_MEANING: Final = {
    400: "The body cannot be read",
    401: "A key is needed",
    403: "The key may not do this",
    404: "No such thing",
    409: "It contradicts what is stored, or several resources have this thread",
    413: "The body is too large",
    422: "A field or parameter is wrong",
    429: "Too many requests with this key; the header Retry-After says when to go on",
    503: "A server the service needs is away",
}


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Entries of the OpenAPI document for these statuses."""
    content = {MEDIA_TYPE: {"schema": {"$ref": PROBLEM_SCHEMA}}}
    return {status: {"description": _MEANING[status], "content": content} for status in statuses}


def v1_router(tag: str) -> APIRouter:
    """A router for authenticated routes with strict parameters."""
    return APIRouter(
        prefix="/v1",
        tags=[tag],
        route_class=KeyedRoute,
        responses=problems(400, 401, 403, 404, 409, 413, 422, 429, 503),
    )


def page_json(page: Page[Any], view: Callable[[Any], Any] | None = None) -> JSONResponse:
    """A list answer."""
    items = list(page.items) if view is None else [view(item) for item in page.items]
    return JSONResponse({"items": items, "next_cursor": page.next_cursor})
