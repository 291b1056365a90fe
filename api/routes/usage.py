"""What memory costs, as JSON in pages or as CSV in one piece."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import date
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from fastapi import Depends, Query
from fastapi.responses import StreamingResponse
from starlette.responses import Response

from api.deps import MemoryDep, one_resource
from api.routes.replies import page_json, v1_router
from api.schemas import answers
from api.schemas.fields import MAX_LIMIT, Id, LimitQuery, ResourcePath, ResourceQuery
from om_core.domain.errors import InvalidInputError
from om_core.formats.table import csv_lines
from om_core.memory_usage import DEFAULT_BY, USAGE_BY, usage_columns
from om_core.ports import Page, UsageBy

if TYPE_CHECKING:
    from om_core.domain.message import JsonObject

router = v1_router("usage")
CSV: Final[dict[int | str, dict[str, Any]]] = {
    200: {"content": {"text/csv": {"schema": {"type": "string"}, "example": "day,calls\r\n2026-01-31,12\r\n"}}}
}
DEFAULT: Final = ",".join(DEFAULT_BY)
By = Annotated[
    str,
    Query(
        max_length=64,
        description=f"What to sum by, with commas: of {', '.join(USAGE_BY)}; `none` for one sum.",
        examples=["day,model"],
    ),
]
FirstDay = Annotated[date | None, Query(description="First day, UTC.", examples=["2026-01-01"])]
LastDay = Annotated[date | None, Query(description="Last day, UTC, included.", examples=["2999-12-31"])]
Cursor = Annotated[str | None, Query(max_length=4_096, description="`next_cursor` of the page before.")]
Form = Annotated[Literal["json", "csv"], Query(description="`csv` has every row: no `cursor` and `limit`.")]


class Asked:
    """The query parameters that both routes have."""

    def __init__(
        self,
        by: By = DEFAULT,
        first_day: FirstDay = None,
        last_day: LastDay = None,
        format: Form = "json",
        cursor: Cursor = None,
        limit: LimitQuery = 50,
    ) -> None:
        self.by: list[UsageBy] = [] if by == "none" else by.split(",")  # type: ignore[assignment]  # `usage` checks
        self.days = {"first_day": first_day, "last_day": last_day}
        self.format = format
        self.cursor = cursor
        self.limit = limit


AskedDep = Annotated[Asked, Depends()]


@router.get("/usage", response_model=answers.ListOf[answers.UsageItem], responses=CSV)
def get_usage(
    memory: MemoryDep,
    asked: AskedDep,
    resource_id: ResourceQuery = None,
    thread: Annotated[Id | None, Query(description="Only this thread's.")] = None,
) -> Response:
    """Model calls, tokens and US dollars of everything, or of one resource or thread."""
    return _answer(asked, lambda **page: memory.usage(resource=resource_id, thread=thread, **page))


@router.get("/resources/{resource}/usage", response_model=answers.ListOf[answers.UsageItem], responses=CSV)
def get_resource_usage(
    resource: ResourcePath, memory: MemoryDep, asked: AskedDep, resource_id: ResourceQuery = None
) -> Response:
    """Model calls, tokens and US dollars of one resource."""
    chosen = one_resource(resource_id, resource)
    return _answer(asked, lambda **page: memory.usage(resource=chosen, **page))


def _answer(asked: Asked, read: Callable[..., Page[JsonObject]]) -> Response:
    if asked.format == "json":
        return page_json(read(by=asked.by, cursor=asked.cursor, limit=asked.limit, **asked.days))
    if asked.cursor is not None:
        raise InvalidInputError("CSV has every row; leave the parameter out", path="cursor")
    first = read(by=asked.by, limit=MAX_LIMIT, **asked.days)
    return StreamingResponse(
        _csv(asked, read, first),
        media_type="text/csv",
        headers={"Content-Disposition": 'attachment; filename="usage.csv"'},
    )


def _csv(asked: Asked, read: Callable[..., Page[JsonObject]], page: Page[JsonObject]) -> Iterator[str]:
    """Page after page; what is wrong with the request was found with the first."""
    columns = usage_columns(asked.by)
    yield csv_lines(columns, page.items)
    while page.next_cursor is not None:
        page = read(by=asked.by, cursor=page.next_cursor, limit=MAX_LIMIT, **asked.days)
        yield csv_lines(columns, page.items, header=False)
