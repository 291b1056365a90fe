"""Usage per day, thread, kind and model, and each day's sums per resource and tenant, booked with their cause."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from om_core.domain.thread import ThreadState
    from om_core.ports import FinishedJob
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
