"""Usage per day, thread, kind and model: booked with the change that caused it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from om_core.store.prepared import Prepared, given
from om_core.store.tables_service import usage

if TYPE_CHECKING:
    from om_core.domain.thread import ThreadState
    from om_core.ports import FinishedJob
    from om_core.store.session import Session


_NEW = insert(usage).values(
    day=sa.text("(clock_timestamp() AT TIME ZONE 'UTC')::date"),
    calls=sa.literal_column("1"),
    **given("tenant_id", "thread_id", "resource_id", "kind", "model", "input_tokens", "output_tokens", "cost_usd"),
)
BOOK = Prepared(
    _NEW.on_conflict_do_update(
        index_elements=["tenant_id", "day", "thread_id", "kind", "model"],
        set_={
            name: usage.c[name] + _NEW.excluded[name] for name in ("calls", "input_tokens", "output_tokens", "cost_usd")
        },
    )
)


def book_usage(session: Session, thread: ThreadState, kind: str, model: str, result: FinishedJob) -> None:
    """Add one attempt's tokens and cost to today's row."""
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
