"""Metrics as Prometheus fetches them: what this process counted, and what Postgres knows (so it survives Redis).

Postgres is asked by one bounded statement, at most once per `KEEP_S` and by one thread, however many fetch; without an
answer in time the rest is served, and `om_database_up` is 0.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Final, Protocol

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from om_core import metrics
from om_core.domain.errors import SetupError
from om_core.domain.job import QUEUE_OF, JobKind, Queue
from om_core.telemetry import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from prometheus_client import Metric

    from om_core.metrics import Described
    from om_core.ports import SystemGauges

log = get_logger("om.metrics")
KEEP_S: Final = 1.0
PATIENCE_S: Final = 3.0
BREAKER_STATES: Final = ("closed", "half_open", "open")
LANES: Final = (*((queue.value, kind.value) for kind, queue in QUEUE_OF.items()), (Queue.OBSERVATION, JobKind.OBSERVE))
"""Queue and kind of every job there can be: each has its series, also while it is empty."""


class Asked(Protocol):
    """The part of `ports.SystemStore` that is needed here."""

    def gauges(self) -> SystemGauges: ...


class Breaker(Protocol):
    """A model's circuit breaker: `state` is closed, half_open or open."""

    @property
    def model(self) -> str: ...

    @property
    def state(self) -> str: ...


class ProcessCounts(Collector):
    """What this process counted, without the times of creation that the library would add to every series."""

    def collect(self) -> Iterator[Metric]:
        for family in metrics.REGISTRY.collect():
            family.samples = [sample for sample in family.samples if not sample.name.endswith("_created")]
            yield family


class DatabaseGauges(Collector):
    """Depths and ages. `describe` lets a registry know the names without asking Postgres."""

    def __init__(self, system: Asked, *, keep_s: float = KEEP_S, patience_s: float = PATIENCE_S) -> None:
        self._system = system
        self._keep_s = keep_s
        self._patience_s = patience_s
        self._lock = threading.Lock()
        self._asking: threading.Event | None = None
        self._found: SystemGauges | None = None
        self._breakers: tuple[Breaker, ...] = ()
        self._found_at = float("-inf")

    def describe(self) -> Iterator[Metric]:
        """The families without samples."""
        for described in metrics.CATALOGUE:
            if described.source == "database":
                yield _family(described)

    def collect(self) -> Iterator[Metric]:
        found = self._latest()
        yield _one(metrics.DATABASE_UP, 0 if found is None else 1)
        if found is not None:
            yield from _families(found, self._breakers)

    def _latest(self) -> SystemGauges | None:
        """The newest numbers; None if Postgres does not give any in time."""
        with self._lock:
            if self._fresh():
                return self._found
            if self._asking is None:
                self._asking = threading.Event()
                threading.Thread(target=self._ask, args=(self._asking,), name="om-gauges", daemon=True).start()
            asking = self._asking
        asking.wait(self._patience_s)
        with self._lock:
            return self._found if self._fresh() else None

    def _fresh(self) -> bool:
        return time.monotonic() - self._found_at < self._keep_s

    def _ask(self, asked: threading.Event) -> None:
        found: SystemGauges | None = None
        breakers: tuple[Breaker, ...] = ()
        try:
            found = self._system.gauges()
            breakers = tuple(getattr(self._system, "breakers", tuple)())  # a store may keep none
        except Exception as error:  # whatever it is, the database does not answer; the rest is served
            log.warning("metrics without the database", error_type=type(error).__name__)
        with self._lock:
            if found is not None:
                self._found, self._breakers, self._found_at = found, breakers, time.monotonic()
            self._asking = None
        asked.set()


def _family(described: Described) -> GaugeMetricFamily:
    return GaugeMetricFamily(described.name, described.help, labels=described.labels)


def _one(described: Described, value: float) -> GaugeMetricFamily:
    family = _family(described)
    family.add_metric((), value)
    return family


def _families(found: SystemGauges, breakers: Iterable[Breaker]) -> Iterator[GaugeMetricFamily]:
    lanes = {(row.queue, row.kind): row for row in found.queues}
    columns: tuple[tuple[Described, str], ...] = (
        (metrics.DUE_JOBS, "due"),
        (metrics.OLDEST_DUE_AGE, "oldest_due_age_s"),
        (metrics.WAITING_JOBS, "waiting"),
        (metrics.LEASES_ACTIVE, "running"),
    )
    for described, column in columns:
        family = _family(described)
        for lane in sorted({*LANES, *lanes}):
            family.add_metric(lane, getattr(lanes.get(lane), column, 0))
        yield family
    discarded = _family(metrics.DISCARDED_JOBS)
    for kind in JobKind:
        discarded.add_metric((kind.value,), found.discarded.get(kind.value, 0))
    yield discarded
    yield _one(metrics.OLDEST_PENDING_AGE, found.oldest_pending_age_s)
    states = _family(metrics.BREAKER_STATE)
    for breaker in breakers:
        states.add_metric((breaker.model,), BREAKER_STATES.index(breaker.state))
    yield states
    yield _one(metrics.WORKERS, found.workers)
    yield _one(metrics.WORKER_SLOTS, found.slots)


def scrape_registry(system: Asked) -> CollectorRegistry:
    """Everything there is to fetch from a process with this store; make it once, it remembers the newest numbers."""
    registry = CollectorRegistry()
    registry.register(ProcessCounts())
    registry.register(DatabaseGauges(system))
    return registry


def exposition(registry: CollectorRegistry, accept: str) -> tuple[bytes, str]:
    """The text of a scrape and its content type, in the format that the `Accept` header prefers."""
    encode, content_type = choose_encoder(accept)
    return encode(registry), content_type


def serve_metrics(system: Asked, *, host: str, port: int) -> Callable[[], None]:
    """Serve a process's metrics from a thread of its own; the function that ends it.

    Raises:
        SetupError: the address is taken, or is not one of this machine.
    """
    try:
        server, thread = start_http_server(port, addr=host, registry=scrape_registry(system))
    except OSError as error:
        msg = f"metrics cannot be served on {host}:{port}: {error.strerror or error}. Change OM_METRICS_PORT or _HOST"
        raise SetupError(msg) from error
    log.info("metrics served", host=host, port=port)

    def close() -> None:
        server.shutdown()
        server.server_close()
        thread.join(timeout=2)

    return close
