from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from om_core.domain.chunk import Chunk, ChunkKind, ChunkState
from om_core.domain.invariants import Material
from om_core.domain.message import Message, Reasoning, Role, StoredMessage, Text
from om_core.domain.thread import MemoryState, Snapshot, ThreadState
from om_core.services.coverage import audit

NOW = datetime(2026, 3, 1, tzinfo=UTC)


def row(seq: int, tokens: int = 10, **changes) -> StoredMessage:
    message = Message(role=Role.USER, parts=(Text(text=f"number {seq}"),))
    return replace(StoredMessage(seq=seq, message=message, tokens=tokens, created_at=NOW, turn=1), **changes)


def chunk(id: int, first: int, last: int, position: int | None = None, **changes) -> Chunk:
    made = Chunk(
        id=id,
        thread_id=1,
        from_seq=first,
        to_seq=last,
        kind=ChunkKind.OBSERVED,
        state=ChunkState.BUFFERED if position is None else ChunkState.ACTIVE,
        position=position,
        text="notes",
        tokens=5,
        message_tokens=10 * (last - first + 1),
    )
    return replace(made, **changes)


def sound(**changes) -> Material:
    """Ten rows: 1 to 4 in two active chunks, 5 to 6 buffered, the rest unbuffered; 5 to 10 raw."""
    thread = ThreadState(
        id=1,
        tenant_id="t",
        external_id="a",
        resource_id="r",
        memory_id=1,
        head_seq=10,
        buffered_seq=6,
        observed_seq=4,
        cut_seq=8,
        pending_tokens=60,
        unbuffered_tokens=40,
        held_tokens=20,
    )
    active = (chunk(1, 1, 2, 1), chunk(2, 3, 4, 2))
    material = Material(
        snapshot=Snapshot(thread=thread, memory=MemoryState(id=1, log_tokens=10, next_position=3)),
        messages=tuple(row(seq) for seq in range(1, 11)),
        chunks=(*active, chunk(3, 5, 6)),
        log=active,
        reflection=None,
        shown=frozenset(range(5, 11)),
    )
    return replace(material, **changes)


def with_thread(**changes) -> Material:
    material = sound()
    thread = replace(material.snapshot.thread, **changes)
    return replace(material, snapshot=replace(material.snapshot, thread=thread))


def with_chunks(*chunks: Chunk) -> Material:
    return sound(chunks=chunks, log=tuple(one for one in chunks if one.position))


def test_a_sound_thread_has_no_findings():
    found = audit(sound())

    assert found.holds
    assert (found.messages, found.chunks, found.uncovered_messages, found.doubly_covered_messages) == (10, 3, 0, 0)


@pytest.mark.parametrize(
    ("material", "uncovered"),
    [
        (with_chunks(chunk(1, 1, 2, 1), chunk(3, 5, 6)), (3, 4)),
        (with_chunks(chunk(1, 1, 2, 1), chunk(2, 4, 4, 2), chunk(3, 5, 6)), (3,)),
        (sound(shown=frozenset(range(6, 11))), (5,)),
        (sound(shown=frozenset(range(5, 10))), (10,)),
        (sound(shown=frozenset()), (5, 6, 7, 8, 9, 10)),
    ],
)
def test_a_message_that_is_neither_raw_nor_in_a_chunk_is_uncovered(material, uncovered):
    found = audit(material)

    assert found.uncovered == uncovered
    assert found.uncovered_messages == len(uncovered)
    assert not found.holds


def test_a_message_in_two_chunks_is_doubly_covered():
    found = audit(with_chunks(chunk(1, 1, 3, 1), chunk(2, 3, 4, 2), chunk(3, 5, 6)))

    assert found.doubly_covered == (3,)
    assert found.doubly_covered_messages == 1
    assert not found.holds


@pytest.mark.parametrize(
    "gone",
    [
        row(7, removed=True, tokens=0),
        row(7, message=Message(role=Role.USER, parts=(Reasoning(text="hm"),)), tokens=0),
        row(7, message=Message(role=Role.SYSTEM, parts=(Text(text="rules"),)), tokens=0),
    ],
)
def test_a_row_that_is_never_rendered_need_not_be_raw(gone):
    rows = tuple(gone if one.seq == 7 else one for one in sound().messages)
    thread = replace(sound().snapshot.thread, pending_tokens=50, unbuffered_tokens=30)
    material = sound(
        messages=rows, shown=frozenset({5, 6, 8, 9, 10}), snapshot=replace(sound().snapshot, thread=thread)
    )

    assert audit(material).holds


def test_what_the_cap_leaves_out_is_not_uncovered():
    found = audit(sound(shown=frozenset({8, 9, 10}), shown_from_seq=8))

    assert found.uncovered == ()


@pytest.mark.parametrize(
    ("material", "word"),
    [
        (with_thread(pending_tokens=61), "pending_tokens is 61, counted 60"),
        (with_thread(unbuffered_tokens=39), "unbuffered_tokens is 39, counted 40"),
        (with_thread(held_tokens=0), "held_tokens is 0, counted 20"),
        (with_thread(stale_tokens=3), "stale_tokens is 3, counted 0"),
        (sound(log=()), "log_tokens is 10, counted 0"),
        (sound(messages=sound().messages[1:]), "1 of 10 rows are missing"),
        (with_thread(head_seq=9), "rows above head_seq 9: [10]"),
        (with_chunks(*sound().chunks, chunk(4, 7, 8)), "chunk 4 ends at 8, above buffered_seq 6"),
        (with_chunks(chunk(1, 1, 2, 1), chunk(2, 3, 4), chunk(3, 5, 6)), "chunk 2 (buffered) ends at 4"),
        (with_chunks(*sound().chunks[:2], chunk(3, 5, 6, 3)), "chunk 3 (active) ends at 6"),
    ],
)
def test_a_cursor_or_counter_that_disagrees_with_the_rows_is_named(material, word):
    found = audit(material)

    assert any(word in misfit for misfit in found.misfits), found.misfits
    assert not found.holds
