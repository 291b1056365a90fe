"""Many seeds in a row, each failure made short; and the mutants, each until it is caught."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count, islice
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from om_core.store.engine import PostgresStore
from tests.fuzz.mutants import MUTANTS, SHARED, THEMES, mutant
from tests.fuzz.processes import OPERATIONS as PROCESS_OPERATIONS
from tests.fuzz.schedule import Outcome, draw, play, play_processes, shrink

if TYPE_CHECKING:
    import psycopg2.extensions

    from tests.support.servers import Servers

MUTANT_SEEDS: Final = 50
PROCESS_EVERY: Final = 20
"""Every 20th seed is played by two real processes too."""


@dataclass(slots=True)
class Report:
    """What a campaign came to (API 1, `fuzz.json`)."""

    seeds: int = 0
    operations: int = 0
    violations: int = 0
    failing_seeds: list[int] = field(default_factory=list)
    mutants: dict[str, int | None] = field(default_factory=dict)
    """Name: how many seeds it took to catch it; None: not caught."""
    seconds: float = 0.0
    process_runs: int = 0
    detail: list[dict[str, Any]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Arena:
    """A database of its own, and both ways into it."""

    url: str
    store: PostgresStore
    admin: psycopg2.extensions.connection


@contextmanager
def arena(servers: Servers) -> Iterator[Arena]:
    """An empty migrated database; dropped at the end."""
    with servers.new_database() as url:
        store = PostgresStore(url, pool_size=20)
        admin = servers.admin(url.split("@/")[1].split("?")[0])
        try:
            yield Arena(url, store, admin)
        finally:
            admin.close()
            store.close()


def run(
    place: Arena,
    seeds: Sequence[int],
    *,
    process_every: int = PROCESS_EVERY,
    told: Callable[[str], None] = lambda line: None,
    done: Callable[[Report], None] = lambda report: None,
) -> Report:
    """Play every seed; `told` hears of failures, `done` of the state after each seed."""
    report, started = Report(), monotonic()
    for index, seed in enumerate(seeds):
        plan = draw(seed)
        outcome = play(place.store, place.admin, plan)
        report.operations += len(plan.steps)
        if outcome.findings:
            outcome = shrink(place.store, place.admin, outcome)
        _count(report, seed, outcome, told)
        if process_every and index % process_every == process_every - 1:
            outcome = play_processes(place.store, place.admin, place.url, seed)
            report.process_runs += 1
            report.operations += 2 * PROCESS_OPERATIONS
            _count(report, seed, outcome, told)
        report.seeds += 1
        report.seconds = round(monotonic() - started, 1)
        done(report)
    return report


def _count(report: Report, seed: int, outcome: Outcome, told: Callable[[str], None]) -> None:
    if not outcome.findings:
        return
    report.violations += len(outcome.findings)
    report.failing_seeds += [seed] if seed not in report.failing_seeds else []
    steps = [str(step) for step in outcome.plan.steps]
    report.detail.append({"seed": seed, "findings": outcome.findings[:10], "steps": steps, "trail": outcome.trail})
    told(f"seed {seed}: {len(outcome.findings)} findings with {', '.join(steps) or 'two processes'}")
    for finding in outcome.findings[:5]:
        told(f"  {finding}")
    told(f"  again: .venv/bin/python -m tests.fuzz --seed {seed}")


def hunt(place: Arena, names: Sequence[str] = tuple(MUTANTS), limit: int = MUTANT_SEEDS) -> dict[str, int | None]:
    """Seeds of the guard's theme that each mutant took to be caught; None: none of them caught it. Guards that only a
    shared memory has are hunted where there is one.
    """
    found: dict[str, int | None] = {}
    for name in names:
        mine = (plan for plan in map(draw, count()) if plan.theme == THEMES[name])
        plans = (plan for plan in mine if name not in SHARED or plan.scope == "resource")
        with mutant(name, place.admin):
            tries = enumerate(islice(plans, limit), start=1)
            found[name] = next((n for n, plan in tries if play(place.store, place.admin, plan).findings), None)
    return found
