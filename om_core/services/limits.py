"""What a claim has to keep to, and what is left of a thread's budgets (DESIGN 5: limits)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from om_core.domain.errors import SetupError
from om_core.domain.job import JobKind
from om_core.ports import ClaimLimits
from om_core.services.deps import utc_iso
from om_core.services.enqueue import models_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import Protocol

    from om_core.domain.message import JsonObject
    from om_core.domain.policy import MemoryPolicy
    from om_core.domain.thread import ThreadState
    from om_core.ports import BreakerRow, BudgetRow, Transaction
    from om_core.services.deps import Services

    class Price(Protocol):
        """US dollars per token."""

        @property
        def input(self) -> float: ...

        @property
        def output(self) -> float: ...


PER_MILLION = 1_000_000
OPTION = {"tokens": "limits.tokens_per_day", "usd": "limits.usd_per_day"}
STATES = ("closed", "half_open", "open")


def claim_limits(services: Services) -> ClaimLimits:
    """The limits of the installation, as a claim takes them: those in force now, not those a job was made under."""
    limits = services.policies.resolve().limits
    budgets = [(scope, "tokens", float(most)) for scope, most in limits.tokens_per_day.items()]
    budgets += [(scope, "usd", float(most)) for scope, most in limits.usd_per_day.items()]
    return ClaimLimits(in_flight=limits.in_flight, budgets=tuple(budgets), prices=dict(services.prices))


def needed_prices(policy: MemoryPolicy, price_of: Callable[[str], Price | None]) -> dict[str, tuple[float, float]]:
    """Prices of the policy's models, where money is limited.

    Raises:
        SetupError: a model has no price, so a limit in money would not bind.
    """
    if not policy.limits.usd_per_day:
        return {}
    found: dict[str, tuple[float, float]] = {}
    for name in _models(policy):
        if name.startswith("offline/"):
            found[name] = (0.0, 0.0)
            continue
        price = price_of(name)
        if price is None:
            scopes = ", ".join(policy.limits.usd_per_day)
            msg = (
                f"limits.usd_per_day ({scopes}) cannot bind: {name} has no list price. Give one in"
                " limits.prices (US dollars per million tokens), or limit tokens with limits.tokens_per_day"
            )
            raise SetupError(msg)
        found[name] = (price.input, price.output)
    return found


def _models(policy: MemoryPolicy) -> Iterable[str]:
    phases = (policy.observation.model, policy.reflection.model)
    return dict.fromkeys(
        name
        for phase in phases
        for name in (phase.name, *phase.fallbacks, *(model for _, model in phase.by_input_tokens))
    )


def budgets_of(
    tx: Transaction, services: Services, thread: ThreadState, policy: MemoryPolicy, kind: JobKind
) -> tuple[BudgetRow, ...]:
    """Today's budgets of a thread; nothing is read where none is set."""
    limits = claim_limits(services)
    return tx.budgets(thread, kind, models_of(policy, kind), limits) if limits.budgets else ()


def budget_json(rows: Sequence[BudgetRow]) -> JsonObject | None:
    """`status.budget`: per scope and unit what is used, reserved by running jobs and allowed today (UTC)."""
    if not rows:
        return None
    found: JsonObject = {"spent": any(row.spent for row in rows)}
    for row in rows:
        scope = found.setdefault(row.scope, {})
        scope[row.unit] = {"used": row.used, "reserved": row.reserved, "limit": row.limit, "spent": row.spent}
    return found


def budget_reason(rows: Sequence[BudgetRow]) -> str | None:
    """Why work waits for a budget, if it does."""
    row = next((row for row in rows if row.spent), None)
    if row is None:
        return None
    return (
        f"today's budget of the {row.scope} does not suffice for the next job ({row.used + row.reserved:g} of"
        f" {row.limit:g} {row.unit} taken): it goes on at 00:00 UTC, or when {OPTION[row.unit]}.{row.scope} is raised"
    )


def held_back(
    services: Services, policy: MemoryPolicy, budgets: Sequence[BudgetRow], *, running: int
) -> tuple[str, dict[str, str]]:
    """The breaker as `status` shows it, and what keeps work of a thread from being claimed, in words."""
    breakers = services.store.system.breakers()
    reasons: dict[str, str] = {}
    worst = "closed"
    for kind in (JobKind.OBSERVE, JobKind.REFLECT):
        models = models_of(policy, kind)
        state = breaker_of(breakers, models)
        worst = max(worst, state, key=STATES.index)
        if state != "closed":
            until = max(
                (row.opened_until for row in breakers if row.model in models and row.opened_until), default=None
            )
            when = f" until {utc_iso(until)}" if until and state == "open" else "; one call tries it now"
            reasons[f"breaker.{kind.value}"] = f"{', '.join(models)} failed repeatedly: no calls{when}"
    spent = budget_reason(budgets)
    if spent:
        reasons["budget"] = spent
    most = services.policies.resolve().limits.in_flight
    if running >= most:
        reasons["in_flight"] = f"{running} jobs of this tenant are running, as many as limits.in_flight allows"
    return worst, reasons


def may_wait(tx: Transaction, services: Services, thread: ThreadState, policy: MemoryPolicy) -> bool:
    """Whether an observe job could be claimed now (DESIGN 6.4): its breaker is closed, its budget allows it."""
    if breaker_of(services.store.system.breakers(), models_of(policy, JobKind.OBSERVE)) != "closed":
        return False
    return not any(row.spent for row in budgets_of(tx, services, thread, policy, JobKind.OBSERVE))


def breaker_of(breakers: Sequence[BreakerRow], models: Sequence[str]) -> str:
    """The state of the best of these models: while it is not closed, nobody should wait for them."""
    states = {row.model: row.state for row in breakers}
    return min((states.get(model, "closed") for model in models), key=STATES.index, default="closed")
