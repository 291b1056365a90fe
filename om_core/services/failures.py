"""What a failed attempt means for its job (DESIGN 5, 6.7): wait, count it, halve the range, park it, or give up.

Recorded in a fresh transaction: the attempt's own may be beyond saving.
"""

from __future__ import annotations

import random  # jitter of backoff only
from dataclasses import replace
from typing import TYPE_CHECKING

from om_core.domain.chunk import ChunkKind, Hints
from om_core.domain.cuts import choose_cut
from om_core.domain.errors import (
    GiveUpError,
    LostRaceError,
    OmError,
    PolicyError,
    RetryLaterError,
    SetupError,
    UnusableOutputError,
)
from om_core.domain.job import JobKind, JobState
from om_core.formats.sanitise import sanitise_text
from om_core.options import policy_from_json
from om_core.ports import FinishedJob, NewChunk, NewJob
from om_core.prompts.observer import OBSERVER_VERSION
from om_core.services import events
from om_core.services.costs import COSTS, book_lost
from om_core.services.enqueue import decide_again, models_of, target
from om_core.services.extract import given_up
from om_core.services.ranges import READ_LIMIT
from om_core.services.rebuild import recount
from om_core.services.stored_chunk import store_chunk

if TYPE_CHECKING:
    from collections.abc import Sequence

    from om_core.domain.job import Job, JobRef
    from om_core.domain.message import JsonObject, StoredMessage
    from om_core.domain.policy import MemoryPolicy
    from om_core.domain.thread import ThreadState
    from om_core.ports import Transaction
    from om_core.services.deps import Services

PARKED_SHARE = 0.1
PARKED_LEAST, PARKED_MOST = 60, 400
"""Tokens of the extract that stands for a parked range: a tenth of it, within these."""


def backoff_s(attempt: int, base_s: float, cap_s: float) -> float:
    """Seconds before the next attempt: doubling, capped, times 0.5 to 1.5."""
    delay: float = min(cap_s, base_s * 2 ** min(attempt - 1, 16))
    return delay * random.uniform(0.5, 1.5)


def error_json(error: BaseException) -> JsonObject:
    """An error as a job stores it: a code, and a message of bounded length."""
    code = error.code if isinstance(error, OmError) else "internal"
    text = str(error) if isinstance(error, OmError) else f"{type(error).__name__}: {error}"
    return {"code": code, "message": sanitise_text(text[: events.ERROR_LIMIT])}  # an error may quote anything


def verdict(job: Job, error: BaseException, policy: MemoryPolicy) -> FinishedJob:
    """Retry, or give up; only what the input causes counts as a failure."""
    limits = policy.job
    usage = _usage(error) or {}
    spent = {name: usage.get(name, 0) for name in COSTS}
    if isinstance(error, RetryLaterError | SetupError):
        after = error.after_s if isinstance(error, RetryLaterError) else None
        delay = backoff_s(job.attempt, limits.backoff_base_s, limits.backoff_cap_s)
        return FinishedJob(
            state=JobState.RETRYABLE,
            error=error_json(error),
            retry_after_s=max(after or 0.0, delay),
            outcome="retry_later",
            **spent,
        )
    spent_up = job.failures + 1 >= limits.max_failures
    outcome = "unusable" if isinstance(error, GiveUpError) else "error"
    return FinishedJob(
        state=JobState.DISCARDED if spent_up else JobState.RETRYABLE,
        error=error_json(error),
        retry_after_s=None if spent_up else backoff_s(job.failures + 1, limits.backoff_base_s, limits.backoff_cap_s),
        failed=True,
        outcome=outcome,
        # Slices stay good when one fails; a ladder without any usable step has to be climbed again.
        drop_partial=job.kind is JobKind.REFLECT and isinstance(error, UnusableOutputError),
        booked=_is_booked(error),
        **spent,
    )


def _usage(error: BaseException) -> JsonObject | None:
    """What the call cost that failed with this error, if it had an answer."""
    return error.usage if isinstance(error, UnusableOutputError | LostRaceError) else None


def _is_booked(error: BaseException) -> bool:
    return isinstance(error, UnusableOutputError) and error.booked


def record_loss(services: Services, tenant: str, job: Job, error: BaseException) -> None:
    """Somebody else has the job: a result that was dropped has been paid for all the same (DESIGN 5)."""
    if not _is_booked(error):
        book_lost(services, tenant, job, _usage(error))


def record_failure(
    services: Services, tenant: str, job: Job, error: BaseException
) -> tuple[FinishedJob, tuple[JobRef, ...]]:
    """Write the verdict under the fence, with its event; an observe range with no failures left is halved or parked."""
    error = services.store.as_outage(error) or error
    policy, result = _judged(services, job, error)
    with services.store.transaction(tenant) as tx:
        thread = tx.threads.lock_by_id(int(job.thread_id or 0))
        if thread is None:
            return result, ()
        memory = tx.memories.lock(thread.memory_id)
        current = tx.jobs.get(job.id)
        if current is not None and current.attempt == job.attempt and current.state is JobState.RUNNING:
            if isinstance(error, SetupError) and not current.partial:
                # The setting may be corrected meanwhile: the next attempt runs under what applies by then.
                current_policy = services.policies.of(memory)
                models = models_of(current_policy, job.kind)
                result = replace(result, policy=services.policies.as_json(current_policy), models=models)
            return conclude(tx, services, current, thread, policy, result)
    record_loss(services, tenant, job, error)
    return replace(result, outcome="lost"), ()


def _judged(services: Services, job: Job, error: BaseException) -> tuple[MemoryPolicy, FinishedJob]:
    """The policy that applies, and the verdict. A row that does not parse is given up: trying again cannot help."""
    try:
        policy = policy_from_json(job.policy)
    except PolicyError as broken:
        given_up = FinishedJob(state=JobState.DISCARDED, error=error_json(broken), failed=True, outcome="invalid")
        return services.policies.resolve(), given_up
    return policy, verdict(job, error, policy)


def conclude(
    tx: Transaction, services: Services, job: Job, thread: ThreadState, policy: MemoryPolicy, result: FinishedJob
) -> tuple[FinishedJob, tuple[JobRef, ...]]:
    """Write a verdict on a running job; its thread and memory are locked by the caller."""
    if result.state is JobState.DISCARDED and job.kind is JobKind.OBSERVE and result.outcome != "invalid":
        return _narrow(tx, services, job, thread, policy, result)
    tx.jobs.finish(job, result)
    _report(tx, job, thread, result)
    if job.kind is JobKind.EXTRACT and result.state is JobState.DISCARDED:
        given_up(tx, job, thread, policy, str((result.error or {}).get("message", "")))
    if job.kind is JobKind.REBUILD and result.state is JobState.DISCARDED:
        _stand_in(tx, services, job, thread)
    ended = job.kind if result.state is JobState.DISCARDED else None
    if ended is JobKind.REFLECT:  # given up until the memory changes, which raises its version (DESIGN 5)
        tx.memories.update(job.memory_id, discarded_version=tx.memories.get(job.memory_id).version + 1)
    return result, decide_again(tx, services, tx.memories.snapshot(thread.id), tx.now(), ended=ended)


def _report(tx: Transaction, job: Job, thread: ThreadState, result: FinishedJob) -> None:
    operation = "reflection" if job.kind is JobKind.REFLECT else "observation"
    text = str((result.error or {}).get("message", ""))
    if not result.booked and (result.input_tokens or result.output_tokens):
        tx.book_usage(thread, job.kind.value, str(job.policy.get("model", "")), result)
    now = tx.now()
    if job.kind is JobKind.EXTRACT:
        tx.events.add([events.extraction_failed(job, thread, error=text, now=now)])
        return
    tx.events.add(
        [events.failed(job, thread, operation=operation, tokens=thread.unbuffered_tokens, error=text, now=now)]
    )


def _narrow(
    tx: Transaction,
    services: Services,
    job: Job,
    thread: ThreadState,
    policy: MemoryPolicy,
    result: FinishedJob,
) -> tuple[FinishedJob, tuple[JobRef, ...]]:
    """Halve the range down to one message or one call with its results, then park it (DESIGN 6.7)."""
    # A job may fail before it has a range: never beyond the cut, and perhaps nothing is left.
    messages = tx.messages.between(thread.id, thread.buffered_seq, job.to_seq or thread.cut_seq, limit=READ_LIMIT)
    if not messages:
        ended = replace(result, state=JobState.COMPLETED, outcome="nothing")
        tx.jobs.finish(job, ended)
        _report(tx, job, thread, ended)
        return ended, decide_again(tx, services, tx.memories.snapshot(thread.id), tx.now(), ended=JobKind.OBSERVE)
    tokens = sum(message.tokens for message in messages)
    cut = choose_cut(
        messages,
        question_seq=thread.question_seq,
        waiting=thread.open_calls,
        now=tx.now(),
        open_call_max_age_s=policy.observation.open_call_max_age_s,
        window_tokens=tokens / 2,
        head_complete=True,
    )
    if cut is not None and cut.to_seq < messages[-1].seq:
        narrowed = replace(
            result, state=JobState.RETRYABLE, retry_after_s=0.0, narrowed_to=cut.to_seq, outcome="halved"
        )
        tx.jobs.finish(job, narrowed)
        _report(tx, job, thread, narrowed)
        return narrowed, ()
    return _park(tx, services, job, thread, messages, result)


def _park(
    tx: Transaction,
    services: Services,
    job: Job,
    thread: ThreadState,
    messages: Sequence[StoredMessage],
    result: FinishedJob,
) -> tuple[FinishedJob, tuple[JobRef, ...]]:
    """Cover the range with a short extract; a rebuild of it is stored as discarded, for a person to redrive."""
    parked = replace(result, state=JobState.COMPLETED, outcome="parked")
    tx.jobs.finish(job, parked)
    _report(tx, job, thread, parked)
    new = _extract(services, job, thread, messages)
    jobs = store_chunk(tx, services, job, thread, new)
    _offer_rebuild(tx, job, thread, new, result.error or {})
    return parked, jobs


def _extract(services: Services, job: Job, thread: ThreadState, messages: Sequence[StoredMessage]) -> NewChunk:
    """A short extract of a range, in the place of its notes."""
    tokens = sum(message.tokens for message in messages)
    room = int(min(PARKED_MOST, max(PARKED_LEAST, tokens * PARKED_SHARE)))
    text = services.extract([message for message in messages if not message.removed], room, thread.timezone or "UTC")
    return NewChunk(
        memory_id=thread.memory_id,
        thread_id=thread.id,
        from_seq=messages[0].seq,
        to_seq=messages[-1].seq,
        kind=ChunkKind.PARKED,
        text=text,
        tokens=services.counter.count_text(text),
        message_tokens=tokens,
        job_id=job.id,
        attempt=job.attempt,
        hints=Hints(),
        prompt_version=OBSERVER_VERSION,
    )


def _stand_in(tx: Transaction, services: Services, job: Job, thread: ThreadState) -> None:
    """Notes that a removal took away cannot be made again: an extract stands for them, as for any parked range, or
    activation would stop before the chunk for ever. Redriving the job replaces it.
    """
    chunk = tx.chunks.get(int(job.chunk_id or 0))
    if chunk is None or not chunk.stale:
        return
    messages = tx.messages.between(thread.id, chunk.from_seq - 1, chunk.to_seq, limit=READ_LIMIT)
    new = replace(_extract(services, job, thread, messages), message_tokens=chunk.message_tokens)
    if tx.chunks.rewrite(chunk.id, new):
        recount(tx, thread, chunk, new)


def _offer_rebuild(tx: Transaction, job: Job, thread: ThreadState, chunk: NewChunk, error: JsonObject) -> None:
    stored = [found for found in tx.chunks.buffered(thread.id) if found.from_seq == chunk.from_seq]
    rebuild = NewJob(
        kind=JobKind.REBUILD,
        queue=job.queue,
        target=target(JobKind.REBUILD, thread_id=thread.id, memory_id=thread.memory_id, chunk_id=stored[0].id),
        thread=thread.external_id,
        memory_id=thread.memory_id,
        thread_id=thread.id,
        chunk_id=stored[0].id,
        reason="parked",
        policy=job.policy,
        prompt_version=OBSERVER_VERSION,
        models=models_of(policy_from_json(job.policy), JobKind.REBUILD),
    )
    tx.jobs.insert_discarded(rebuild, error)
