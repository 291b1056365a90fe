"""What storing a chunk brings with it: counters, values, title, events, and the work that is due next."""

from __future__ import annotations

from typing import TYPE_CHECKING

from om_core.domain.cuts import CutState, buffered_cut
from om_core.domain.extraction import Extraction
from om_core.domain.job import JobKind
from om_core.services import events
from om_core.services.enqueue import decide_again, late_job
from om_core.services.values import keep

if TYPE_CHECKING:
    from datetime import datetime

    from om_core.domain.job import Job, JobRef
    from om_core.domain.thread import ThreadState
    from om_core.ports import NewChunk, NewEvent, Transaction
    from om_core.services.deps import Services
    from om_core.services.values import InlineValues, Told


def chunk_ended(job: Job, thread: ThreadState, new: NewChunk, now: datetime, told: Told | None = None) -> NewEvent:
    """The event of a chunk that was made, or made again."""
    return events.ended(
        job,
        thread,
        operation="observation",
        tokens=new.message_tokens,
        buffered_tokens=new.tokens,
        text=new.text,
        now=now,
        told=told,
    )


def store_chunk(
    tx: Transaction,
    services: Services,
    job: Job,
    thread: ThreadState,
    new: NewChunk,
    *,
    values: InlineValues | None = None,
) -> tuple[JobRef, ...]:
    """Add a chunk to a locked thread with the values beside it, move its counters, report it, and decide again."""
    tx.chunks.add(new)
    where = Extraction(thread_id=thread.id, job_id=job.id, from_seq=new.from_seq, to_seq=new.to_seq)
    told = None if values is None else keep(tx, values.policy, thread, job, values.specs, values.settled, where)
    now = tx.now()
    unbuffered = thread.unbuffered_tokens - new.message_tokens
    cut = buffered_cut(
        CutState(cut_seq=thread.cut_seq, open_calls=thread.open_calls, held_tokens=thread.held_tokens),
        buffered_seq=new.to_seq,
        unbuffered_tokens=unbuffered,
    )
    tx.threads.update(
        thread.id,
        buffered_seq=new.to_seq,
        unbuffered_tokens=unbuffered,
        cut_seq=cut.cut_seq,
        held_tokens=cut.held_tokens,
        oldest_pending_at=(
            tx.messages.oldest_stored_at(thread.id, new.to_seq) if thread.head_seq > new.to_seq else None
        ),
        wait_latch_seq=None,
    )
    tx.events.add([chunk_ended(job, thread, new, now, told)])
    due = decide_again(tx, services, tx.memories.snapshot(thread.id), now, ended=JobKind.OBSERVE)
    if values is None or not values.late:
        return due
    return due + late_job(tx, job, thread, values.policy, chunk_id=tx.chunks.over(thread.id, new.from_seq))


def retitle(tx: Transaction, job: Job, thread: ThreadState, title: str | None, seen_seq: int) -> None:
    """Give the thread the Observer's title, unless it has the caller's own."""
    if title and title != thread.title and not thread.title_pinned:
        tx.threads.update(thread.id, title=title, title_seq=seen_seq)
        tx.events.add([events.thread_update(job, thread, old_title=thread.title, new_title=title, now=tx.now())])
