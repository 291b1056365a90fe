"""Usage per day, thread, kind and model: booked with the change that caused it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from om_core.store.tables_service import usage

if TYPE_CHECKING:
    from om_core.domain.thread import ThreadState
    from om_core.ports import FinishedJob
    from om_core.store.session import Session


def book_usage(session: Session, thread: ThreadState, kind: str, model: str, result: FinishedJob) -> None:
    """Add one attempt's tokens and cost to today's row."""
    statement = insert(usage).values(
        tenant_id=session.tenant_id,
        day=sa.text("(clock_timestamp() AT TIME ZONE 'UTC')::date"),
        thread_id=thread.id,
        resource_id=thread.resource_id,
        kind=kind,
        model=model,
        calls=1,
        input_tokens=result.input_tokens,
        output_tokens=result.output_tokens,
        cost_usd=result.cost_usd,
    )
    added = statement.excluded
    session.execute(
        statement.on_conflict_do_update(
            index_elements=["tenant_id", "day", "thread_id", "kind", "model"],
            set_={
                "calls": usage.c.calls + added.calls,
                "input_tokens": usage.c.input_tokens + added.input_tokens,
                "output_tokens": usage.c.output_tokens + added.output_tokens,
                "cost_usd": usage.c.cost_usd + added.cost_usd,
            },
        )
    )
