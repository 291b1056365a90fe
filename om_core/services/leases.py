"""Leases of this process: one thread renews them all; a lost one cancels its model call (DESIGN 5)."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from om_core import metrics

if TYPE_CHECKING:
    from om_core.domain.job import Job
    from om_core.services.deps import Services

RENEWALS_PER_LEASE = 3
"""A lease survives two renewals that fail."""


class LeaseKeeper:
    """Renews what `hold` was called for, until `release`."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._lock = threading.Lock()
        self._held: dict[int, tuple[int, threading.Event]] = {}
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def hold(self, job: Job) -> threading.Event:
        """Keep a claimed job's lease; the event is set when it is lost."""
        cancelled = threading.Event()
        with self._lock:
            earlier = self._held.get(job.id)
            if earlier is not None:  # an attempt of this process that lost its lease, and has not noticed yet
                earlier[1].set()
            self._held[job.id] = (job.attempt, cancelled)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="om-leases", daemon=True)
                self._thread.start()
        return cancelled

    def release(self, job: Job) -> None:
        """The job has ended, or is handed back."""
        with self._lock:
            if self._held.get(job.id, (None,))[0] == job.attempt:
                del self._held[job.id]

    @property
    def held(self) -> dict[int, int]:
        """{job id: attempt}."""
        with self._lock:
            return {job_id: attempt for job_id, (attempt, _) in self._held.items()}

    def renew_once(self) -> frozenset[int]:
        """Renew every lease in one statement; ids that were lost."""
        held = self.held
        lost = self._services.store.system.renew(held, owner=self._services.owner, lease_s=self._services.lease_s)
        with self._lock:
            for job_id in lost:
                attempt, cancelled = self._held.get(job_id, (None, None))
                if attempt == held.get(job_id) and cancelled is not None and not cancelled.is_set():
                    metrics.LEASES_LOST.inc()
                    cancelled.set()
        return lost

    def cancel_all(self) -> None:
        """Stop every model call of this process (shutdown after the grace period)."""
        with self._lock:
            for _, cancelled in self._held.values():
                cancelled.set()

    def stop(self) -> None:
        """Stop renewing."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(timeout=5)

    def _run(self) -> None:
        while not self._stop.wait(self._services.lease_s / RENEWALS_PER_LEASE):
            try:
                self.renew_once()
            except Exception:  # the database is away: the next renewal may still come in time
                continue
