"""An extract job: the values of a chunk or generation that take a call of their own, or a function (DESIGN 5).

The notes are stored already: whatever goes wrong here is tried again, or given up and told, without them. Ranges of a
thread are extracted in order, so that each is shown the value of the one before.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from om_core.domain.chunk import ReflectionState
from om_core.domain.errors import LostRaceError
from om_core.domain.extraction import Extraction, Outcome
from om_core.domain.job import JobState
from om_core.formats.sanitise import sanitise_json
from om_core.options import policy_from_json
from om_core.options.functions import load
from om_core.ports import ExtractMaterial, FinishedJob
from om_core.prompts.extract import build_extract_request
from om_core.prompts.parse import parse_values
from om_core.prompts.redact import redact, redact_json, redact_messages
from om_core.services import events
from om_core.services.costs import COSTS, finished_with, save_call, usage_of
from om_core.services.enqueue import decide_again
from om_core.services.extraction_event import ExtractionEvent, call_function, shown_messages
from om_core.services.model_calls import call, input_room, model_name
from om_core.services.observe import SYSTEM_TOKENS, unusable
from om_core.services.ranges import READ_LIMIT
from om_core.services.values import Wanted, failure, judge, keep, previous_value, specs_of, want

if TYPE_CHECKING:
    from collections.abc import Sequence
    from threading import Event

    from om_core.domain.extraction import Source
    from om_core.domain.job import Job, JobRef
    from om_core.domain.message import Json, JsonObject, StoredMessage
    from om_core.domain.policy import ExtractorSpec, MemoryPolicy
    from om_core.domain.thread import Snapshot, ThreadState
    from om_core.ports import Kept, ModelReply, Transaction
    from om_core.services.deps import Services

BEHIND_S = 2.0
"""Seconds until a job looks again whether the range before its own is done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """What values are made from: a chunk with its messages, or a generation."""

    snapshot: Snapshot
    policy: MemoryPolicy
    source: Source
    text: str
    tokens: int
    extracted: JsonObject
    kept: Kept
    where: Extraction
    messages: tuple[StoredMessage, ...] = ()

    @property
    def specs(self) -> tuple[ExtractorSpec, ...]:
        """The extractors whose values are made here."""
        return tuple(spec for spec in specs_of(self.policy, self.source) if spec.is_late)


@dataclass(slots=True)
class _Made:
    """What a run has made so far."""

    outcomes: list[Outcome] = field(default_factory=list)
    signals: list[tuple[str, JsonObject]] = field(default_factory=list)
    shown_chunks: tuple[int, ...] = ()


def run_extract(services: Services, tenant: str, job: Job, cancelled: Event) -> tuple[FinishedJob, tuple[JobRef, ...]]:
    """Do a claimed extract job; returns and raises as `run_observe`."""
    with services.store.reading(tenant) as tx:
        subject = None if tx.jobs.older_live(job) else _subject(tx, job)
    if subject is None:
        behind = FinishedJob(state=JobState.RETRYABLE, retry_after_s=BEHIND_S, outcome="behind")
        return _ended(services, tenant, job, behind)
    if isinstance(subject, str):
        return _ended(services, tenant, job, FinishedJob(state=JobState.SUPERSEDED, outcome="superseded"))
    answers = _ask(services, tenant, job, subject, cancelled)
    return _store(services, tenant, job, answers, _make(subject, tenant, answers))


def _subject(tx: Transaction, job: Job) -> Subject | str:
    """What to extract from; a text, if it is no longer what it was when the job was made.

    Raises:
        LostRaceError: it is gone.
    """
    snapshot = tx.memories.snapshot(int(job.thread_id or 0))
    thread, memory, policy = snapshot.thread, snapshot.memory, policy_from_json(job.policy)
    kept = tx.kept(thread, memory)
    if job.chunk_id is None:
        generation = int(job.input.get("generation", 0))
        found = tx.reflections.get(memory.id, generation)
        if found is None:
            raise LostRaceError("the generation is gone")
        if found.state is ReflectionState.ERASED:
            return "erased"
        return Subject(
            snapshot=snapshot,
            policy=policy,
            source="reflector",
            text=found.text,
            tokens=found.tokens,
            extracted=found.extracted,
            kept=kept,
            where=Extraction(thread_id=thread.id, generation=generation, job_id=job.id),
        )
    chunk = tx.chunks.get(job.chunk_id)
    if chunk is None:
        raise LostRaceError("the chunk is gone")
    if chunk.stale:
        return "stale"
    messages = tx.messages.between(thread.id, chunk.from_seq - 1, chunk.to_seq, limit=READ_LIMIT)
    return Subject(
        snapshot=snapshot,
        policy=policy,
        source="observer",
        text=chunk.text,
        tokens=chunk.message_tokens,
        extracted=chunk.extracted,
        kept=kept,
        where=Extraction(thread_id=thread.id, job_id=job.id, from_seq=chunk.from_seq, to_seq=chunk.to_seq),
        messages=tuple(message for message in messages if not message.removed),
    )


def _ask(services: Services, tenant: str, job: Job, subject: Subject, cancelled: Event) -> list[JsonObject]:
    """One call for all values with a schema, saved under the fence; one more where it gave none and that is wanted."""
    if job.partial:
        return list(job.partial)
    structured = [spec for spec in subject.specs if spec.is_structured]
    if not structured:
        return []
    phase = subject.policy.observation.model
    wanted = want(
        structured, subject.kept, subject.snapshot, subject.policy, subject.source, timeout_s=phase.max_attempt_s
    )
    found: JsonObject = {}
    replies: list[ModelReply] = []
    insist = any(spec.retry_structured_extraction_on_empty_object for spec in structured)
    while wanted.values and not found and len(replies) < (2 if insist else 1):
        reply = _call(services, subject, wanted, cancelled, again=bool(replies), failures=job.failures + len(replies))
        replies.append(reply)
        answer = parse_values(reply.text)
        if answer is None:
            error = unusable(f"no JSON object in {len(reply.text):,} characters", reply)
            error.usage = usage_of(replies)
            raise error
        found = {slug: answer[slug] for slug in wanted.slugs if answer.get(slug) is not None}
    saved: JsonObject = {
        "values": found,
        "schemas": {value.slug: value.schema for value in wanted.values},
        "failures": dict(wanted.failures),
        "values_of": list(wanted.shown_chunks),
    }
    answers = [{**saved, **(usage_of(replies) if replies else {"model": "", **dict.fromkeys(COSTS, 0)})}]
    save_call(services, tenant, job, subject.snapshot.thread, answers)
    return answers


def _call(
    services: Services, subject: Subject, wanted: Wanted, cancelled: Event, *, again: bool, failures: int
) -> ModelReply:
    phase = subject.policy.observation.model
    material = ExtractMaterial(
        values=wanted.values,
        notes=redact(subject.text),
        messages=redact_messages(subject.messages),
        timezone=subject.snapshot.thread.timezone or "UTC",
        most_tokens=input_room(services.model, phase, overhead_tokens=SYSTEM_TOKENS),
        again=again,
    )
    return call(
        services.model,
        phase,
        lambda candidate: build_extract_request(
            material,
            model=candidate,
            settings={name: value for name, value in phase.settings.items() if name != "temperature"},
            provider_options=phase.provider_options,
            tokenizer=services.tokenizer,
        ),
        model_name(phase, subject.tokens),
        cancelled=cancelled,
        failures=failures,
    )


def _make(subject: Subject, tenant: str, answers: Sequence[JsonObject]) -> _Made:
    """Every value, after its function. Runs functions of the installation's own, so outside of transactions.

    Raises:
        SetupError: a function cannot be imported here; the job waits until it can.
    """
    answer = answers[-1] if answers else {}
    made = _Made(shown_chunks=tuple(answer.get("values_of", ())))
    for spec in subject.specs:
        schema = answer.get("schemas", {}).get(spec.slug)
        if spec.slug in answer.get("failures", {}):
            outcome = Outcome(slug=spec.slug, error=answer["failures"][spec.slug])
        elif spec.is_structured:
            outcome = judge(spec, answer.get("values", {}).get(spec.slug), schema, subject.policy)
        else:
            outcome = Outcome(slug=spec.slug, value=subject.extracted.get(spec.slug) if spec.is_inline else None)
        is_due = outcome.error is None and (outcome.value is not None or not spec.is_asked)
        if spec.on_extracted is not None and is_due:
            outcome = _told(subject, tenant, spec, outcome.value, schema, made)
        made.outcomes.append(outcome)
    return made


def _told(
    subject: Subject, tenant: str, spec: ExtractorSpec, value: Json, schema: JsonObject | None, made: _Made
) -> Outcome:
    """Tell the extractor's function the value; what it returns replaces it, a failure takes it away."""
    thread, observed = subject.snapshot.thread, subject.source == "observer"
    function = load(spec.on_extracted or "")
    event = ExtractionEvent(
        source=subject.source,
        slug=spec.slug,
        name=spec.name,
        tenant=tenant,
        thread=thread.external_id,
        resource=thread.resource_id,
        previous=previous_value(spec, subject.kept, subject.policy),
        current=value,
        observations=subject.text if observed else None,
        messages=shown_messages(redact_messages(subject.messages)),
        chunk_range=(subject.where.from_seq, subject.where.to_seq) if observed else None,
        generation=subject.where.generation,
    )
    try:
        returned: Any = call_function(function, event, timeout_s=subject.policy.observation.model.max_attempt_s)
        dump = getattr(returned, "model_dump", None)
        replaced = value if returned is None else redact_json(sanitise_json(dump(mode="json") if dump else returned))
    except Exception as error:  # a function of the installation's own
        return Outcome(slug=spec.slug, error=f"on_extracted: {failure(error)}")
    outcome = judge(spec, replaced, schema, subject.policy)
    if outcome.error is None:
        made.signals += [(spec.slug, sent) for sent in event.signals]
        outcome = replace(outcome, signal=event.states[-1] if event.states else None)
    return outcome


def _store(
    services: Services, tenant: str, job: Job, answers: list[JsonObject], made: _Made
) -> tuple[FinishedJob, tuple[JobRef, ...]]:
    """Store the values, fenced by the attempt; those of what changed meanwhile are dropped."""
    result = finished_with(answers)
    with services.store.transaction(tenant) as tx:
        thread = _locked(tx, job)
        subject = _subject(tx, job)
        if isinstance(subject, str):
            result = replace(result, state=JobState.SUPERSEDED, outcome="superseded")
        if not tx.jobs.finish(job, result):
            raise LostRaceError("another worker has the job")
        now = tx.now()
        if isinstance(subject, Subject):
            _keep(tx, job, thread, subject, made)
        jobs = decide_again(tx, services, tx.memories.snapshot(thread.id), now)
    return result, jobs


def _keep(tx: Transaction, job: Job, thread: ThreadState, subject: Subject, made: _Made) -> None:
    told = keep(tx, subject.policy, thread, job, subject.specs, made.outcomes, subject.where)
    late = {spec.slug for spec in subject.specs}
    values = {slug: value for slug, value in subject.extracted.items() if slug not in late} | told.values
    if job.chunk_id is not None:
        tx.chunks.set_extracted(job.chunk_id, values, made.shown_chunks)
    else:
        tx.reflections.set_extracted(job.memory_id, int(subject.where.generation or 0), values)
    now = tx.now()
    written = [events.signal(job, thread, slug, sent, now=now) for slug, sent in made.signals]
    tx.events.add([*written, events.extracted(job, thread, subject.source, told, now=now)])


def _ended(services: Services, tenant: str, job: Job, result: FinishedJob) -> tuple[FinishedJob, tuple[JobRef, ...]]:
    """End an attempt that had nothing to do, or came too early."""
    with services.store.transaction(tenant) as tx:
        thread = _locked(tx, job)
        if not tx.jobs.finish(job, result):
            raise LostRaceError("another worker has the job")
        jobs = decide_again(tx, services, tx.memories.snapshot(thread.id), tx.now())
    return result, jobs


def _locked(tx: Transaction, job: Job) -> ThreadState:
    """The thread, then its memory: the lock order of every commit (DESIGN 3.2)."""
    thread = tx.threads.lock_by_id(int(job.thread_id or 0))
    if thread is None:
        raise LostRaceError("the thread was deleted")
    tx.memories.lock(thread.memory_id)
    return thread


def given_up(tx: Transaction, job: Job, thread: ThreadState, policy: MemoryPolicy, error: str) -> None:
    """No attempts are left: the failure stands with every value that the job was to make."""
    try:
        subject = _subject(tx, job)
    except LostRaceError:
        return
    if isinstance(subject, Subject):
        outcomes = [Outcome(slug=spec.slug, error=redact(error)[:500]) for spec in subject.specs]
        keep(tx, policy, thread, job, subject.specs, outcomes, subject.where)
