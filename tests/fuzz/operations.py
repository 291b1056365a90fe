"""The operations a schedule is made of. The table is open: an operation is a function of the world and its own dice."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from random import Random
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from om_core.domain.errors import ConflictError, NotFoundError
from om_core.domain.job import LIVE_STATES, JobKind
from om_core.services.activate import activate
from om_core.services.audit import audit
from om_core.services.ingest import StepRequest, append
from om_core.services.manual import ask_for
from om_core.services.redrive import cancel, redrive_all
from om_core.services.sweep import rescue, wake
from om_core.testing.scripted_replies import traces
from om_core.turn import parse_messages
from tests.fuzz.reading import read_context
from tests.fuzz.world import QUEUES, RESOURCE, TENANT, Dialogue, World, text_of

if TYPE_CHECKING:
    from om_core.domain.message import JsonObject
    from om_core.services.deps import Services

Run: TypeAlias = Callable[[World, Random], None]
EXPECTED: Final = (ConflictError, NotFoundError)
"""What an operation may answer when the schedule asks for something that is not there, or not any more."""


@dataclass(frozen=True, slots=True)
class Operation:
    """How often it is drawn, and what it does."""

    weight: int
    run: Run


TABLE: Final[dict[str, Operation]] = {}


def operation(weight: int) -> Callable[[Run], Run]:
    """Put a function into the table, under its own name."""

    def add(run: Run) -> Run:
        TABLE[run.__name__] = Operation(weight, run)
        return run

    return add


def dialogue_of(world: World, rng: Random) -> Dialogue:
    """One of the threads."""
    return rng.choice(list(world.dialogues.values()))


def process_of(world: World, rng: Random) -> Services:
    """One of the processes."""
    return rng.choice(world.processes)


def _words(dialogue: Dialogue, rng: Random) -> str:
    dialogue.number += 1
    return f"TRACE-{dialogue.name}-{dialogue.number} " + "and so on " * rng.choice([1, 3, 8, 20])


def _id(dialogue: Dialogue) -> str:
    return f"m-{dialogue.number}"


def _post(world: World, rng: Random, dialogue: Dialogue, messages: list[JsonObject]) -> None:
    """One request; what it names is stored once it is answered."""
    request = StepRequest(
        thread=dialogue.name,
        resource=RESOURCE,
        messages=parse_messages(messages, "om"),
        end_of_turn=rng.random() < 0.2,
    )
    before = (dialogue.removals, dialogue.taking)
    result = append(process_of(world, rng), TENANT, request)
    if before == (dialogue.removals, 0):  # else what was stored may have been removed since
        kept = [message for message in request.messages if message.id not in result.deleted]
        dialogue.stored |= {trace for message in kept for trace in traces(text_of(message))}


def _talk(dialogue: Dialogue, rng: Random) -> list[JsonObject]:
    found = []
    for _ in range(rng.choice([1, 1, 2, 4])):
        words = _words(dialogue, rng)
        role = "user" if dialogue.number == 1 or rng.random() < 0.5 else "assistant"
        found.append({"id": _id(dialogue), "role": role, "parts": [{"type": "text", "text": words}]})
    return found


@operation(22)
def say(world: World, rng: Random) -> None:
    dialogue = dialogue_of(world, rng)
    messages = _talk(dialogue, rng)
    dialogue.requests.append(messages)
    _post(world, rng, dialogue, messages)


@operation(3)
def say_without_ids(world: World, rng: Random) -> None:
    dialogue = dialogue_of(world, rng)
    [message, *_] = _talk(dialogue, rng)
    message.pop("id")
    _post(world, rng, dialogue, [message])


@operation(7)
def repeat(world: World, rng: Random) -> None:
    """A client that had no answer, or doubts it, sends the same request again."""
    dialogue = dialogue_of(world, rng)
    if dialogue.requests:
        _post(world, rng, dialogue, rng.choice(dialogue.requests[-4:]))


@operation(6)
def call_tool(world: World, rng: Random) -> None:
    """An assistant's call: answered at once, later, or never."""
    dialogue = dialogue_of(world, rng)
    words = _words(dialogue, rng)
    call_id = f"call-{dialogue.number}"
    call = {"type": "tool_call", "call_id": call_id, "name": "look", "args": {"for": words}}
    messages: list[JsonObject] = [{"id": _id(dialogue), "role": "assistant", "parts": [call]}]
    if rng.random() < 0.4:
        messages.append(_result(dialogue, rng, call_id))
    else:
        dialogue.open_calls.append(call_id)
    dialogue.requests.append(messages)
    _post(world, rng, dialogue, messages)


@operation(5)
def answer_call(world: World, rng: Random) -> None:
    dialogue = dialogue_of(world, rng)
    if dialogue.open_calls:
        call_id = dialogue.open_calls.pop(rng.randrange(len(dialogue.open_calls)))
        messages = [_result(dialogue, rng, call_id)]
        dialogue.requests.append(messages)
        _post(world, rng, dialogue, messages)


def _result(dialogue: Dialogue, rng: Random, call_id: str) -> JsonObject:
    words = _words(dialogue, rng)
    part = {"type": "tool_result", "call_id": call_id, "name": "look", "result": words}
    return {"id": _id(dialogue), "role": "tool", "parts": [part]}


@operation(4)
def go_on(world: World, rng: Random) -> None:
    """A streamed message is saved again with more parts: a continuation row."""
    dialogue = dialogue_of(world, rng)
    message: dict[str, Any] = dialogue.last
    if not message or rng.random() < 0.5:
        words = _words(dialogue, rng)
        message = {"id": _id(dialogue), "role": "assistant", "parts": [{"type": "text", "text": words}]}
    else:
        message = {**message, "parts": [*message["parts"], {"type": "text", "text": _words(dialogue, rng)}]}
    dialogue.last = message
    _post(world, rng, dialogue, [message])


@operation(20)
def context(world: World, rng: Random) -> None:
    read_context(
        world,
        process_of(world, rng),
        dialogue_of(world, rng),
        max_tokens=rng.choice([None, None, 150, 400]),
        read_only=rng.random() < 0.1,
        wait=rng.random() < 0.3,
    )


@operation(20)
def work(world: World, rng: Random) -> None:
    """A worker claims the best job of a queue and does it."""
    rng.choice(world.runners).run(rng.choice(QUEUES))


@operation(10)
def deliver_ring(world: World, rng: Random) -> None:
    """A ring reaches a worker: late, or a second time."""
    if world.bell.rung:
        ref = rng.choice(world.bell.rung)
        rng.choice(world.runners).run(ref.queue.value, ref.id)


@operation(7)
def expire_leases(world: World, rng: Random) -> None:
    """Leases run out, whether their workers live or not; somebody takes the jobs over."""
    world.admin(
        "UPDATE jobs SET lease_expires_at = clock_timestamp() - interval '1 s' WHERE state = 'running'"
        " AND id %% 2 = %s",
        rng.randrange(2),
    )
    services = process_of(world, rng)
    for tenant, job_id in services.store.system.expired(limit=50):
        rescue(services, tenant, job_id)


@operation(12)
def take_over(world: World, rng: Random) -> None:
    """Every lease runs out, and another worker does at once what the first one may still be at."""
    world.admin("UPDATE jobs SET lease_expires_at = clock_timestamp() - interval '1 s' WHERE state = 'running'")
    services, runner = process_of(world, rng), rng.choice(world.runners)
    for tenant, job_id in services.store.system.expired(limit=50):
        rescue(services, tenant, job_id)
    for queue in rng.sample(QUEUES, k=len(QUEUES)):
        runner.run(queue)


@operation(6)
def pass_backoff(world: World, rng: Random) -> None:
    world.admin("UPDATE jobs SET run_at = clock_timestamp() WHERE state = 'retryable'")


@operation(9)
def activate_by_hand(world: World, rng: Random) -> None:
    dialogue = dialogue_of(world, rng)
    activate(process_of(world, rng), TENANT, _thread_id(world, dialogue), forced="manual")


def _thread_id(world: World, dialogue: Dialogue) -> int:
    with world.store.reading(TENANT) as tx:
        found = tx.threads.get(RESOURCE, dialogue.name)
    if found is None:
        raise NotFoundError(dialogue.name)
    return found.id


@operation(4)
def sleep(world: World, rng: Random) -> None:
    """Two hours pass for a thread: calls grow old, small tails are observed; the sweep wakes it."""
    services = process_of(world, rng)
    age(world, _thread_id(world, dialogue_of(world, rng)))
    for tenant, thread_id in services.store.system.idle_threads(limit=50):
        wake(services, tenant, thread_id)


def age(world: World, thread_id: int, by: timedelta = timedelta(hours=2)) -> None:
    """Move what a thread remembers of time into the past."""
    with world.store.transaction(TENANT) as tx:
        thread = tx.threads.lock_by_id(thread_id)
        if thread is None:  # deleted meanwhile
            raise NotFoundError(str(thread_id))
        changes: dict[str, Any] = {
            "open_calls": tuple(replace(call, at=call.at - by) for call in thread.open_calls),
        }
        for name in ("last_activity_at", "oldest_pending_at", "idle_due_at"):
            moment = getattr(thread, name)
            if moment is not None:
                changes[name] = moment - by
        tx.threads.update(thread_id, **changes)


@operation(3)
def ask_by_hand(world: World, rng: Random) -> None:
    kind = rng.choice([JobKind.OBSERVE, JobKind.REFLECT])
    ask_for(process_of(world, rng), TENANT, kind, dialogue_of(world, rng).name, RESOURCE)


@operation(3)
def flush(world: World, rng: Random) -> None:
    """What is pending is noted and moved into the log at once."""
    dialogue = dialogue_of(world, rng)
    ask_for(process_of(world, rng), TENANT, JobKind.OBSERVE, dialogue.name, RESOURCE)
    for queue in ("observation", "buffering"):
        rng.choice(world.runners).run(queue)
    activate(process_of(world, rng), TENANT, _thread_id(world, dialogue), forced="manual")


@operation(2)
def redrive(world: World, rng: Random) -> None:
    redrive_all(process_of(world, rng), TENANT)


@operation(2)
def cancel_job(world: World, rng: Random) -> None:
    with world.store.reading(TENANT) as tx:
        page = tx.jobs.page(state=None, kind=None, thread_id=None, cursor=None, limit=20).items
    live = [job.id for job in page if job.state in LIVE_STATES]
    if live:
        cancel(process_of(world, rng), TENANT, rng.choice(live))


@operation(2)
def audit_all(world: World, rng: Random) -> None:
    audit(process_of(world, rng))
