"""Activation (DESIGN 4.4): buffered chunks become part of the log, and a finished reflection takes effect. One
transaction, no model call, the same cost at any size of the log.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, TypeAlias

from om_core.domain.activation import (
    ActivationReason,
    choose_prefix,
    decide_activation,
    pins_after_activation,
    reflection_fits,
)
from om_core.domain.chunk import ReflectionState
from om_core.domain.context import Activated
from om_core.domain.errors import NotFoundError
from om_core.services import events
from om_core.services.deps import ttl_seconds
from om_core.services.enqueue import decide_again
from om_core.services.measure import activated

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from om_core.domain.chunk import Chunk
    from om_core.domain.job import JobRef
    from om_core.domain.policy import MemoryPolicy
    from om_core.domain.thread import EarlyActivation, MemoryState, ThreadState
    from om_core.ports import NewEvent, Transaction
    from om_core.services.deps import Services


Forced: TypeAlias = Literal["manual", "trim"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ActivationResult:
    """What happened: None where nothing was due; `jobs` became due by it (already stored, to be rung)."""

    activated: Activated | None
    jobs: tuple[JobRef, ...] = ()


@dataclass(slots=True)
class _Log:
    """The state an activation works on."""

    thread: ThreadState
    memory: MemoryState
    policy: MemoryPolicy
    now: datetime


def activate(
    services: Services, tenant: str, thread_id: int, *, model: str | None = None, forced: Forced | None = None
) -> ActivationResult:
    """Activate what is due for a thread. Forced: `manual` takes every ready chunk, whatever the thresholds say; `trim`
    every one down to the least tail, because the cap changes the prefix anyway.
    """
    with services.store.transaction(tenant) as tx:
        result = activate_in(tx, services, thread_id, model=model, forced=forced)
    activated(result.activated)
    services.dispatcher.ring(result.jobs)
    return result


def activate_in(
    tx: Transaction, services: Services, thread_id: int, *, model: str | None, forced: Forced | None = None
) -> ActivationResult:
    """The same inside a transaction of the caller, who rings."""
    thread = tx.threads.lock_by_id(thread_id)
    if thread is None:
        msg = f"no thread {thread_id}"
        raise NotFoundError(msg)
    memory = tx.memories.lock(thread.memory_id)
    log = _Log(thread=thread, memory=memory, policy=services.policies.of(memory), now=tx.now())
    ready = _ready(tx.chunks.buffered(thread_id))
    reason = forced if forced and ready else _reason(log, ready, model)
    chosen: Sequence[Chunk] = ()
    if reason is not None:
        sizes = [chunk.message_tokens for chunk in ready]
        chosen = ready[: choose_prefix(sizes, thread.pending_tokens, log.policy, reason)]
    written: list[NewEvent] = []
    if chosen:
        written += _move(tx, log, chosen, str(reason), model=model)
    generation = _reflect(tx, log, written, forced=forced == "manual", early=thread.early_activation)
    if not chosen and generation is None:
        return ActivationResult(activated=None)
    tx.events.add(written)
    jobs = decide_again(tx, services, tx.memories.snapshot(thread_id), log.now)
    return ActivationResult(activated=_summary(chosen, str(reason or "reflection"), generation), jobs=jobs)


def _ready(buffered: Sequence[Chunk]) -> list[Chunk]:
    """Buffered chunks up to the first stale one: activation stops before it (DESIGN 3.3)."""
    ready: list[Chunk] = []
    for chunk in buffered:
        if chunk.stale:
            break
        ready.append(chunk)
    return ready


def _reason(log: _Log, ready: Sequence[Chunk], model: str | None) -> ActivationReason | None:
    early = log.thread.early_activation
    if early is not None and early.chunks and ready:
        return early.reason
    ttl = ttl_seconds(log.policy.observation.activate_after_idle_s, model or log.thread.last_model)
    return decide_activation(log.thread, log.policy, log.now, model=model, ttl_s=ttl, ready=bool(ready))


def _move(tx: Transaction, log: _Log, chosen: Sequence[Chunk], reason: str, *, model: str | None) -> list[NewEvent]:
    """Give the chosen chunks positions, raise the cursor, move the counters, remember the pins."""
    thread, memory = log.thread, log.memory
    observed = chosen[-1].to_seq
    tx.chunks.activate([chunk.id for chunk in chosen], memory.next_position)
    hints = thread.hints
    for chunk in chosen:
        if not chunk.hints.is_empty:
            hints = chunk.hints.merged_over(hints)
    log.memory = replace(
        memory,
        next_position=memory.next_position + len(chosen),
        log_tokens=memory.log_tokens + sum(chunk.tokens for chunk in chosen),
    )
    tx.memories.update(memory.id, next_position=log.memory.next_position, log_tokens=log.memory.log_tokens)
    pins = pins_after_activation(question_seq=thread.question_seq, open_calls=thread.open_calls, observed_seq=observed)
    log.thread = replace(
        thread,
        observed_seq=observed,
        pending_tokens=thread.pending_tokens - sum(chunk.message_tokens for chunk in chosen),
        pins=pins,
        hints=hints,
        shown_from_seq=0,
        early_activation=None,
        shown_position=log.memory.next_position - 1,
        shown_version=memory.log_version,
        prefix_version=thread.prefix_version + 1,
        prefix_reason="activation",
    )
    new = log.thread
    tx.threads.update(
        thread.id,
        observed_seq=new.observed_seq,
        pending_tokens=new.pending_tokens,
        pins=new.pins,
        hints=new.hints,
        shown_from_seq=0,
        early_activation=None,
        shown_position=new.shown_position,
        shown_version=new.shown_version,
        prefix_version=new.prefix_version,
        prefix_reason=new.prefix_reason,
    )
    return [
        events.activation(thread, log.memory, log.policy, chunk, reason, now=log.now, model=model) for chunk in chosen
    ]


def _reflect(
    tx: Transaction, log: _Log, written: list[NewEvent], *, forced: bool, early: EarlyActivation | None
) -> int | None:
    """Let a finished reflection take effect once the log has reached its threshold, or `early`, where it fits; its
    generation.
    """
    memory = log.memory
    waiting = memory.buffered_generation
    due = forced or memory.log_tokens >= log.policy.reflection.observation_tokens
    sooner = early is not None and early.reflection
    if sooner:  # looked at once, whatever comes of it
        tx.threads.update(log.thread.id, early_activation=_for_chunks(log.thread.early_activation))
    if waiting is None or not (due or sooner):
        return None
    reflection = tx.reflections.get(memory.id, waiting)
    if reflection is None or reflection.base_generation != memory.generation:
        tx.memories.update(memory.id, buffered_generation=None)
        return None
    # Counted, not derived from `input_tokens`: a chunk below may have been rebuilt since the Reflector read it.
    later = tx.chunks.log_tokens(memory.id, reflection.through_position)
    if not due and not reflection_fits(reflection.tokens, later, log.policy.reflection):
        return None
    if memory.generation:
        tx.reflections.set_state(memory.id, memory.generation, ReflectionState.SUPERSEDED)
    tx.reflections.set_state(memory.id, waiting, ReflectionState.ACTIVE)
    after = reflection.tokens + later
    log.memory = replace(
        memory,
        generation=waiting,
        buffered_generation=None,
        log_tokens=after,
        base_tokens=reflection.tokens,
        reflected_position=reflection.through_position,
        log_version=memory.log_version + 1,
    )
    tx.memories.update(
        memory.id,
        generation=waiting,
        buffered_generation=None,
        log_tokens=after,
        base_tokens=reflection.tokens,
        reflected_position=reflection.through_position,
        stuck_log_tokens=None,
        log_version=log.memory.log_version,  # other threads find it changed in their next contexts
        log_reason="reflection",
        repair_position=None,
    )
    thread = log.thread
    reason = "activation" if thread.prefix_reason == "activation" else "reflection"
    tx.threads.update(
        thread.id,
        prefix_version=thread.prefix_version + 1,
        prefix_reason=reason,
        shown_position=log.memory.next_position - 1,
        shown_version=log.memory.log_version,
    )
    why = "manual" if forced else early.reason if early is not None and not due else "threshold"
    written.append(events.reflection_activation(log.thread, log.memory, log.policy, reflection, why, now=log.now))
    return waiting


def _for_chunks(early: EarlyActivation | None) -> EarlyActivation | None:
    """What is left of it for chunks."""
    return replace(early, reflection=False) if early is not None and early.chunks else None


def _summary(chosen: Sequence[Chunk], reason: str, generation: int | None) -> Activated:
    return Activated(
        reason=reason,
        chunks=len(chosen),
        messages=sum(chunk.to_seq - chunk.from_seq + 1 for chunk in chosen),
        tokens=sum(chunk.message_tokens for chunk in chosen),
        observation_tokens=sum(chunk.tokens for chunk in chosen),
        cycle_ids=tuple(chunk.cycle_id for chunk in chosen),
        generation=generation,
    )
