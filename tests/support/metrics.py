"""Reading metrics: counters of this process only rise, so a test looks at differences."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from prometheus_client.parser import text_string_to_metric_families

from om_core.metrics import REGISTRY

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@contextmanager
def counted(name: str, **labels: str) -> Iterator[Callable[[], float]]:
    """A function that says by how much a sample of this process has risen since the block began."""

    def now() -> float:
        return REGISTRY.get_sample_value(name, labels) or 0.0

    before = now()
    yield lambda: now() - before


def samples(text: str) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """Every sample of a scrape, by name and labels."""
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def value(text: str, name: str, **labels: str) -> float:
    """One sample of a scrape; 0 without it."""
    return samples(text).get((name, frozenset(labels.items())), 0.0)
