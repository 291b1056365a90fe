"""What a process counts for Prometheus: names, types and labels are an interface (tests/golden/metrics.txt).

In a registry of their own, so that an application that embeds the library decides what it exports: everything here is
in `REGISTRY`, and `om_core.scrape` adds what Postgres knows. Labels never name a tenant, a thread or a person.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from om_core.domain.job import JobKind

if TYPE_CHECKING:
    from collections.abc import Sequence

MOST_MODELS: Final = 100
"""Model names that get a label of their own: a memory's configuration may name any."""
OTHER_MODEL: Final = "other"


@dataclass(frozen=True, slots=True)
class Described:
    """One metric as it is exposed; `source` says whether this process counts it or Postgres is asked."""

    name: str
    type: Literal["counter", "gauge", "histogram"]
    labels: tuple[str, ...]
    help: str
    source: Literal["process", "database"] = "process"


REGISTRY: Final = CollectorRegistry()
CATALOGUE: Final[list[Described]] = []
"""Every metric of the service, in the order of their definition."""

_SECONDS_OF_A_STEP: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_SECONDS_OF_A_CALL: Final = (0.05, 0.25, 0.5, 1, 2.5, 5, 10, 20, 40, 60, 120, 300, 600)
_SECONDS_OF_A_JOB: Final = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 65, 120, 300, 900, 3600)
"""65 s is a lease and a sweep: the promise for work of a worker that died."""


def _counter(name: str, help: str, *labels: str) -> Counter:
    CATALOGUE.append(Described(name, "counter", labels, help))
    return Counter(name, help, labels, registry=REGISTRY)


def _gauge(name: str, help: str, *labels: str) -> Gauge:
    CATALOGUE.append(Described(name, "gauge", labels, help))
    return Gauge(name, help, labels, registry=REGISTRY)


def _histogram(name: str, help: str, *labels: str, buckets: Sequence[float]) -> Histogram:
    CATALOGUE.append(Described(name, "histogram", labels, help))
    return Histogram(name, help, labels, registry=REGISTRY, buckets=buckets)


def _database(name: str, help: str, *labels: str) -> Described:
    found = Described(name, "gauge", labels, help, "database")
    CATALOGUE.append(found)
    return found


TURN_SECONDS: Final = _histogram(
    "om_turn_duration_seconds",
    "Time of one append or one context call, a wait included. Outcome: ok, refused (the request is wrong), error.",
    "operation",
    "outcome",
    buckets=_SECONDS_OF_A_STEP,
)
TURN_WAIT_SECONDS: Final = _histogram(
    "om_turn_wait_seconds",
    "Time that blocked context calls waited for an observation, by how the wait ended; its count is the blocked turns.",
    "outcome",
    buckets=_SECONDS_OF_A_STEP,
)
PREFIX_TOKENS: Final = _counter(
    "om_prefix_tokens_total",
    "Tokens of the stable part of contexts, after the first of a thread in this process: kept (the previous context"
    " had them in the same place) or new. kept / (kept + new) is the cacheable share.",
    "state",
)
ACTIVATIONS: Final = _counter("om_activation_total", "Activations, by what caused them.", "reason")
ATTEMPTS: Final = _counter("om_attempts_total", "Attempts of jobs that ended, by outcome.", "kind", "outcome")
DUE_TO_CLAIM_SECONDS: Final = _histogram(
    "om_due_to_claim_seconds", "Time between a job's due time and its claim.", "kind", buckets=_SECONDS_OF_A_JOB
)
CLAIM_TO_STORE_SECONDS: Final = _histogram(
    "om_claim_to_store_seconds",
    "Time between the claim of a job and the end of the attempt, whatever its outcome.",
    "kind",
    buckets=_SECONDS_OF_A_JOB,
)
FENCE_REJECTED: Final = _counter(
    "om_fence_rejected_total", "Results that were dropped because another attempt, or a removal, had won.", "kind"
)
LEASES_LOST: Final = _counter("om_lease_lost_total", "Leases that this process found lost when it renewed them.")
LEASES_EXPIRED: Final = _counter(
    "om_lease_expired_total", "Expired leases of other processes that this one's sweep took over.", "kind"
)
LLM_SECONDS: Final = _histogram(
    "om_llm_duration_seconds",
    "Time of one model call. Outcome: ok, retry_later, give_up, setup, cancelled, error.",
    "model",
    "outcome",
    buckets=_SECONDS_OF_A_CALL,
)
LLM_IN_FLIGHT: Final = _gauge("om_llm_inflight", "Model calls under way in this process.", "model")
LLM_TOKENS: Final = _counter(
    "om_llm_tokens_total",
    "Tokens of answered model calls: input, output, and cached (the part of input that the provider had cached).",
    "model",
    "direction",
)
LLM_COST: Final = _counter("om_llm_cost_usd_total", "US dollars of answered calls to models with a price.", "model")
RING_FAILURES: Final = _counter(
    "om_doorbell_publish_failures_total", "Failed attempts to reach the broker; the sweep of workers rings instead."
)
SWEEP_RUNG: Final = _counter("om_sweep_rung_total", "Due jobs that this process's sweep rang.")
SWEEP_RAN: Final = _counter("om_sweep_ran_total", "Due jobs that the sweep did itself, because rings cannot be sent.")
SWEEP_RESCUED: Final = _counter("om_sweep_rescued_total", "Jobs that the sweep took from workers that are gone.")
SWEEP_WOKEN: Final = _counter("om_sweep_woken_total", "Idle threads that the sweep looked at.")
SWEEP_FAILURES: Final = _counter("om_sweep_failures_total", "Sweeps, and steps of sweeps, that failed.")

DATABASE_UP: Final = _database("om_database_up", "1 if Postgres answered this scrape; else what follows is absent.")
DUE_JOBS: Final = _database(
    "om_due_jobs", "Jobs that wait for a worker; counted up to 10,000 per queue, waited for or not.", "queue", "kind"
)
OLDEST_DUE_AGE: Final = _database(
    "om_oldest_due_age_seconds", "How long the oldest of them has been due; 0 without any.", "queue", "kind"
)
WAITING_JOBS: Final = _database(
    "om_waiting_jobs", "Live jobs that wait for their time: backoff after a failure; counted likewise.", "queue", "kind"
)
LEASES_ACTIVE: Final = _database("om_leases_active", "Jobs that a worker holds.", "queue", "kind")
DISCARDED_JOBS: Final = _database(
    "om_discarded_jobs", "Jobs that were given up and can be redriven; counted up to 10,000.", "kind"
)
OLDEST_PENDING_AGE: Final = _database(
    "om_oldest_pending_age_seconds",
    "Age of the oldest message without notes, among threads with a live observe job and the 1,000 that the sweep looks"
    " at next.",
)
BREAKER_STATE: Final = _database(
    "om_breaker_state", "Circuit breaker of a model, for all workers: 0 closed, 1 half open, 2 open.", "model"
)
WORKERS: Final = _database("om_workers", "Worker processes seen in the last 15 seconds.")
WORKER_SLOTS: Final = _database("om_worker_slots", "Jobs that these can do at a time.")


_models: Final[set[str]] = set()
_models_lock: Final = threading.Lock()


def model_label(name: str) -> str:
    """The model's name while there are few of them, else `other`: a label's values have to stay bounded."""
    if name not in _models:
        with _models_lock:
            if len(_models) >= MOST_MODELS:
                return OTHER_MODEL
            _models.add(name)
    return name


def _begin_at_zero() -> None:
    """Series whose labels are known exist from the start: a first event is then an increase, not a new series."""
    for operation in ("append", "context"):
        for outcome in ("ok", "refused", "error"):
            TURN_SECONDS.labels(operation, outcome)
    for state in ("kept", "new"):
        PREFIX_TOKENS.labels(state)
    for kind in JobKind:
        for metric in (FENCE_REJECTED, LEASES_EXPIRED, DUE_TO_CLAIM_SECONDS, CLAIM_TO_STORE_SECONDS):
            metric.labels(kind.value)
        ATTEMPTS.labels(kind.value, "ok")


_begin_at_zero()
