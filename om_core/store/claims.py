"""Claims, circuit breakers and budgets: the statements behind DESIGN 5's limits (`claim_v1.sql`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from om_core.ports import BreakerRow, BudgetRow
from om_core.store.rows import moment
from om_core.store.session import dumps

if TYPE_CHECKING:
    from om_core.domain.job import Job, JobKind
    from om_core.domain.policy import JobPolicy
    from om_core.domain.thread import ThreadState
    from om_core.ports import ClaimLimits
    from om_core.store.session import Session

CLAIM = "SELECT * FROM om_claim_v1(%s, %s, %s, %s, %s, %s::json)"
GATE = "SELECT extract(epoch FROM om_breaker_gate_v1(%s, %s, %s) - clock_timestamp())"
FAILED = "SELECT om_breaker_failed_v1(%s, %s, %s, %s, %s, %s, %s)"
WORKED = """
UPDATE breakers SET state = 'closed', failures = 0, openings = 0, opened_until = NULL, probe_job = NULL,
       probe_attempt = NULL, updated_at = clock_timestamp()
 WHERE model = %s AND (state <> 'closed' OR failures > 0) RETURNING model
"""
BREAKERS = "SELECT model, state, failures, opened_until FROM breakers ORDER BY model"
BUDGETS = """
SELECT b.scope, b.unit, b.day_limit, b.used, b.reserved, CASE b.unit WHEN 'usd' THEN e.usd ELSE e.tokens END
  FROM om_budget_v1(%s, %s, %s::json) b,
       om_estimate_v1(%s, %s, %s, %s, NULL, %s, %s::json) e
"""


def limits_json(limits: ClaimLimits) -> str:
    """As `om_claim_v1` reads them."""
    return dumps(
        {
            "in_flight": limits.in_flight,
            "favour": limits.favour,
            "budgets": limits.budgets,
            "prices": limits.prices,
        }
    )


def breaker_gate(session: Session, model: str, job: Job) -> float | None:
    """Seconds until the model may be asked again; None: now, perhaps as the probe."""
    [(seconds,)] = session.hot(GATE, (model, job.id, job.attempt))
    return None if seconds is None else max(0.0, float(seconds))


def breaker_failed(session: Session, model: str, job: Job, policy: JobPolicy, after_s: float | None) -> str:
    """Count an outage; the state after it."""
    limits = (policy.breaker_failures, policy.breaker_base_s, policy.breaker_cap_s, after_s or 0.0)
    [(state,)] = session.hot(FAILED, (model, job.id, job.attempt, *limits))
    return str(state)


def breaker_worked(session: Session, model: str) -> bool:
    """Close the breaker and forget its failures; whether there was anything to forget."""
    return bool(session.hot(WORKED, (model,)))


def read_breakers(session: Session) -> tuple[BreakerRow, ...]:
    return tuple(
        BreakerRow(model=model, state=state, failures=failures, opened_until=moment(until))
        for model, state, failures, until in session.hot(BREAKERS)
    )


def read_budgets(
    session: Session, thread: ThreadState, kind: JobKind, models: tuple[str, ...], limits: ClaimLimits
) -> tuple[BudgetRow, ...]:
    """Today's budgets of a thread, against what its next job of this kind would take."""
    asked: tuple[Any, ...] = (
        *(session.tenant_id, thread.id, dumps(limits.budgets)),
        *(session.tenant_id, kind.value, thread.id, thread.memory_id, list(models), dumps(limits.prices)),
    )
    return tuple(
        BudgetRow(
            scope=scope,
            unit=unit,
            limit=float(most),
            used=float(used),
            reserved=float(reserved),
            wanted=float(wanted),
        )
        for scope, unit, most, used, reserved, wanted in session.hot(BUDGETS, asked)
    )
