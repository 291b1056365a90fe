"""An observe job: the next range of a thread becomes a chunk (DESIGN 5, 6.1, 6.2, 6.7).

Three steps, of which only the first and the last hold a transaction: choose the range, ask the model, store.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from om_core.domain.chunk import ChunkKind, Hints
from om_core.domain.cuts import Cut
from om_core.domain.errors import LostRaceError, UnusableOutputError
from om_core.domain.job import JobKind, JobState
from om_core.domain.message import OpenCall
from om_core.domain.slices import slice_messages
from om_core.domain.time_gaps import gaps_among
from om_core.options import policy_from_json
from om_core.ports import FinishedJob, NewChunk, ObserverMaterial
from om_core.prompts.attachments import attachment_filter
from om_core.prompts.observer import OBSERVER_VERSION, build_observer_request
from om_core.prompts.parse import parse_observer
from om_core.prompts.redact import redact_material
from om_core.prompts.render import first_day, plain_words
from om_core.services import events
from om_core.services.costs import finished_with, save_call, usage_of
from om_core.services.enqueue import decide_again
from om_core.services.model_calls import call, input_room, model_name
from om_core.services.prior_notes import prior_notes
from om_core.services.ranges import cut_range, kept_range, spare_tokens
from om_core.services.stored_chunk import retitle, store_chunk
from om_core.services.values import Wanted, answered, inline_values, specs_of, want, with_known
from om_core.tracing import note_range

if TYPE_CHECKING:
    from threading import Event

    from om_core.domain.job import Job, JobRef
    from om_core.domain.message import JsonObject, StoredMessage
    from om_core.domain.policy import MemoryPolicy, ObservationPolicy
    from om_core.domain.thread import Snapshot, ThreadState
    from om_core.ports import Kept, ModelReply, Transaction
    from om_core.prompts.attachments import Accepts
    from om_core.services.deps import Services

BY_SIZE = frozenset({"buffer", "threshold"})
"""Reasons of jobs that are due because much is pending."""
NOTHING_LEFT: Final[JsonObject] = {
    "notes": "",
    "current_task": None,
    "suggested_response": None,
    "thread_title": None,
    "model": "",
    "input_tokens": 0,
    "output_tokens": 0,
    "cost_usd": 0.0,
}
"""For a range of which a removal has left nothing: no model is asked."""
SYSTEM_TOKENS = 3_000
"""Room kept for the Observer's instructions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """What one observe job reads: chosen once, stored in the job, the same at every retry."""

    snapshot: Snapshot
    policy: MemoryPolicy
    messages: tuple[StoredMessage, ...]
    cut: Cut
    material: ObserverMaterial
    shown_chunks: tuple[int, ...]
    kept: Kept | None = None
    """What was believed before of the values to be extracted; None: none are."""

    @property
    def thread(self) -> ThreadState:
        return self.snapshot.thread


def run_observe(services: Services, tenant: str, job: Job, cancelled: Event) -> tuple[FinishedJob, tuple[JobRef, ...]]:
    """Do a claimed observe job.

    Returns:
        How it ended (already committed), and the jobs that are due now, to be rung.

    Raises:
        LostRaceError: another worker has the job; nothing was written.
        UnusableOutputError, RetryLaterError, GiveUpError, SetupError: to be recorded by the caller.
    """
    chosen = _choose(services, tenant, job)
    if not isinstance(chosen, Range):
        return _nothing_to_do(services, tenant, job, seen=chosen)
    replies = ask(services, tenant, job, chosen, cancelled) if chosen.material.messages else [NOTHING_LEFT]
    return _store(services, tenant, job, chosen, replies)


def _choose(services: Services, tenant: str, job: Job) -> Range | ThreadState:
    """The range and the prior notes shown, stored in the job at its first claim (DESIGN 4.3); the thread, if in that
    state it has nothing to observe.
    """
    with services.store.transaction(tenant) as tx:
        snapshot = tx.memories.snapshot(int(job.thread_id or 0))
        thread = snapshot.thread
        policy = policy_from_json(job.policy)
        observation = policy.observation
        room, now = _room(services, observation), tx.now()
        fixed = bool(job.partial) and job.to_seq is not None
        if job.to_seq is not None and fixed:
            messages, cut = kept_range(tx, thread, job.to_seq, room=room)
        else:
            to_seq = job.to_seq if job.input.get("halved") else None
            most = _most_tokens(snapshot, policy, job) if to_seq is None else None
            messages, cut = cut_range(tx, thread, policy, to_seq=to_seq, room=room, spare=most, now=now)
        if cut is None:
            return thread
        only = job.input.get("shown_chunks") if fixed else None
        notes = prior_notes(tx, services, snapshot, most_tokens=_notes_tokens(services, observation), only=only)
        chosen = Range(
            snapshot=snapshot,
            policy=policy,
            messages=tuple(message for message in messages if message.seq <= cut.to_seq),
            cut=cut,
            material=replace(
                _material(snapshot, policy, messages, cut, notes.text, job), gaps=gaps(tx, thread, policy, messages)
            ),
            shown_chunks=notes.chunk_ids,
            kept=tx.kept(thread, snapshot.memory) if specs_of(policy, "observer") else None,
        )
        stored = {**job.input, "shown_chunks": list(notes.chunk_ids), "generation": notes.generation}
        if not tx.jobs.fix_input(job, from_seq=thread.buffered_seq + 1, to_seq=cut.to_seq, input=stored):
            raise LostRaceError("the lease was lost before the range was chosen")
        note_range(thread.buffered_seq + 1, cut.to_seq)
        tx.events.add([events.started(job, thread, policy, operation="observation", tokens=cut.tokens, now=now)])
        return chosen


def _room(services: Services, observation: ObservationPolicy) -> int:
    """Tokens of messages that one call may take beside instructions and earlier notes."""
    overhead = SYSTEM_TOKENS + _notes_tokens(services, observation)
    return input_room(services.model, observation.model, overhead_tokens=overhead)


def _notes_tokens(services: Services, observation: ObservationPolicy) -> int:
    """Most tokens of earlier notes: never more than half of the room."""
    half = input_room(services.model, observation.model, overhead_tokens=SYSTEM_TOKENS) // 2
    wanted = observation.previous_observer_tokens
    return half if wanted is None else min(wanted, half)


def _most_tokens(snapshot: Snapshot, policy: MemoryPolicy, job: Job) -> int | None:
    """How much this job may take, where that is less than the window: what activation leaves raw stays for the next
    one, and threads of one resource take turns. None: whatever fits. Somebody who asks gets all.
    """
    limits = []
    if job.reason in BY_SIZE:
        limits.append(spare_tokens(snapshot.thread, policy))
    if snapshot.memory.scope == "resource" and job.reason != "manual":
        limits.append(policy.observation.max_tokens_per_batch)
    return min((limit for limit in limits if limit is not None), default=None)


def _material(
    snapshot: Snapshot, policy: MemoryPolicy, messages: tuple[StoredMessage, ...], cut: Cut, notes: str, job: Job
) -> ObserverMaterial:
    thread, observation = snapshot.thread, policy.observation
    open_ids = set(cut.open_calls)
    inside = tuple(message for message in messages if message.seq <= cut.to_seq and not message.removed)
    waiting = [
        OpenCall(call_id=part.call_id, seq=message.seq, name=part.name, at=message.created_at)
        for message in inside
        for part in message.calls
        if part.call_id in open_ids
    ]
    return ObserverMaterial(
        messages=inside,
        prior_notes=notes,
        open_calls=tuple(waiting),
        timezone=thread.timezone or "UTC",
        ask_current_task=observation.current_task,
        # A suggested reply is out of date once anything newer exists: ask only where the context waits for it.
        ask_suggested_response=observation.suggested_response and job.awaited,
        ask_thread_title=observation.thread_title and not thread.title_pinned,
        current_task=thread.hints.current_task,
        thread_title=thread.title,
    )


def gaps(
    tx: Transaction, thread: ThreadState, policy: MemoryPolicy, messages: tuple[StoredMessage, ...]
) -> tuple[tuple[int, str], ...]:
    """The long pauses that the actor is shown as well, also one right before the range."""
    if not policy.temporal_markers or not messages:
        return ()
    first = messages[0].seq
    before = tx.messages.between(thread.id, first - 2, first - 1, limit=1)
    return gaps_among((*before, *messages), thread.timezone)


def ask(services: Services, tenant: str, job: Job, chosen: Range, cancelled: Event) -> list[JsonObject]:
    """One call, or one per slice of a unit larger than the window; each finished call is saved under the fence."""
    observation = chosen.policy.observation
    wanted = _wanted(chosen)
    given = redact_material(replace(chosen.material, values=wanted.values))
    slices = [given.messages]
    if chosen.cut.sliced:
        room = _room(services, observation)
        slices = slice_messages(given.messages, room, services.counter.count_text)
    done = list(job.partial)
    for part in slices[len(done) :]:
        material = replace(given, messages=part, prior_notes=_with_slices(given.prior_notes, done))
        material = replace(material, values=with_known(material.values, done))
        answer = _ask_once(services, chosen, material, cancelled, failures=job.failures)
        answer["failures"] = {**wanted.failures, **answer["failures"]}
        done.append({**answer, "values_of": list(wanted.shown_chunks)})
        save_call(services, tenant, job, chosen.thread, done)
    return done


def _wanted(chosen: Range) -> Wanted:
    """What is asked for in the same answer as the notes."""
    if chosen.kept is None:
        return Wanted()
    specs = [spec for spec in specs_of(chosen.policy, "observer") if spec.is_inline]
    timeout_s = chosen.policy.observation.model.max_attempt_s
    return want(specs, chosen.kept, chosen.snapshot, chosen.policy, "observer", timeout_s=timeout_s)


def _with_slices(prior: str, done: list[JsonObject]) -> str:
    return "\n".join(text for text in (prior, *(item["notes"] for item in done)) if text)


def _ask_once(
    services: Services, chosen: Range, material: ObserverMaterial, cancelled: Event, *, failures: int
) -> JsonObject:
    observation = chosen.policy.observation
    name = model_name(observation.model, sum(message.tokens for message in material.messages))
    reply = call(
        services.model,
        observation.model,
        lambda candidate: build_observer_request(
            material,
            model=candidate,
            settings=observation.model.settings,
            provider_options=observation.model.provider_options,
            instruction=observation.instruction,
            tokenizer=services.tokenizer,
            # A model may refuse what is not known of it: the next try goes without.
            attachments=None if failures else _accepted(services, chosen.policy, candidate),
        ),
        name,
        cancelled=cancelled,
        failures=failures,
    )
    begins = first_day(material.messages, material.timezone)
    slugs = [value.slug for value in material.values]
    output = parse_observer(
        reply.text,
        default_day=begins.date() if begins else None,
        finish_reason=reply.finish_reason,
        source=plain_words(material.messages),
        extra_tags=slugs,
    )
    if output.outcome != "valid":
        raise unusable(output.reason or "unusable answer", reply)
    return {
        "notes": output.notes,
        "current_task": output.current_task if material.ask_current_task else None,
        "suggested_response": output.suggested_response if material.ask_suggested_response else None,
        "thread_title": output.thread_title if material.ask_thread_title else None,
        **answered(slugs, output),
        **usage_of([reply]),
    }


def _accepted(services: Services, policy: MemoryPolicy, model: str) -> Accepts:
    return attachment_filter(policy.observation.observe_attachments, lambda mime: services.reads(model, mime))


def unusable(reason: str, reply: ModelReply) -> UnusableOutputError:
    """The error for an answer that cannot be used, carrying what it cost."""
    error = UnusableOutputError(f"{reply.model}: {reason}")
    error.log_text = f"{reply.model}: unusable answer"  # the reason may quote it
    error.usage = usage_of([reply])
    return error


def _store(
    services: Services, tenant: str, job: Job, chosen: Range, replies: list[JsonObject]
) -> tuple[FinishedJob, tuple[JobRef, ...]]:
    """Store the chunk and raise `buffered_seq`, fenced by the job's attempt and by the cursor itself."""
    text = notes_of(replies)
    result = finished_with(replies)
    values = inline_values(chosen.policy, "observer", replies)
    with services.store.transaction(tenant) as tx:
        thread = _locked(tx, chosen)
        if not tx.jobs.finish(job, result) or thread.buffered_seq != chosen.messages[0].seq - 1:
            raise LostRaceError("another worker stored this range")
        last = replies[-1]
        new = NewChunk(
            memory_id=thread.memory_id,
            thread_id=thread.id,
            from_seq=chosen.messages[0].seq,
            to_seq=chosen.cut.to_seq,
            kind=ChunkKind.OBSERVED if text else ChunkKind.EMPTY,
            text=text,
            tokens=services.counter.count_text(text) if text else 0,
            message_tokens=sum(message.tokens for message in chosen.messages),
            job_id=job.id,
            attempt=job.attempt,
            hints=Hints(
                seen_seq=chosen.cut.to_seq,
                current_task=last["current_task"],
                suggested_response=last["suggested_response"],
            ),
            shown_chunks=tuple(dict.fromkeys((*chosen.shown_chunks, *values.shown_chunks))),
            extracted=values.extracted,
            shown_generation=chosen.snapshot.memory.generation or None,
            model=last["model"],
            prompt_version=OBSERVER_VERSION,
            cost_usd=result.cost_usd,
        )
        jobs = store_chunk(tx, services, job, thread, new, values=values)
        retitle(tx, job, thread, last["thread_title"], chosen.cut.to_seq)
    return result, jobs


def _locked(tx: Transaction, chosen: Range) -> ThreadState:
    """The thread, then its memory: the lock order of every commit (DESIGN 3.2)."""
    thread = tx.threads.lock_by_id(chosen.thread.id)
    if thread is None:
        raise LostRaceError("the thread was deleted")
    tx.memories.lock(thread.memory_id)
    return thread


def notes_of(replies: list[JsonObject]) -> str:
    """The notes of every call, as one text."""
    return "\n".join(item["notes"] for item in replies if item["notes"]).strip()


def _nothing_to_do(
    services: Services, tenant: str, job: Job, *, seen: ThreadState
) -> tuple[FinishedJob, tuple[JobRef, ...]]:
    """Everything was covered or is held by an open call: end the job, and decide with fresh eyes."""
    result = FinishedJob(state=JobState.COMPLETED, outcome="nothing")
    with services.store.transaction(tenant) as tx:
        thread = tx.threads.lock_by_id(int(job.thread_id or 0))
        if thread is None or not tx.jobs.finish(job, result):
            raise LostRaceError("another worker has the job")
        same = (thread.head_seq, thread.buffered_seq) == (seen.head_seq, seen.buffered_seq)
        if same and thread.cut_seq > thread.buffered_seq:
            # The kept cut was beyond what the messages allow: take it back, or this job would come again for ever.
            tx.threads.update(thread.id, cut_seq=thread.buffered_seq, held_tokens=thread.unbuffered_tokens)
        jobs = decide_again(tx, services, tx.memories.snapshot(thread.id), tx.now(), ended=JobKind.OBSERVE)
    return result, jobs
