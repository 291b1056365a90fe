"""One step (DESIGN 4.1): store what is new, raise the counters, decide, insert jobs; one transaction, then ring."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal, TypeAlias

from om_core.domain.activation import early_reason
from om_core.domain.append import advance_thread
from om_core.domain.errors import AmbiguousThreadError, ConflictError, InvalidInputError, NotFoundError
from om_core.domain.returned import without_returned
from om_core.domain.thread import EarlyActivation
from om_core.domain.thresholds import decide, next_wake
from om_core.formats.fingerprint import fingerprint
from om_core.ports import NewMessage, NewThread
from om_core.services.deps import ttl_seconds
from om_core.services.enqueue import decide_again, new_jobs
from om_core.services.measure import timed
from om_core.services.recognise import Prepared, StoredRef, recognise
from om_core.services.remove import rewind

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from om_core.domain.activation import EarlyReason
    from om_core.domain.job import JobRef
    from om_core.domain.message import Message
    from om_core.domain.policy import MemoryPolicy, ObservationPolicy, ReflectionPolicy
    from om_core.domain.thread import ThreadState
    from om_core.ports import LockedThread, Transaction
    from om_core.services.deps import Services

OnDivergence: TypeAlias = Literal["report", "rewind"]
MOST_MESSAGES = 1_000
"""Messages one request may hold; a longer history is sent in several."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRequest:
    """Messages of one step of one thread, in order, parsed and sanitised by `formats`.

    `model` is the actor's; without `resource` a unique match is used.
    """

    thread: str
    resource: str | None = None
    messages: tuple[Message, ...] = ()
    model: str | None = None
    end_of_turn: bool = False
    on_divergence: OnDivergence = "report"
    fallback_ids: tuple[str, ...] = ()
    """One per message: the id of a message that brings none, if it turns out to be new (API 3, `Idempotency-Key`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepResult:
    """What a step did. `jobs` are those it made due; `created` says that the thread came to be."""

    messages: tuple[StoredRef, ...]
    duplicates: tuple[str, ...]
    deleted: tuple[str, ...]
    ignored: tuple[str, ...]
    thread: ThreadState
    jobs: tuple[JobRef, ...] = ()
    created: bool = False
    diverged_at_seq: int | None = None


@dataclass(slots=True)
class _Sorted:
    """A request's messages, prepared outside the transaction."""

    prepared: list[Prepared] = field(default_factory=list)
    ignored: list[str] = field(default_factory=list)


@timed("append")
def append(services: Services, tenant: str, request: StepRequest) -> StepResult:
    """Store a step.

    Raises:
        InvalidInputError: a message cannot be stored; nothing was.
        ConflictError: a known id with other content; nothing was stored.
        AmbiguousThreadError: no resource given, and several have this thread.
    """
    if len(request.messages) > MOST_MESSAGES:
        msg = f"{len(request.messages)} messages in one request, at most {MOST_MESSAGES} are taken: send several"
        raise InvalidInputError(msg, path="messages")
    result = _append(services, tenant, request)
    if result.diverged_at_seq is None or request.on_divergence == "report":
        return result
    # Not one transaction: removal locks more threads than a step may. Sent again, the request goes on from here.
    rewind(services, tenant, request.thread, result.diverged_at_seq - 1, result.thread.resource_id)
    again = _append(services, tenant, replace(request, resource=result.thread.resource_id))
    if again.diverged_at_seq is not None:
        raise ConflictError("the thread was changed while it was rewound; read it again")
    return replace(again, diverged_at_seq=result.diverged_at_seq)


def _append(services: Services, tenant: str, request: StepRequest) -> StepResult:
    items = _prepare(services, request)
    with services.store.transaction(tenant) as tx:
        locked, created = _lock(tx, services, request, items.prepared)
        policy = services.policies.of(locked.memory)
        result = _store(tx, services, request, items, locked, policy)
    services.dispatcher.ring(result.jobs)
    return replace(result, created=created)


def _prepare(services: Services, request: StepRequest) -> _Sorted:
    """Count and fingerprint, before any lock is held. What is not for storing is set aside (DESIGN 6.11)."""
    items = _Sorted()
    for index, message in enumerate(request.messages):
        own = without_returned(message)
        if own is None or not own.has_content:
            items.ignored.append(message.id or str(index))
            continue
        tokens = services.counter.count_message(own, model=request.model)
        fallback = request.fallback_ids[index] if request.fallback_ids else None
        items.prepared.append(Prepared(message=own, tokens=tokens, fingerprint=fingerprint(own), fallback_id=fallback))
    return items


def _lock(
    tx: Transaction, services: Services, request: StepRequest, prepared: Sequence[Prepared]
) -> tuple[LockedThread, bool]:
    """Lock the thread; create it first if a resource is named and it does not exist."""
    resource = request.resource or resolve_resource(tx, request.thread)
    ids = [name for item in prepared if (name := item.message.id or item.fallback_id) is not None]
    tail = len(prepared) if len(prepared) > 1 else 0
    locked = tx.threads.lock(resource, request.thread, client_ids=ids, tail=tail)
    if locked is not None:
        return locked, False
    scope = services.policies.resolve().scope
    created = tx.threads.create(NewThread(external_id=request.thread, resource_id=resource, scope=scope))
    locked = tx.threads.lock(resource, request.thread, client_ids=ids, tail=tail)
    if locked is None:
        msg = f"thread {request.thread!r} of resource {resource!r} was deleted while it was being created: try again"
        raise NotFoundError(msg)
    return locked, created


def resolve_resource(tx: Transaction, thread: str) -> str:
    """The only resource that has this thread.

    Raises:
        NotFoundError: none has. AmbiguousThreadError: several have.
    """
    found = tx.threads.resources_of(thread)
    if not found:
        msg = f"no thread {thread!r}: name its resource (resource_id) to create it"
        raise NotFoundError(msg)
    if len(found) > 1:
        msg = f"thread {thread!r} exists for several resources: name one with resource_id"
        raise AmbiguousThreadError(msg)
    return found[0]


def _store(
    tx: Transaction,
    services: Services,
    request: StepRequest,
    items: _Sorted,
    locked: LockedThread,
    policy: MemoryPolicy,
) -> StepResult:
    found = recognise(
        locked,
        items.prepared,
        find_run=lambda prints: tx.messages.find_run(locked.thread.id, prints),
        count=lambda message: services.counter.count_message(message, model=request.model),
    )
    rows, thread = _assign(locked, found.new, request, policy)
    refs = tuple(StoredRef(id=row.message.id or "", seq=row.seq, tokens=row.tokens, created=True) for row in rows)
    jobs: tuple[JobRef, ...] = ()
    if rows:
        snapshot = replace(locked.snapshot, thread=thread)
        thread = replace(thread, idle_due_at=_next_look(thread, policy, locked.now))
        thread = replace(thread, early_activation=_early(locked, policy, request.model))
        actions = decide(snapshot, policy, locked.now).actions
        jobs = tx.threads.append(thread, rows, new_jobs(services, snapshot, policy, actions), ())
    elif locked.thread.turn_open and not thread.turn_open:
        tx.threads.update(thread.id, turn_open=False)
        jobs = decide_again(tx, services, replace(locked.snapshot, thread=thread), locked.now)
    return StepResult(
        messages=tuple(sorted((*found.known, *refs), key=lambda ref: ref.seq)),
        duplicates=tuple(ref.id for ref in found.known),
        deleted=found.deleted,
        ignored=tuple(items.ignored),
        thread=thread,
        jobs=jobs,
        diverged_at_seq=found.diverged_at_seq,
    )


def _assign(
    locked: LockedThread, new: Sequence[Prepared], request: StepRequest, policy: MemoryPolicy
) -> tuple[list[NewMessage], ThreadState]:
    """Give every new message its seq and turn, and the thread the state that follows."""
    messages = [
        item if item.continues or item.message.id else item.named(item.fallback_id or _new_id()) for item in new
    ]
    thread, stored = advance_thread(
        locked.thread,
        [(item.message, item.tokens, item.continues) for item in messages],
        now=locked.now,
        model=request.model,
        end_of_turn=request.end_of_turn,
        open_call_max_age_s=policy.observation.open_call_max_age_s,
    )
    rows = [
        NewMessage(
            seq=row.seq,
            message=row.message,
            tokens=row.tokens,
            fingerprint=item.fingerprint,
            created_at=row.created_at,
            turn=row.turn,
            continues=row.continues,
        )
        for item, row in zip(messages, stored, strict=True)
    ]
    return rows, thread


def _new_id() -> str:
    """An id for a message whose client gave none, so that it can be named later (deletion, sources)."""
    return f"om-{uuid.uuid4().hex}"


def _early(locked: LockedThread, policy: MemoryPolicy, model: str | None) -> EarlyActivation | None:
    """Whether this step finds the prompt cache lost, judged by the state before it (DESIGN 6.3)."""
    before = locked.thread

    def reason_of(phase: ObservationPolicy | ReflectionPolicy, *, ready: bool) -> EarlyReason | None:
        ttl = ttl_seconds(phase.activate_after_idle_s, model or before.last_model)
        changes = phase.activate_on_provider_change
        return early_reason(before, locked.now, model=model, ttl_s=ttl, on_provider_change=changes) if ready else None

    observation, reflection = policy.observation, policy.reflection
    chunks = reason_of(observation, ready=before.buffered_seq > before.observed_seq)
    condensed = reason_of(reflection, ready=locked.memory.buffered_generation is not None)
    reason = chunks or condensed
    if reason is None or not policy.enabled:
        return None
    return EarlyActivation(
        reason=reason,
        last_activity_at=before.last_activity_at,
        previous_model=before.last_model,
        chunks=chunks is not None,
        reflection=condensed is not None,
    )


def _next_look(thread: ThreadState, policy: MemoryPolicy, now: datetime) -> datetime | None:
    """When the sweep should come: set once per tail, and brought forward where the sweep lets an idle thread rest."""
    due = thread.idle_due_at
    if due is None:
        return _wake(thread, policy, now)
    # The close of a turn is left out: what it makes due is decided by the step itself.
    sooner = _wake(replace(thread, turn_open=True), policy, now)
    return due if sooner is None else min(due, sooner)


def _wake(thread: ThreadState, policy: MemoryPolicy, now: datetime) -> datetime | None:
    ttl = ttl_seconds(policy.observation.activate_after_idle_s, thread.last_model)
    return next_wake(
        replace(thread, last_activity_at=now, oldest_pending_at=thread.oldest_pending_at or now), policy, ttl
    )
