"""Usage per day, thread, kind and model, and each day's sums per resource and tenant, booked with their cause."""

from __future__ import annotations

from datetime import date
from typing import TYPE_CHECKING, Any, Final

import sqlalchemy as sa

from om_core.domain.errors import InvalidInputError
from om_core.ports import Page, UsageRow
from om_core.store.cursors import NOT_A_CURSOR, decode_place, encode_place
from om_core.store.reach import of_threads_within
from om_core.store.tables import threads
from om_core.store.tables_service import usage

if TYPE_CHECKING:
    from collections.abc import Mapping

    from om_core.domain.thread import ThreadState
    from om_core.ports import FinishedJob, UsageQuery
    from om_core.store.rows import Row
    from om_core.store.session import Session

BOOK: Final = """
WITH today AS (SELECT (clock_timestamp() AT TIME ZONE 'UTC')::date AS day),
booked AS (
    INSERT INTO usage AS u (tenant_id, day, thread_id, resource_id, kind, model, calls, input_tokens, output_tokens,
                            cost_usd)
    SELECT %(tenant_id)s, day, %(thread_id)s, %(resource_id)s, %(kind)s, %(model)s, 1, %(input_tokens)s,
           %(output_tokens)s, %(cost_usd)s FROM today
        ON CONFLICT (tenant_id, day, thread_id, kind, model) DO UPDATE
       SET calls = u.calls + 1, input_tokens = u.input_tokens + excluded.input_tokens,
           output_tokens = u.output_tokens + excluded.output_tokens, cost_usd = u.cost_usd + excluded.cost_usd)
INSERT INTO spending AS s (tenant_id, day, scope, scope_key, tokens, cost_usd)
SELECT %(tenant_id)s, day, scope, scope_key, %(input_tokens)s + %(output_tokens)s, %(cost_usd)s
  FROM today, (VALUES ('resource', %(resource_id)s), ('tenant', '')) AS of (scope, scope_key)
    ON CONFLICT (tenant_id, day, scope, scope_key) DO UPDATE
   SET tokens = s.tokens + excluded.tokens, cost_usd = s.cost_usd + excluded.cost_usd
"""
"""Always the resource's row before the tenant's: two that book at once cannot wait for each other."""


def book_usage(session: Session, thread: ThreadState, kind: str, model: str, result: FinishedJob) -> None:
    """Add one attempt's tokens and cost to today's rows."""
    booked = {
        "tenant_id": session.tenant_id,
        "thread_id": thread.id,
        "resource_id": thread.resource_id,
        "kind": kind,
        "model": model,
        "input_tokens": result.input_tokens,
        "output_tokens": result.output_tokens,
        "cost_usd": result.cost_usd,
    }
    session.later(BOOK, booked)


GROUPS: Final[Mapping[str, tuple[sa.Column[Any], ...]]] = {
    "day": (usage.c.day,),
    "resource": (usage.c.resource_id,),
    "thread": (usage.c.resource_id, usage.c.thread_id),
    "kind": (usage.c.kind,),
    "model": (usage.c.model,),
}
SUMS: Final = ("calls", "input_tokens", "output_tokens", "cost_usd")


def usage_page(session: Session, query: UsageQuery) -> Page[UsageRow]:
    """Implements `ports.Transaction.usage`."""
    columns = list(dict.fromkeys(column for name in query.by for column in GROUPS[name]))
    mine = usage.c.tenant_id == session.tenant_id
    sums = [sa.func.coalesce(sa.func.sum(usage.c[name]), 0).label(name) for name in SUMS]
    found = sa.select(*columns, *sums).where(mine, *_chosen(session, query)).group_by(*columns).order_by(*columns)
    if query.cursor is not None:
        found = found.where(sa.tuple_(*columns) > sa.tuple_(*_values(columns, query.cursor)))
    rows = session.rows(found.limit(query.limit + 1))
    more, rows = len(rows) > query.limit, rows[: query.limit]
    names = _thread_names(session, {row["thread_id"] for row in rows}) if "thread" in query.by else {}
    items = tuple(_usage_row(query, row, names) for row in rows)
    return Page(items, encode_place([_packed(rows[-1][column.name]) for column in columns]) if more else None)


def _chosen(session: Session, query: UsageQuery) -> list[sa.ColumnElement[bool]]:
    reach = session.reach
    chosen = [usage.c.resource_id == reach.resource] if reach.narrowed else []
    if reach.thread is not None:
        chosen += of_threads_within(session, usage.c.thread_id)
    for column, value in ((usage.c.resource_id, query.resource), (usage.c.thread_id, query.thread_id)):
        if value is not None:
            chosen.append(column == value)
    if query.first_day is not None:
        chosen.append(usage.c.day >= query.first_day)
    if query.last_day is not None:
        chosen.append(usage.c.day <= query.last_day)
    return chosen


def _packed(value: Any) -> str | int:
    return value.isoformat() if isinstance(value, date) else value


def _values(columns: list[sa.Column[Any]], cursor: str) -> list[Any]:
    """The values of a cursor, of the columns' types."""
    kinds = [int if column is usage.c.thread_id else str for column in columns]
    values: list[Any] = list(decode_place(cursor, kinds))
    for index, column in enumerate(columns):
        if column is usage.c.day:
            try:
                values[index] = date.fromisoformat(values[index])
            except ValueError as error:
                raise InvalidInputError(NOT_A_CURSOR, path="cursor") from error
    return [sa.literal(value, column.type) for value, column in zip(values, columns, strict=True)]


def _thread_names(session: Session, ids: set[int]) -> dict[int, str]:
    query = sa.select(threads.c.id, threads.c.external_id)
    rows = session.rows(query.where(threads.c.tenant_id == session.tenant_id, threads.c.id.in_(ids)))
    return {row["id"]: row["external_id"] for row in rows}


def _usage_row(query: UsageQuery, row: Row, names: Mapping[int, str]) -> UsageRow:
    group: dict[str, str | None] = {}
    for name in query.by:
        if name == "thread":
            group |= {"resource": row["resource_id"], "thread": names.get(row["thread_id"])}
        else:
            group[name] = str(_packed(row[GROUPS[name][0].name]))
    return UsageRow(
        group=group,
        calls=int(row["calls"]),
        input_tokens=int(row["input_tokens"]),
        output_tokens=int(row["output_tokens"]),
        cost_usd=float(row["cost_usd"]),
    )
