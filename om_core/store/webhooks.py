"""Webhooks and their deliveries: of one tenant, and found as the system role when they have something to send."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import sqlalchemy as sa

from om_core.ports import Page
from om_core.ports.webhooks import DeliveryRow, NewDelivery, WebhookRow
from om_core.store.cursors import decode_cursor, encode_cursor
from om_core.store.events import settled_position, split_position
from om_core.store.tables_webhooks import webhook_deliveries, webhooks

if TYPE_CHECKING:
    from om_core.store.rows import Row
    from om_core.store.session import Session

KEPT: Final = 1_000
"""Deliveries kept of a webhook: the newest."""
CLAIM: Final = sa.text("""
WITH due AS MATERIALIZED (
    SELECT w.tenant_id, w.id FROM webhooks w
     WHERE w.due_at <= clock_timestamp() AND EXISTS (
           SELECT FROM events e
            WHERE e.tenant_id = w.tenant_id AND (e.xid, e.id) > (w.xid, w.number)
              AND e.xid < pg_snapshot_xmin(pg_current_snapshot())
              AND (w.resource_id IS NULL OR e.resource_id = w.resource_id))
     ORDER BY w.due_at LIMIT :limit FOR NO KEY UPDATE SKIP LOCKED)
UPDATE webhooks w SET due_at = clock_timestamp() + :lease * interval '1 second'
  FROM due WHERE w.tenant_id = due.tenant_id AND w.id = due.id
RETURNING w.tenant_id, w.id
""")
COLUMNS: Final = (
    webhooks.c.id,
    webhooks.c.url,
    webhooks.c.secret,
    webhooks.c.types,
    webhooks.c.resource_id,
    sa.cast(webhooks.c.xid, sa.Text).label("xid"),
    webhooks.c.number,
    webhooks.c.failures,
    webhooks.c.due_at,
    webhooks.c.last_error,
    webhooks.c.created_at,
)


def claim_webhooks(session: Session, *, lease_s: float, limit: int) -> tuple[tuple[str, int], ...]:
    """Implements `ports.SystemStore.due_webhooks`: ids and positions only."""
    rows = session.rows(CLAIM, {"lease": lease_s, "limit": limit})
    return tuple((row["tenant_id"], row["id"]) for row in rows)


def _webhook(row: Row) -> WebhookRow:
    return WebhookRow(
        id=row["id"],
        url=row["url"],
        secret=row["secret"],
        types=tuple(row["types"]),
        resource_id=row["resource_id"],
        position=f"{row['xid']}-{row['number']}",
        failures=row["failures"],
        due_at=row["due_at"],
        last_error=row["last_error"],
        created_at=row["created_at"],
    )


class WebhookRows:
    """Implements `ports.webhooks.Webhooks`."""

    def __init__(self, session: Session) -> None:
        self._session = session

    @property
    def _mine(self) -> sa.ColumnElement[bool]:
        return webhooks.c.tenant_id == self._session.tenant_id

    def add(self, *, url: str, secret: str, types: tuple[str, ...], resource_id: str | None) -> WebhookRow:
        xid, number = split_position(settled_position(self._session))
        row = self._session.first(
            sa.insert(webhooks)
            .values(
                tenant_id=self._session.tenant_id,
                url=url,
                secret=secret,
                types=list(types),
                resource_id=resource_id,
                xid=_xid(xid),
                number=number,
            )
            .returning(*COLUMNS)
        )
        assert row is not None
        return _webhook(row)

    def get(self, webhook_id: int) -> WebhookRow | None:
        row = self._session.first(sa.select(*COLUMNS).where(self._mine, webhooks.c.id == webhook_id))
        return None if row is None else _webhook(row)

    def page(self, *, cursor: str | None, limit: int) -> Page[WebhookRow]:
        query = sa.select(*COLUMNS).where(self._mine).order_by(webhooks.c.id.desc()).limit(limit + 1)
        after = decode_cursor(cursor)
        if after is not None:
            query = query.where(webhooks.c.id < after)
        found = [_webhook(row) for row in self._session.rows(query)]
        return Page(tuple(found[:limit]), encode_cursor(found[limit - 1].id) if len(found) > limit else None)

    def count(self) -> int:
        row = self._session.first(sa.select(sa.func.count().label("n")).select_from(webhooks).where(self._mine))
        return int(row["n"]) if row else 0

    def remove(self, webhook_id: int) -> bool:
        gone = sa.delete(webhooks).where(self._mine, webhooks.c.id == webhook_id).returning(webhooks.c.id)
        return self._session.first(gone) is not None

    def deliveries(self, webhook_id: int, *, cursor: str | None, limit: int) -> Page[DeliveryRow]:
        table = webhook_deliveries
        query = (
            sa.select(table)
            .where(table.c.tenant_id == self._session.tenant_id, table.c.webhook_id == webhook_id)
            .order_by(table.c.id.desc())
            .limit(limit + 1)
        )
        after = decode_cursor(cursor)
        if after is not None:
            query = query.where(table.c.id < after)
        found = [_delivery(row) for row in self._session.rows(query)]
        return Page(tuple(found[:limit]), encode_cursor(found[limit - 1].id) if len(found) > limit else None)

    def conclude(
        self,
        webhook: WebhookRow,
        *,
        position: str,
        failures: int,
        error: str | None,
        pause_s: float,
        log: tuple[NewDelivery, ...],
    ) -> bool:
        xid, number = split_position(position)
        kept = self._session.first(
            sa.update(webhooks)
            # The time of the claim is the fence: a claim by another worker has moved it.
            .where(self._mine, webhooks.c.id == webhook.id, webhooks.c.due_at == webhook.due_at)
            .values(
                xid=_xid(xid),
                number=number,
                failures=failures,
                last_error=error,
                due_at=sa.func.clock_timestamp() + sa.func.make_interval(0, 0, 0, 0, 0, 0, pause_s),
            )
            .returning(webhooks.c.id)
        )
        if kept is None:
            return False
        self._log(webhook.id, log)
        return True

    def _log(self, webhook_id: int, log: tuple[NewDelivery, ...]) -> None:
        table, tenant = webhook_deliveries, self._session.tenant_id
        for item in log:
            self._session.execute(
                sa.insert(table).values(
                    tenant_id=tenant,
                    webhook_id=webhook_id,
                    event_id=item.event_id,
                    type=item.type,
                    attempt=item.attempt,
                    status=item.status,
                    error=item.error,
                    duration_ms=item.duration_ms,
                )
            )
        mine = sa.and_(table.c.tenant_id == tenant, table.c.webhook_id == webhook_id)
        last = sa.select(table.c.id).where(mine).order_by(table.c.id.desc()).offset(KEPT).limit(1).scalar_subquery()
        self._session.execute(sa.delete(table).where(mine, table.c.id <= last))


def _delivery(row: Row) -> DeliveryRow:
    return DeliveryRow(
        id=row["id"],
        event_id=row["event_id"],
        type=row["type"],
        attempt=row["attempt"],
        status=row["status"],
        error=row["error"],
        duration_ms=row["duration_ms"],
        created_at=row["created_at"],
    )


def _xid(value: int) -> sa.ColumnElement[object]:
    return sa.cast(sa.cast(str(value), sa.Text), webhooks.c.xid.type)
