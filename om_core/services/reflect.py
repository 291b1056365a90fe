"""A reflect job: the visible log becomes a new, shorter generation (DESIGN 6.8).

Ladder: levels from gentle to extreme; the first usable candidate under the target is taken, else the smallest usable.
The result is stored as buffered and takes effect with an activation; chunks are never copied or moved.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from om_core.domain.chunk import ReflectionState
from om_core.domain.errors import LostRaceError
from om_core.domain.extraction import Extraction
from om_core.domain.job import JobKind, JobState
from om_core.domain.reflecting import choose_candidate, is_enough, is_progress, ladder, slice_length, target_tokens
from om_core.domain.thresholds import REPAIR
from om_core.options import policy_from_json
from om_core.ports import FinishedJob, ModelReply, NewReflection, ReflectorMaterial
from om_core.prompts.parse import parse_reflector
from om_core.prompts.redact import redact
from om_core.prompts.reflector import REFLECTOR_VERSION, build_reflector_request
from om_core.services import events
from om_core.services.costs import finished_with, save_call, usage_of
from om_core.services.enqueue import decide_again, late_job
from om_core.services.model_calls import call, model_name
from om_core.services.observe import unusable
from om_core.services.values import Wanted, answered, inline_values, keep, want

if TYPE_CHECKING:
    from datetime import datetime
    from threading import Event

    from om_core.domain.job import Job, JobRef
    from om_core.domain.message import JsonObject
    from om_core.domain.policy import MemoryPolicy
    from om_core.domain.thread import Snapshot, ThreadState
    from om_core.ports import AskedValue, Kept, NewEvent, Transaction
    from om_core.services.deps import Services
    from om_core.services.values import Told

BEHIND_S = 2.0
"""Seconds until a repair looks again whether the notes below it are made."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """What one reflect job reads of the log: the base generation and whole chunks after it, up to `through`."""

    snapshot: Snapshot
    policy: MemoryPolicy
    text: str
    through: int
    tokens: int
    kept: Kept | None = None
    """What was believed before of the values to be extracted; None: none are."""

    @property
    def target_tokens(self) -> int:
        return target_tokens(self.tokens)


def run_reflect(services: Services, tenant: str, job: Job, cancelled: Event) -> tuple[FinishedJob, tuple[JobRef, ...]]:
    """Do a claimed reflect job; returns and raises as `run_observe`."""
    source = _choose(services, tenant, job)
    if source is None:
        return _behind(services, tenant, job)
    if isinstance(source, int):
        return _nothing_to_do(services, tenant, job, seen_version=source)
    candidates = _climb(services, tenant, job, source, cancelled)
    best = choose_candidate(candidates, source.target_tokens)
    if best is None:
        raise unusable_ladder(candidates)
    return _store(services, tenant, job, source, candidates, best)


def _choose(services: Services, tenant: str, job: Job) -> Source | int | None:
    """What to reflect; the memory's version, if in that state there is nothing; None: notes of it are being made again,
    and a repair is to hold them.
    """
    with services.store.transaction(tenant) as tx:
        snapshot = tx.memories.snapshot(int(job.thread_id or 0))
        memory, policy = snapshot.memory, policy_from_json(job.policy)
        chunks = []
        for chunk in tx.chunks.log(memory.id, memory.reflected_position):
            if chunk.stale and job.reason == REPAIR and tx.jobs.rebuilds(memory.id):
                return None
            if chunk.stale:
                break  # a reflection never reads past a stale chunk (DESIGN 3.3)
            chunks.append(chunk)
        if job.partial and "through" in job.input:
            chunks = [chunk for chunk in chunks if (chunk.position or 0) <= job.input["through"]]
        else:
            sizes = [chunk.tokens for chunk in chunks]
            whole = job.reason == "manual"
            chunks = chunks[: slice_length(sizes, memory.base_tokens, policy.reflection, whole=whole)]
        if not chunks or memory.buffered_generation is not None:
            return memory.version
        base = tx.reflections.get(memory.id, memory.generation) if memory.generation else None
        texts = [base.text] if base else []
        texts += [chunk.text for chunk in chunks if chunk.text]
        through = int(chunks[-1].position or 0)
        stored = {**job.input, "base": memory.generation, "through": through}
        if not tx.jobs.fix_input(job, from_seq=None, to_seq=None, input=stored):
            raise LostRaceError("the lease was lost before the log was read")
        tokens = memory.base_tokens + sum(chunk.tokens for chunk in chunks)
        started = events.started(job, snapshot.thread, policy, operation="reflection", tokens=tokens, now=tx.now())
        tx.events.add([started])
        return Source(
            snapshot=snapshot,
            policy=policy,
            text="\n".join(texts),
            through=through,
            tokens=tokens,
            kept=tx.kept(snapshot.thread, memory) if policy.reflection.extract else None,
        )


def _climb(services: Services, tenant: str, job: Job, source: Source, cancelled: Event) -> list[JsonObject]:
    """Candidates level by level, until one is under the target; each is saved under the fence."""
    levels = ladder(model_name(source.policy.reflection.model, source.tokens), manual=job.reason == "manual")
    done = list(job.partial)
    wanted = _wanted(source)
    for level in levels[len(done) :]:
        if done and is_enough(done[-1], source.target_tokens):
            break
        candidate = _candidate(services, job, source, wanted.values, level, cancelled)
        done.append({**candidate, "failures": {**wanted.failures, **candidate["failures"]}})
        save_call(services, tenant, job, source.snapshot.thread, done)
    return done


def _wanted(source: Source) -> Wanted:
    """What is asked for in the same answer as the notes."""
    policy = source.policy
    specs = [spec for spec in policy.reflection.extract if spec.is_inline]
    if source.kept is None or not specs:
        return Wanted()
    timeout_s = policy.reflection.model.max_attempt_s
    return want(specs, source.kept, source.snapshot, policy, "reflector", timeout_s=timeout_s)


def _candidate(
    services: Services, job: Job, source: Source, values: tuple[AskedValue, ...], level: int, cancelled: Event
) -> JsonObject:
    reflection = source.policy.reflection
    material = ReflectorMaterial(
        log=redact(source.text),
        level=level,
        target_tokens=source.target_tokens,
        guidance=job.input.get("guidance"),
        timezone=source.snapshot.thread.timezone or "UTC",
        values=values,
    )
    reply = call(
        services.model,
        reflection.model,
        lambda candidate: build_reflector_request(
            material,
            model=candidate,
            settings=reflection.model.settings,
            provider_options=reflection.model.provider_options,
            instruction=reflection.instruction,
        ),
        model_name(reflection.model, source.tokens),
        cancelled=cancelled,
        failures=job.failures,
    )
    slugs = [value.slug for value in values]
    output = parse_reflector(reply.text, finish_reason=reply.finish_reason, source=material.log, extra_tags=slugs)
    notes = output.notes if output.outcome == "valid" else ""
    return {
        "level": level,
        "notes": notes,
        "tokens": services.counter.count_text(notes),
        "reason": output.reason,
        **answered(slugs, output),
        **usage_of([reply]),
    }


def unusable_ladder(candidates: list[JsonObject]) -> Exception:
    """No level gave anything usable."""
    total = finished_with(candidates)
    last = candidates[-1]
    reply = ModelReply(
        text="",
        model=last["model"],
        input_tokens=total.input_tokens,
        output_tokens=total.output_tokens,
        cost_usd=total.cost_usd,
    )
    error = unusable(last["reason"] or "no usable candidate at any level", reply)
    error.booked = True
    return error


def _store(
    services: Services, tenant: str, job: Job, source: Source, candidates: list[JsonObject], best: JsonObject
) -> tuple[FinishedJob, tuple[JobRef, ...]]:
    """Store the generation as buffered, fenced by the attempt and by the base generation it read."""
    result = finished_with(candidates)
    progress = is_progress(best["tokens"], source.tokens)
    with services.store.transaction(tenant) as tx:
        thread = tx.threads.lock_by_id(source.snapshot.thread.id)
        if thread is None:
            raise LostRaceError("the thread was deleted")
        memory = tx.memories.lock(thread.memory_id)
        base = source.snapshot.memory
        rebased = memory.generation != base.generation or memory.buffered_generation is not None
        if rebased or tx.chunks.any_stale(memory.id, base.reflected_position, source.through):
            result = FinishedJob(
                state=JobState.SUPERSEDED,
                input_tokens=result.input_tokens,
                output_tokens=result.output_tokens,
                cost_usd=result.cost_usd,
                outcome="superseded",
            )
        if not tx.jobs.finish(job, result):
            raise LostRaceError("another worker reflected this log")
        told: Told | None = None
        late: tuple[JobRef, ...] = ()
        if result.state is JobState.COMPLETED and not progress:
            tx.memories.update(memory.id, stuck_log_tokens=memory.log_tokens)
        elif result.state is JobState.COMPLETED:
            told, late = _add(tx, job, thread, source, best, cost_usd=result.cost_usd)
        now = tx.now()
        tx.events.add([_told(job, thread, source, best, result, now, told)])
        jobs = decide_again(tx, services, tx.memories.snapshot(thread.id), now, ended=JobKind.REFLECT)
    return result, jobs + late


def _told(
    job: Job,
    thread: ThreadState,
    source: Source,
    best: JsonObject,
    result: FinishedJob,
    now: datetime,
    told: Told | None,
) -> NewEvent:
    """The end of the run; one whose base changed under it stored nothing, and does not say that it did."""
    tokens = source.tokens
    if result.state is not JobState.COMPLETED:
        error = "superseded: the log changed meanwhile, another run reads it anew"
        return events.failed(job, thread, operation="reflection", tokens=tokens, error=error, now=now)
    return events.ended(
        job,
        thread,
        operation="reflection",
        tokens=tokens,
        buffered_tokens=best["tokens"],
        text=best["notes"],
        now=now,
        told=told,
    )


def _add(
    tx: Transaction, job: Job, thread: ThreadState, source: Source, best: JsonObject, *, cost_usd: float
) -> tuple[Told, tuple[JobRef, ...]]:
    """The new generation, waiting to take effect; its values take effect at once, and some are left to a job."""
    memory = source.snapshot.memory
    values = inline_values(source.policy, "reflector", [best])
    generation = tx.reflections.last_generation(memory.id) + 1
    tx.reflections.add(
        NewReflection(
            memory_id=memory.id,
            generation=generation,
            base_generation=memory.generation,
            through_position=source.through,
            state=ReflectionState.BUFFERED,
            text=best["notes"],
            tokens=best["tokens"],
            input_tokens=source.tokens,
            job_id=job.id,
            attempt=job.attempt,
            level=best["level"],
            model=best["model"],
            prompt_version=REFLECTOR_VERSION,
            cost_usd=cost_usd,
            extracted=values.extracted,
        )
    )
    tx.memories.update(memory.id, buffered_generation=generation)
    where = Extraction(thread_id=thread.id, generation=generation, job_id=job.id)
    told = keep(tx, source.policy, thread, job, values.specs, values.settled, where)
    return told, late_job(tx, job, thread, source.policy, generation=generation) if values.late else ()


def _behind(services: Services, tenant: str, job: Job) -> tuple[FinishedJob, tuple[JobRef, ...]]:
    """Come again shortly: what is stale is shown raw meanwhile."""
    result = FinishedJob(state=JobState.RETRYABLE, retry_after_s=BEHIND_S, outcome="behind")
    with services.store.transaction(tenant) as tx:
        if not tx.jobs.finish(job, result):
            raise LostRaceError("another worker has the job")
    return result, ()


def _nothing_to_do(
    services: Services, tenant: str, job: Job, *, seen_version: int
) -> tuple[FinishedJob, tuple[JobRef, ...]]:
    """End a job that found nothing to reflect, and decide again under the memory's lock: notes may have come since."""
    result = FinishedJob(state=JobState.COMPLETED, outcome="nothing")
    with services.store.transaction(tenant) as tx:
        thread = tx.threads.lock_by_id(int(job.thread_id or 0))
        if thread is None:
            raise LostRaceError("the thread was deleted")
        memory = tx.memories.lock(thread.memory_id)
        if not tx.jobs.finish(job, result):
            raise LostRaceError("another worker has the job")
        if memory.version == seen_version:
            # A stale chunk stands first, however long the log is: wait for growth, or the job comes again at once.
            tx.memories.update(memory.id, stuck_log_tokens=memory.log_tokens)
        jobs = decide_again(tx, services, tx.memories.snapshot(thread.id), tx.now(), ended=JobKind.REFLECT)
    return result, jobs
