"""Timing operations in turn, so that whatever else the machine does falls on all of them alike."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import fmean, median, quantiles
from typing import Any, TypeAlias

Operation: TypeAlias = Callable[[], object]
Tend: TypeAlias = Callable[[], object]


@dataclass(frozen=True)
class Samples:
    """Seconds of one operation, in the order measured."""

    seconds: tuple[float, ...]

    @property
    def median(self) -> float:
        return median(self.seconds)

    def summary(self) -> dict[str, Any]:
        """In microseconds."""
        hundredths = quantiles(self.seconds, n=100, method="inclusive") if len(self.seconds) > 1 else []
        return {
            "median_us": round(self.median * 1e6, 1),
            "mean_us": round(fmean(self.seconds) * 1e6, 1),
            "p95_us": round((hundredths[94] if hundredths else self.median) * 1e6, 1),
            "samples": len(self.seconds),
        }


def interleaved(
    operations: Mapping[str, Operation],
    rounds: int,
    *,
    warm_up: int = 0,
    tend: Tend | None = None,
    tend_every: int = 1,
) -> dict[str, Samples]:
    """Run every operation once per round, each round beginning with the next of them.

    Args:
        operations: what to time, by name.
        rounds: samples of each.
        warm_up: rounds before them that are not kept.
        tend: what is done between rounds, not timed.
        tend_every: after how many rounds.
    """
    names = list(operations)
    taken: dict[str, list[float]] = {name: [] for name in names}
    gc.collect()
    for number in range(-warm_up, rounds):
        first = number % len(names)
        for name in (*names[first:], *names[:first]):
            started = time.perf_counter()
            operations[name]()
            elapsed = time.perf_counter() - started
            if number >= 0:
                taken[name].append(elapsed)
        if tend is not None and (number + 1) % tend_every == 0:
            tend()
    return {name: Samples(tuple(seconds)) for name, seconds in taken.items()}


def ratio(samples: Mapping[str, Samples], name: str, base: str) -> float:
    """How many times the median of `base` the median of `name` is."""
    return samples[name].median / samples[base].median


def several(measure: Callable[[], dict[str, Samples]], runs: int, name: str, base: str) -> tuple[float, dict[str, Any]]:
    """Repeat a measurement: the median of its ratios, and what a report says about it."""
    results = [measure() for _ in range(runs)]
    ratios = [ratio(samples, name, base) for samples in results]
    detail = {
        "runs": [round(value, 4) for value in ratios],
        "medians": [{key: samples.summary() for key, samples in result.items()} for result in results],
    }
    return median(ratios), detail
