"""The faults: how each is injected, what it changes about its stage, how often in the long and the short run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from tests.faults import code_faults, kills, postgres_faults, redis_faults
from tests.faults.stage import LEASE_S, SWEEP_S, Setup, Stage, stage
from tests.faults.starter import CLOCK, LOCK_TIMEOUT, VISIBILITY

if TYPE_CHECKING:
    from tests.faults.fleet import Starter
    from tests.faults.report import Row
    from tests.support.servers import Servers

CALLS: Final = (0.3, 1.0)
"""Model calls long enough to be met."""
TAKEOVER: Final = (LEASE_S + 1.5 * SWEEP_S + 1.0) / LEASE_S
"""A lease, the longest pause between two sweeps, and a second for a busy machine, in leases."""


@dataclass(frozen=True, kw_only=True)
class Fault:
    """`long` and `short` say how often it is injected, `most_leases` how long a recovery may take."""

    name: str
    inject: Callable[[Stage, int], None]
    long: int
    short: int = 1
    most_leases: float | None = None
    setup: Setup = field(default_factory=lambda: Setup(model_s=CALLS))


FAULTS: Final = {
    fault.name: fault
    for fault in (
        Fault(name="kill_model_call", inject=kills.kill_in_call, long=200, short=2, most_leases=TAKEOVER),
        Fault(name="kill_transaction", inject=kills.kill_at_points, long=100, short=2),
        Fault(name="sigterm_drain", inject=kills.stop_and_drain, long=20, short=1),
        Fault(name="freeze_past_lease", inject=kills.freeze_past_lease, long=20, short=1, most_leases=TAKEOVER),
        Fault(name="redis_flushed", inject=redis_faults.flush, long=20, short=1),
        Fault(name="redis_restarted", inject=redis_faults.restart, long=10, short=1),
        Fault(name="redis_away", inject=redis_faults.away, long=2, short=1),
        Fault(name="redis_slow", inject=redis_faults.slow, long=6, short=1),
        Fault(name="postgres_restarted", inject=postgres_faults.restart, long=10, short=1),
        Fault(
            name="cut_before_commit",
            inject=postgres_faults.cut_before_commit,
            long=60,
            short=3,
            setup=Setup(model_s=(0.05, 0.3), proxy=True),
        ),
        Fault(
            name="cut_after_commit",
            inject=postgres_faults.cut_after_commit,
            long=60,
            short=3,
            setup=Setup(model_s=(0.05, 0.3), proxy=True),
        ),
        Fault(name="disk_full", inject=postgres_faults.disk_full, long=5, short=1),
        Fault(
            name="lock_timeout",
            inject=postgres_faults.lock_timeout,
            long=5,
            short=1,
            setup=Setup(model_s=CALLS, variables=({LOCK_TIMEOUT: "300"},)),
        ),
        Fault(
            name="visibility_timeout",
            inject=redis_faults.slow_tasks,
            long=10,
            short=1,
            setup=Setup(model_s=(2.5, 3.5), variables=({VISIBILITY: "1"},)),
        ),
        Fault(
            name="clock_skew",
            inject=code_faults.clock_skew,
            long=10,
            short=1,
            setup=Setup(model_s=CALLS, variables=({CLOCK: "3600"}, {CLOCK: "-3600"})),
        ),
        Fault(name="two_versions", inject=code_faults.two_versions, long=5, short=1),
        Fault(name="restart_canary", inject=redis_faults.canary, long=10, short=1),
    )
}


def run(fault: Fault, servers: Servers, starter: Starter, *, times: int, seed: int = 1, patience: float = 1.0) -> Row:
    """Inject a fault so many times while turns go on; what came of it.

    `patience` multiplies how long a recovery may take, where other work keeps the machine busy.
    """
    with stage(fault.name, servers, starter, fault.setup, seed=seed) as scene:
        scene.start()
        try:
            fault.inject(scene, times)
        except AssertionError as error:  # a recovery that never came: the rest is counted all the same
            scene.problems.append(str(error)[:4000])
        row = scene.finish()
    if fault.most_leases is not None and (row.recovery_leases or 0) > fault.most_leases * patience:
        late = f"a recovery took {row.recovery_leases} leases, at most {fault.most_leases * patience:.1f} are allowed"
        return replace(row, problems=(*row.problems, late))
    return row
