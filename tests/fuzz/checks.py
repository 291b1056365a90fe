"""What must hold after a schedule: every invariant, and every trace where it belongs, once."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from om_core.domain.chunk import ReflectionState
from om_core.services.coverage import examine
from om_core.testing.scripted_replies import traces
from tests.fuzz.world import QUEUES, RESOURCE, TENANT, World, message_traces

if TYPE_CHECKING:
    from collections.abc import Iterator

    import psycopg2.extensions

    from om_core.domain.invariants import Marks
    from om_core.domain.thread import ThreadState
    from om_core.ports import Transaction

ROUNDS = 60
INJECTED = ("fuzz: ", "fuzz/scripted: ", "lease of ")
"""How errors begin that the schedule made: of the model, of its answers, of leases. Cut connections name their class."""


def settle(world: World) -> None:
    """Let what is live be done by workers that live: nothing is decided anew from outside."""
    world.calm = True
    system, runner = world.store.system, world.runners[0]
    for _ in range(ROUNDS):
        world.admin("UPDATE jobs SET run_at = clock_timestamp() WHERE state IN ('available', 'retryable')")
        world.admin("UPDATE jobs SET lease_expires_at = clock_timestamp() - interval '1 s' WHERE state = 'running'")
        _rescue_all(world)
        outcomes = [runner.run(queue) for queue in QUEUES]  # every queue, whatever the first one had
        if not any(outcomes) and not system.expired(limit=1):
            return
    world.findings.append(f"live: jobs are still due after {ROUNDS} rounds of clean workers")


def _rescue_all(world: World) -> None:
    from om_core.services.sweep import rescue

    for tenant, job_id in world.store.system.expired(limit=50):
        rescue(world.services, tenant, job_id)


def wake_all(world: World) -> None:
    """Two hours pass for every thread, and a sweep comes."""
    from om_core.services.sweep import wake
    from tests.fuzz.operations import age

    for thread in threads(world):
        age(world, thread.id)
    for tenant, thread_id in world.store.system.idle_threads(limit=50):
        wake(world.services, tenant, thread_id)


def read_all(world: World) -> None:
    """Every client asks once more, and knows what it was told before."""
    from tests.fuzz.reading import read_context

    for thread in threads(world):
        dialogue = world.dialogues[thread.external_id]
        read_context(world, world.services, dialogue, max_tokens=None, read_only=False, wait=False)


def threads(world: World) -> list[ThreadState]:
    """The threads that came to be."""
    with world.store.reading(TENANT) as tx:
        found = [tx.threads.get(RESOURCE, name) for name in world.dialogues]
    return [thread for thread in found if thread is not None]


def check(world: World, marks: dict[int, Marks]) -> None:
    """Add what does not hold to the findings."""
    for thread in threads(world):
        found, marks[thread.id] = examine(world.services, TENANT, thread.id, previous=marks.get(thread.id))
        world.findings += [str(one) for one in found]
        with world.store.reading(TENANT) as tx:
            world.findings += _traces(tx, world, thread)
    with world.store.reading(TENANT) as tx:
        world.findings += _internal(tx)


def _traces(tx: Transaction, world: World, thread: ThreadState) -> Iterator[str]:
    """Each trace stands in one row; each chunk names exactly its rows' traces; what was answered is there."""
    rows = tx.messages.between(thread.id, 0, None, limit=10_000)
    by_seq = {row.seq: message_traces([row]) for row in rows}
    counted = Counter(trace for found in by_seq.values() for trace in found)
    if lost := world.dialogues[thread.external_id].stored - set(counted):
        yield f"lost: {sorted(lost)} were answered, and are not stored"
    if twice := [trace for trace, count in counted.items() if count > 1]:
        yield f"twice: {twice} are stored more than once"
    noted: Counter[str] = Counter()
    for chunk in tx.chunks.page(thread.id, state="all", cursor=None, limit=10_000).items:
        if chunk.stale:
            yield f"stale: the notes of chunk {chunk.id} were not made again"
            continue
        expected = [trace for seq in range(chunk.from_seq, chunk.to_seq + 1) for trace in by_seq.get(seq, ())]
        noted.update(traces(chunk.text))
        if traces(chunk.text) != expected:
            yield f"notes: chunk {chunk.id} ({chunk.kind}) names {traces(chunk.text)}, its rows {expected}"
    if again := [trace for trace, count in noted.items() if count > 1]:
        yield f"twice: {again} are noted more than once"
    yield from _reflected(tx, thread)


def _reflected(tx: Transaction, thread: ThreadState) -> Iterator[str]:
    """A generation in effect, or waiting for it, stands for every chunk up to its position."""
    memory = tx.memories.get(thread.memory_id)
    chunks = tx.chunks.log(memory.id, 0)
    for one in tx.reflections.page(memory.id, cursor=None, limit=1000).items:
        if one.state not in {ReflectionState.ACTIVE, ReflectionState.BUFFERED}:
            continue
        expected = {
            trace for chunk in chunks if (chunk.position or 0) <= one.through_position for trace in traces(chunk.text)
        }
        if set(traces(one.text)) != expected:
            yield f"notes: generation {one.generation} misses {sorted(expected - set(traces(one.text)))}"


def check_gone(world: World, admin: psycopg2.extensions.connection) -> None:
    """Nothing that is stored holds a word of what was deleted for good."""
    gone = sorted({trace for dialogue in world.dialogues.values() for trace in dialogue.gone})
    if not gone:
        return
    pattern = f"({'|'.join(gone)})($|[^0-9])"
    with admin.cursor() as cursor:
        cursor.execute("SELECT table_name, column_name FROM information_schema.columns WHERE table_schema = 'public'")
        for table, column in cursor.fetchall():
            cursor.execute(f'SELECT "{column}"::text FROM "{table}" WHERE "{column}"::text ~ %s LIMIT 1', (pattern,))
            world.findings += [f"removed: {table}.{column} holds {found[0][:200]}" for found in cursor.fetchall()]


def _internal(tx: Transaction) -> Iterator[str]:
    """Errors that workers met and that nobody injected."""
    for job in tx.jobs.page(state=None, kind=None, thread_id=None, cursor=None, limit=1000).items:
        for attempt in job.attempts:
            text = str(attempt.get("error") or "")
            if text and not text.startswith(INJECTED) and "OperationalError" not in text:
                yield f"internal: job {job.id} ({job.kind}) failed with {text[:300]}"
