"""Operators' hands on the queue: run a discarded job again, cancel a live one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from om_core.domain.errors import ConflictError, NotFoundError
from om_core.domain.job import JobKind
from om_core.services.enqueue import decide_again, rebuild_job

if TYPE_CHECKING:
    from om_core.domain.job import Job, JobRef
    from om_core.domain.thread import Snapshot
    from om_core.ports import Transaction
    from om_core.services.deps import Services

PAGE = 200


def redrive(services: Services, tenant: str, job_id: int) -> JobRef:
    """Discarded -> available, with its failures counted anew; rung at once.

    Raises:
        NotFoundError: no such job. ConflictError: it is not discarded, or a live job does its work already.
    """
    with services.store.transaction(tenant) as tx:
        job = _with_target_locked(tx, job_id)
        ref = tx.jobs.retry(job_id) if job.state.value == "discarded" else None
        if ref is None:
            reason = (
                "a live job does its work already" if job.state.value == "discarded" else f"it is {job.state.value}"
            )
            msg = f"job {job_id} cannot be redriven: {reason}; only discarded jobs can"
            raise ConflictError(msg)
        if job.kind is JobKind.REFLECT:
            tx.memories.update(job.memory_id, discarded_version=None)
    services.dispatcher.ring([ref])
    return ref


def find_job(tx: Transaction, job_id: int) -> Job:
    """One job.

    Raises:
        NotFoundError: this tenant has no such job.
    """
    job = tx.jobs.get(job_id)
    if job is None:
        msg = f"no job {job_id}"
        raise NotFoundError(msg)
    return job


def _with_target_locked(tx: Transaction, job_id: int) -> Job:
    """A job, after locking its thread and then its memory: every way out of a live state takes the target's lock."""
    job = find_job(tx, job_id)
    if job.thread_id is not None:
        tx.threads.lock_by_id(job.thread_id)
    tx.memories.lock(job.memory_id)
    return job


def redrive_all(services: Services, tenant: str) -> list[JobRef]:
    """Redrive every discarded job that has no live one in its place."""
    found: list[int] = []
    cursor = None
    while True:
        with services.store.reading(tenant) as tx:
            page = tx.jobs.page(state="discarded", kind=None, thread_id=None, cursor=cursor, limit=PAGE)
        found += [job.id for job in page.items]
        cursor = page.next_cursor
        if cursor is None:
            break
    done: list[JobRef] = []
    for job_id in found:
        try:
            done.append(redrive(services, tenant, job_id))
        except ConflictError:
            continue  # somebody else redrove it, or its work is being done
    return done


def cancel(services: Services, tenant: str, job_id: int) -> None:
    """Cancel a live job under its target's lock, and decide again: what is still due gets a new job, under the settings
    of now (DESIGN 5).

    Raises:
        NotFoundError: no such job. ConflictError: it is not live any more.
    """
    with services.store.transaction(tenant) as tx:
        job = _with_target_locked(tx, job_id)
        if not tx.jobs.cancel(job_id):
            msg = f"job {job_id} is {job.state.value}: only live jobs can be cancelled"
            raise ConflictError(msg)
        due: tuple[JobRef, ...] = ()
        if job.thread_id is not None:
            snapshot = tx.memories.snapshot(job.thread_id)
            due = decide_again(tx, services, snapshot, tx.now(), ended=job.kind)
            due += _rebuild_again(tx, services, snapshot, job)
    services.dispatcher.ring(due)


def _rebuild_again(tx: Transaction, services: Services, snapshot: Snapshot, job: Job) -> tuple[JobRef, ...]:
    """Notes that a removal took away stay due: nothing else decides on them."""
    chunk = tx.chunks.get(job.chunk_id) if job.kind is JobKind.REBUILD and job.chunk_id is not None else None
    if chunk is None or not chunk.stale:
        return ()
    policy = services.policies.of(snapshot.memory)
    return tx.jobs.insert([rebuild_job(services, policy, snapshot.thread, chunk.id)])
