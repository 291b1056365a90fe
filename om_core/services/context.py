"""A context (DESIGN 4.5, 6.4): activate what is due, wait if that can help, then one consistent read.

The steps are separate functions, so that a blocking caller and an event loop share them and differ only in how they
wait for the future.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import CancelledError
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from om_core.domain.activation import choose_prefix, decide_activation
from om_core.domain.assemble import assemble
from om_core.domain.context import ContextInput
from om_core.domain.errors import NotFoundError
from om_core.domain.job import WORKER_SEEN_S, JobKind
from om_core.domain.other_threads import MOST_THREADS, background_blocks
from om_core.domain.volatile_tail import kept_blocks
from om_core.formats.fields import check_id
from om_core.services.activate import activate
from om_core.services.deps import ttl_seconds
from om_core.services.enqueue import decide_again
from om_core.services.limits import may_wait
from om_core.services.measure import prefix_share, timed, timed_async, waited

if TYPE_CHECKING:
    from concurrent.futures import Future
    from datetime import datetime

    from om_core.domain.activation import ActivationReason
    from om_core.domain.context import Activated, Context
    from om_core.domain.message import Message, StoredMessage
    from om_core.domain.policy import MemoryPolicy
    from om_core.domain.thread import Snapshot
    from om_core.ports import Transaction
    from om_core.services.deps import Services
    from om_core.services.waiting import JobWaiter


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextRequest:
    """Which context, for which model. `max_tokens` is the cap; `read_only` applies a trim without storing it."""

    thread: str
    resource: str | None = None
    model: str | None = None
    max_tokens: int | None = None
    read_only: bool = False
    ephemeral: tuple[Message, ...] = ()
    now: datetime | None = None
    wait: bool = True


@dataclass(slots=True)
class _State:
    """What one context call has found and done so far."""

    tenant: str
    snapshot: Snapshot
    policy: MemoryPolicy
    activated: Activated | None = None
    waited_s: float = 0.0

    @property
    def thread_id(self) -> int:
        return self.snapshot.thread.id


@timed("context")
def get_context(services: Services, waiter: JobWaiter, tenant: str, request: ContextRequest) -> Context:
    """The context, waiting in this thread if it has to wait."""
    state, material = _look(services, tenant, request)
    if material is None:
        _activate(services, state, request)
        future = _start_wait(services, waiter, state, request)
        if future is not None:
            started = services.clock.monotonic()
            try:
                outcome = future.result(state.policy.observation.block_timeout_s)
            except (FutureTimeoutError, CancelledError):
                future.cancel()
                outcome = "timeout"
            _end_wait(services, state, request, outcome, services.clock.monotonic() - started)
        material = _read(services, state, request)
    return _finish(services, state, request, material)


@timed_async("context")
async def get_context_async(services: Services, waiter: JobWaiter, tenant: str, request: ContextRequest) -> Context:
    """The same for an event loop: database steps in its thread pool, the wait on a future."""
    state, material = await asyncio.to_thread(_look, services, tenant, request)
    if material is None:
        await asyncio.to_thread(_activate, services, state, request)
        future = await asyncio.to_thread(_start_wait, services, waiter, state, request)
        if future is not None:
            started = services.clock.monotonic()
            try:
                outcome = await asyncio.wait_for(asyncio.wrap_future(future), state.policy.observation.block_timeout_s)
            except (TimeoutError, CancelledError):
                outcome = "timeout"
            seconds = services.clock.monotonic() - started
            await asyncio.to_thread(_end_wait, services, state, request, outcome, seconds)
        material = await asyncio.to_thread(_read, services, state, request)
    return await asyncio.to_thread(_finish, services, state, request, material)


def _look(services: Services, tenant: str, request: ContextRequest) -> tuple[_State, ContextInput | None]:
    """One read transaction: the state, and all of the context if nothing has to be done first."""
    with services.store.reading(tenant) as tx:
        snapshot = find_snapshot(tx, request.thread, request.resource)
        state = _State(tenant=tenant, snapshot=snapshot, policy=services.policies.of(snapshot.memory))
        now = services.clock.now()  # what a client calls now is for rendering only (DESIGN 6.10)
        busy = not request.read_only and (
            activation_due(snapshot, state.policy, request.model, now) or _may_wait(state, request)
        )
        return state, None if busy else _material(tx, services, state, request)


def find_snapshot(tx: Transaction, thread: str, resource: str | None) -> Snapshot:
    """Thread, memory and live work by the caller's ids; without a resource, the only one that has the thread.

    Raises:
        NotFoundError: there is no such thread. AmbiguousThreadError: several resources have it.
        InvalidInputError: an id that no thread or resource can have.
    """
    check_id(thread, "thread")
    if resource is not None:
        check_id(resource, "resource_id")
    found = tx.memories.find(resource, thread)
    if found is None:
        msg = f"no thread {thread!r}" + (f" of resource {resource!r}" if resource else "")
        raise NotFoundError(msg)
    return found


def _activate(services: Services, state: _State, request: ContextRequest) -> None:
    """Activate what is due, and again what was stored meanwhile if that leaves too much."""
    moved = True
    while moved and activation_due(state.snapshot, state.policy, request.model, services.clock.now()):
        result = activate(services, state.tenant, state.thread_id, model=request.model)
        _remember(state, result.activated)
        moved = result.activated is not None
        with services.store.reading(state.tenant) as tx:
            state.snapshot = tx.memories.snapshot(state.thread_id)


def _remember(state: _State, activated: Activated | None) -> None:
    """Add to what this context call has activated."""
    if activated is not None:
        state.activated = activated if state.activated is None else _joined(state.activated, activated)


def activation_due(snapshot: Snapshot, policy: MemoryPolicy, model: str | None, now: datetime) -> bool:
    """Whether the transaction that activates would move anything: the same decision, on a look without locks."""
    thread, memory = snapshot.thread, snapshot.memory
    early = thread.early_activation
    if memory.buffered_generation is not None and (
        memory.log_tokens >= policy.reflection.observation_tokens or (early is not None and early.reflection)
    ):
        return True
    if not snapshot.ready_tokens:
        return False
    if early is not None and early.chunks:
        reason: ActivationReason | None = early.reason
    else:
        ttl = ttl_seconds(policy.observation.activate_after_idle_s, model or thread.last_model)
        reason = decide_activation(thread, policy, now, model=model, ttl_s=ttl, ready=True)
    return reason is not None and choose_prefix(snapshot.ready_tokens, thread.pending_tokens, policy, reason) > 0


def _joined(first: Activated, second: Activated) -> Activated:
    return replace(
        first,
        chunks=first.chunks + second.chunks,
        messages=first.messages + second.messages,
        tokens=first.tokens + second.tokens,
        observation_tokens=first.observation_tokens + second.observation_tokens,
        cycle_ids=(*first.cycle_ids, *second.cycle_ids),
        generation=second.generation or first.generation,
    )


def _may_wait(state: _State, request: ContextRequest) -> bool:
    """Whether a wait could shrink the window (DESIGN 6.4): over the limit, not tried in vain, something to observe.

    Notes about the retention floor alone would not: it stays raw whatever is noted of it.
    """
    thread, observation = state.snapshot.thread, state.policy.observation
    return (
        request.wait
        and observation.block_timeout_s > 0
        and thread.pending_tokens >= observation.block_after_tokens
        and thread.wait_latch_seq != thread.buffered_seq
        and thread.cuttable_tokens > 0
        and thread.unbuffered_tokens > observation.retention_tokens
    )


def _start_wait(services: Services, waiter: JobWaiter, state: _State, request: ContextRequest) -> Future[str] | None:
    """Whether to wait, and for which job: it is raised to the queue of those waited for, and rung (DESIGN 6.4).

    A chunk that was stored since the last look is activated first, and may be all that was missing.
    """
    while _may_wait(state, request) and services.store.system.workers(max_age_s=WORKER_SEEN_S):
        before = state.snapshot.thread.buffered_seq
        with services.store.transaction(state.tenant) as tx:
            tx.threads.lock_by_id(state.thread_id)  # a chunk is stored before this look, or after the job is awaited
            state.snapshot = tx.memories.snapshot(state.thread_id)
            thread = state.snapshot.thread
            job = None
            if thread.buffered_seq == before and may_wait(tx, services, thread, state.policy):
                if JobKind.OBSERVE not in state.snapshot.live_jobs:
                    decide_again(tx, services, state.snapshot, tx.now())
                job = tx.jobs.await_observe(thread.id)
        if job is not None:
            services.dispatcher.ring([job])
            return waiter.watch(job.id)
        if thread.buffered_seq == before:
            return None
        _activate(services, state, request)
    return None


def _end_wait(services: Services, state: _State, request: ContextRequest, outcome: str, waited_s: float) -> None:
    """Activate what the wait brought; after a wait in vain, do not wait again until `buffered_seq` moves."""
    state.waited_s = waited_s
    waited(outcome, waited_s)
    before = state.snapshot.thread.buffered_seq
    with services.store.transaction(state.tenant) as tx:
        state.snapshot = tx.memories.snapshot(state.thread_id)
        if outcome != "completed" or state.snapshot.thread.buffered_seq == before:
            tx.threads.update(state.thread_id, wait_latch_seq=before)
    _activate(services, state, request)


def _read(services: Services, state: _State, request: ContextRequest) -> ContextInput:
    with services.store.reading(state.tenant) as tx:
        state.snapshot = tx.memories.snapshot(state.thread_id)
        return _material(tx, services, state, request)


def _material(tx: Transaction, services: Services, state: _State, request: ContextRequest) -> ContextInput:
    """Everything a context is made of, in three statements after the snapshot."""
    thread, memory = state.snapshot.thread, state.snapshot.memory
    kept = tx.kept(thread, memory, others=MOST_THREADS if state.policy.limits.other_threads_tokens else 0)
    background = background_blocks(kept.others, state.policy, services.counter.count_text)
    return ContextInput(
        thread=thread,
        memory=memory,
        policy=state.policy,
        reflection=kept.reflection,
        chunks=tx.chunks.log(memory.id, memory.shown_after),
        messages=raw_messages(tx, state.snapshot),
        ephemeral=request.ephemeral,
        volatile=(*background, *kept_blocks(state.policy, kept.working_memory, kept.extractions)),
        now=request.now,
        max_tokens=request.max_tokens or model_cap(services, request.model),
    )


def _finish(services: Services, state: _State, request: ContextRequest, material: ContextInput) -> Context:
    """Assemble, then store what a context may store."""
    context = assemble(material, count=services.counter.count_text)
    if not request.read_only:
        if context.shown_from_seq > material.thread.shown_from_seq and _make_room(services, state, request):
            material = _read(services, state, request)
            context = assemble(material, count=services.counter.count_text)
        _store_shown(services, state, context)
        prefix_share.count((services.owner, state.tenant, state.thread_id), context, material.messages)
    return replace(context, activated=state.activated, waited_s=round(state.waited_s, 3))


def _make_room(services: Services, state: _State, request: ContextRequest) -> bool:
    """Before messages are left out, move ready chunks into the log: the prefix changes anyway (DESIGN 6.5)."""
    thread = state.snapshot.thread
    if thread.buffered_seq <= thread.observed_seq:
        return False
    result = activate(services, state.tenant, thread.id, model=request.model, forced="trim")
    _remember(state, result.activated)
    return result.activated is not None


def model_cap(services: Services, model: str | None) -> int | None:
    """The actor model's window less 20 %, where the window is known (DESIGN 6.5)."""
    window = services.model.window_tokens(model) if model else None
    return None if window is None else int(window * 0.8)


def raw_messages(tx: Transaction, snapshot: Snapshot) -> tuple[StoredMessage, ...]:
    """Pins, what is left of stale chunks, and everything after the cursor; below a stored trim no more than these and
    the question.
    """
    thread = snapshot.thread
    after = max(thread.observed_seq, thread.shown_from_seq - 1)
    pins = {seq for seq in (*thread.pins, thread.question_seq) if 0 < seq <= after}
    stale = tx.chunks.stale_seqs(thread.id) if thread.stale_tokens else ()
    return tx.messages.shown(thread.id, after_seq=after, also=sorted(pins | set(stale)))


def _store_shown(services: Services, state: _State, context: Context) -> None:
    """A trim is stored and only rises; a prefix change is reported once, and what the prefix holds of the log with it.
    All of this only if this is still the prefix.
    """
    thread = state.snapshot.thread
    trimmed = context.shown_from_seq > thread.shown_from_seq
    if context.prefix_changed is None:
        return
    with services.store.transaction(state.tenant) as tx:
        current = tx.threads.lock_by_id(thread.id)
        if current is None or current.prefix_version != thread.prefix_version:
            return
        changes: dict[str, object] = {
            "prefix_reason": None,
            "shown_position": context.shown_position,
            "shown_version": context.shown_version,
            "prefix_version": current.prefix_version + 1,
        }
        if trimmed and context.shown_from_seq > current.shown_from_seq:
            changes |= {"shown_from_seq": context.shown_from_seq, "pins": context.pins}
        tx.threads.update(thread.id, **changes)
