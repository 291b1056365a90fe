"""Running jobs in the test's own thread."""

from __future__ import annotations

from typing import TYPE_CHECKING

from om_core.services.run_jobs import JobRunner

if TYPE_CHECKING:
    from om_core.services.deps import Services

QUEUES = ("observation", "buffering", "reflection")


def work_off(services: Services) -> list[str]:
    """Run what is due, and what becomes due by it, until nothing is; the outcomes."""
    runner = JobRunner(services)
    outcomes: list[str] = []
    try:
        while True:
            before = len(outcomes)
            for queue in QUEUES:
                while (outcome := runner.run(queue)) is not None:
                    outcomes.append(outcome)
            if len(outcomes) == before:
                return outcomes
    finally:
        runner.close()
