"""The event log: written with the change it reports, read in an order that is safe to resume from (API 4)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import sqlalchemy as sa

from om_core.domain.errors import InvalidInputError
from om_core.ports import EventRow, News
from om_core.store.reach import of_threads_within
from om_core.store.session import dumps
from om_core.store.tables_service import events

if TYPE_CHECKING:
    from collections.abc import Sequence

    from om_core.ports import NewEvent
    from om_core.store.rows import Row
    from om_core.store.session import Session

SETTLED = sa.text("xid < pg_snapshot_xmin(pg_current_snapshot())")
"""A row whose transaction, and every older one that wrote events, has ended."""

EVENT_ID: Final = re.compile("([0-9]{1,20})-([0-9]{1,19})")
NEWS_LIMIT: Final = 2_000
NEWS: Final = sa.text("""
SELECT tenant_id, thread_id, resource_id, xid::text AS xid, id FROM events
 WHERE (xid, id) > (CAST(CAST(:xid AS text) AS xid8), :number) AND xid < pg_snapshot_xmin(pg_current_snapshot())
 ORDER BY events.xid, id LIMIT :limit
""")


def event_params(event: NewEvent) -> dict[str, Any]:
    """A row for `om_insert_events_v1`."""
    return {
        "thread_id": event.thread_id,
        "resource_id": event.resource_id,
        "type": event.type,
        "payload": event.payload,
    }


def split_position(event_id: str) -> tuple[int, int]:
    found = EVENT_ID.fullmatch(event_id)
    if found is None or int(found[1]) >= 2**64 or int(found[2]) >= 2**63:
        msg = f"{event_id[:64]!r} is not an event id: pass the `id` of the last event seen, unchanged"
        raise InvalidInputError(msg, path="last_event_id")
    return int(found[1]), int(found[2])


def _row(row: Row) -> EventRow:
    return EventRow(
        id=f"{row['xid']}-{row['id']}",
        type=row["type"],
        thread_id=row["thread_id"],
        payload=row["payload"],
        created_at=row["created_at"],
    )


def settled_position(session: Session) -> str:
    """Before every event whose transaction has not ended, after all others."""
    xmin = session.rows(sa.text("SELECT pg_snapshot_xmin(pg_current_snapshot())::text AS xmin"))[0]["xmin"]
    return f"{xmin}-0"


def read_news(session: Session, position: str | None) -> News:
    """Implements `ports.SystemStore.news`: ids only."""
    if position is None:
        return News(position=settled_position(session), targets=frozenset(), more=False)
    xid, number = split_position(position)
    rows = session.rows(NEWS, {"xid": str(xid), "number": number, "limit": NEWS_LIMIT})
    if not rows:
        return News(position=position, targets=frozenset(), more=False)
    targets = frozenset((row["tenant_id"], row["thread_id"], row["resource_id"]) for row in rows)
    return News(position=f"{rows[-1]['xid']}-{rows[-1]['id']}", targets=targets, more=len(rows) == NEWS_LIMIT)


class EventRows:
    """Implements `ports.storage.Events`."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def add(self, new: Sequence[NewEvent]) -> None:
        if new:
            self._session.later(
                "SELECT om_insert_events_v1(%s::json)", (dumps([event_params(event) for event in new]),)
            )

    def position(self) -> str:
        return settled_position(self._session)

    def after(
        self, *, thread_id: int | None, resource_id: str | None, last_id: str | None, limit: int
    ) -> tuple[EventRow, ...]:
        xid = sa.cast(events.c.xid, sa.Text).label("xid")
        query = sa.select(
            xid, events.c.id, events.c.type, events.c.thread_id, events.c.payload, events.c.created_at
        ).where(
            events.c.tenant_id == self._session.tenant_id,
            SETTLED,
            *of_threads_within(self._session, events.c.thread_id),
        )
        if thread_id is not None:
            query = query.where(events.c.thread_id == thread_id)
        else:
            resource_id = resource_id or self._session.reach.resource
        if resource_id is not None:
            query = query.where(events.c.resource_id == resource_id)
        if last_id is None:
            newest = query.order_by(events.c.xid.desc(), events.c.id.desc()).limit(limit)
            return tuple(reversed([_row(row) for row in self._session.rows(newest)]))
        last_xid, last_number = split_position(last_id)
        resumed = query.where(
            sa.text("(events.xid, events.id) > (CAST(CAST(:xid AS text) AS xid8), :number)").bindparams(
                xid=str(last_xid), number=last_number
            )
        )
        return tuple(_row(row) for row in self._session.rows(resumed.order_by(events.c.xid, events.c.id).limit(limit)))
