"""Operations that take away: a message, the end of a thread, a thread; and an older generation as base again.

What a removal is about to take is no longer owed from the moment it begins: nobody knows whether a process that dies in
it has committed. What is stored while one is under way is not owed either.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from om_core.domain.errors import InvalidInputError, NotFoundError
from om_core.domain.job import JobKind
from om_core.services.forget import delete_thread as delete
from om_core.services.manual import ask_for
from om_core.services.remove import delete_message as forget
from om_core.services.remove import rewind as go_back
from om_core.services.restore import restore
from tests.fuzz.operations import dialogue_of, operation, process_of
from tests.fuzz.world import RESOURCE, TENANT, message_traces

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from random import Random

    from om_core.domain.message import StoredMessage
    from tests.fuzz.world import Dialogue, World


def _rows(world: World, dialogue: Dialogue) -> list[StoredMessage]:
    with world.store.reading(TENANT) as tx:
        found = tx.threads.get(RESOURCE, dialogue.name)
        if found is None:
            raise NotFoundError(dialogue.name)
        return [row for row in tx.messages.between(found.id, 0, None, limit=10_000) if not row.removed]


@contextmanager
def _taking(world: World, dialogue: Dialogue) -> Iterator[list[StoredMessage]]:
    """While something is removed; the rows that there are."""
    dialogue.taking += 1
    dialogue.removals += 1
    world.rebased = True
    try:
        yield _rows(world, dialogue)
    finally:
        dialogue.taking -= 1
        dialogue.removals += 1


def _no_longer_owed(dialogue: Dialogue, rows: Iterable[StoredMessage]) -> set[str]:
    taken = set(message_traces(rows))
    dialogue.stored -= taken
    return taken


@operation(3)
def delete_message(world: World, rng: Random) -> None:
    _forget(world, rng, dialogue_of(world, rng), through=None)


@operation(2)
def forget_and_condense(world: World, rng: Random) -> None:
    """Somebody deletes what is noted already, and has the log condensed while its notes are still to be made again."""
    dialogue = dialogue_of(world, rng)
    with world.store.reading(TENANT) as tx:
        found = tx.threads.get(RESOURCE, dialogue.name)
    if found is not None:
        _forget(world, rng, dialogue, through=found.observed_seq)
        ask_for(process_of(world, rng), TENANT, JobKind.REFLECT, dialogue.name, RESOURCE)


def _forget(world: World, rng: Random, dialogue: Dialogue, *, through: int | None) -> None:
    """Delete one message, of those up to a seq if any is named there."""
    lives = dialogue.lives
    with _taking(world, dialogue) as rows:
        named = [row for row in rows if row.message.id is not None and (through is None or row.seq <= through)]
        if not named:
            return
        first = rng.choice(named)
        taken = _no_longer_owed(dialogue, [row for row in rows if first.seq in {row.seq, row.continues}])
        forget(process_of(world, rng), TENANT, dialogue.name, str(first.message.id), RESOURCE)
        if lives == dialogue.lives:
            dialogue.gone |= taken


@operation(3)
def rewind(world: World, rng: Random) -> None:
    dialogue = dialogue_of(world, rng)
    lives = dialogue.lives
    with _taking(world, dialogue) as rows:
        if not rows:
            return
        to_seq = max(0, rows[-1].seq - rng.choice([1, 1, 2, 5, 20]))
        _no_longer_owed(dialogue, [row for row in rows if row.seq > to_seq])
        try:
            go_back(process_of(world, rng), TENANT, dialogue.name, to_seq, RESOURCE)
        except InvalidInputError:
            if lives == dialogue.lives:  # else another thread has the name by now, and is shorter
                raise


@operation(1)
def delete_thread(world: World, rng: Random) -> None:
    dialogue = dialogue_of(world, rng)
    dialogue.lives += 1
    dialogue.ending += 1  # until it ends nobody knows which of two threads a context shows
    dialogue.gone.clear()  # under the same name another thread may hold the same words again
    try:
        with _taking(world, dialogue) as rows:
            _no_longer_owed(dialogue, rows)
            delete(process_of(world, rng), TENANT, dialogue.name, RESOURCE)
    finally:
        dialogue.ending -= 1
        dialogue.lives += 1


@operation(2)
def restore_generation(world: World, rng: Random) -> None:
    dialogue = dialogue_of(world, rng)
    with world.store.reading(TENANT) as tx:
        found = tx.threads.get(RESOURCE, dialogue.name)
        page = () if found is None else tx.reflections.page(found.memory_id, cursor=None, limit=20).items
    if page:
        world.rebased = True
        restore(process_of(world, rng), TENANT, dialogue.name, rng.choice(page).generation, RESOURCE)
