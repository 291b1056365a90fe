"""What the database refuses, whatever the code does: each rule of DESIGN 3.1 broken on purpose, as the superuser."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import sqlalchemy as sa
from sqlalchemy import exc

if TYPE_CHECKING:
    from om_core.memory import Memory
    from om_core.store.engine import PostgresStore

CHUNK = (
    "INSERT INTO chunks (tenant_id, memory_id, thread_id, from_seq, to_seq, kind, state, text, tokens, message_tokens)"
    " SELECT tenant_id, memory_id, id, {0}, {1}, 'observed', 'buffered', 'x', 1, 1 FROM threads"
)
JOB = (
    "INSERT INTO jobs (tenant_id, kind, queue, target, thread, memory_id, thread_id, state)"
    " SELECT tenant_id, 'observe', 'buffering', 'thread:1', 't', memory_id, id, '{0}' FROM threads"
)
SAME_SEQ = (
    "INSERT INTO messages (tenant_id, thread_id, seq, role, parts, tokens, created_at, turn)"
    " SELECT tenant_id, thread_id, seq, role, parts, tokens, created_at, turn FROM messages"
)
SAME_ID = (
    "INSERT INTO messages (tenant_id, thread_id, seq, client_id, role, parts, tokens, created_at, turn)"
    " SELECT tenant_id, thread_id, seq + 1, client_id, role, parts, tokens, created_at, turn FROM messages"
)
REFLECTION = (
    "INSERT INTO reflections (tenant_id, memory_id, generation, base_generation, through_position, state, text,"
    " tokens, input_tokens) SELECT tenant_id, id, {0}, {1}, 0, 'active', '', 0, 0 FROM memories{2}"
)
BROKEN = {
    "a chunk that leaves a gap": ([CHUNK.format(1, 2), CHUNK.format(4, 5)], "chunks_tile_fkey"),
    "a chunk that overlaps": ([CHUNK.format(1, 2), CHUNK.format(2, 3)], "chunks_tile_fkey"),
    "two chunks with one start": ([CHUNK.format(1, 2), CHUNK.format(1, 3)], "chunks_tenant_id_thread_id_from_seq_key"),
    "two chunks with one end": (
        [CHUNK.format(1, 2), CHUNK.format(3, 4), "UPDATE chunks SET to_seq = 4 WHERE from_seq = 1"],
        "chunks_tenant_id_thread_id_to_seq_key",
    ),
    "an empty range": ([CHUNK.format(3, 2)], "chunks_range_check"),
    "a buffered chunk with a position": (
        [CHUNK.format(1, 2), "UPDATE chunks SET position = 1"],
        "chunks_position_check",
    ),
    "a cursor beyond the head": (["UPDATE threads SET buffered_seq = head_seq + 1"], "threads_cursor_order_check"),
    "a log cursor beyond the buffer": (
        ["UPDATE threads SET observed_seq = buffered_seq + 1"],
        "threads_cursor_order_check",
    ),
    "counters below zero": (["UPDATE threads SET held_tokens = -1"], "threads_tokens_check"),
    "a second message with one seq": (
        [SAME_SEQ],
        "messages_pkey",
    ),
    "a message id twice": (
        [SAME_ID],
        "messages_client_id_key",
    ),
    "a live message without parts": (["UPDATE messages SET parts = NULL"], "messages_tombstone_check"),
    "two live jobs for one target": ([JOB.format("available"), JOB.format("retryable")], "jobs_live_key"),
    "a running job without a lease": ([JOB.format("running")], "jobs_lease_check"),
    "a finished job without an end": ([JOB.format("completed")], "jobs_finished_check"),
    "a message of another tenant's thread": (
        ["UPDATE messages SET tenant_id = 'other'"],
        "messages_tenant_id_thread_id_fkey",
    ),
    "a thread of another tenant's memory": (
        ["UPDATE threads SET tenant_id = 'other'"],
        "threads_tenant_id_memory_id_fkey|messages_tenant_id_thread_id_fkey",
    ),
    "two active generations": (
        [REFLECTION.format("g", "0", ", generate_series(1, 2) g")],
        "reflections_active_key",
    ),
    "a generation over itself": (
        [REFLECTION.format("1", "1", "")],
        "reflections_generation_check",
    ),
    "a reflected position that does not exist": (
        ["UPDATE memories SET reflected_position = next_position"],
        "memories_positions_check",
    ),
}


@pytest.mark.conforms("11.32")
@pytest.mark.parametrize("case", BROKEN)
def test_the_database_refuses(memory: Memory, store: PostgresStore, case: str) -> None:
    statements, constraint = BROKEN[case]
    memory.append("t", [{"role": "user", "content": "hello"}], resource="r")

    with store.engine.connect() as connection:
        *allowed, refused = statements
        for statement in allowed:
            connection.execute(sa.text(statement))
        with pytest.raises(exc.IntegrityError, match=constraint):
            connection.execute(sa.text(refused))


def test_chunks_that_tile_are_accepted(memory: Memory, store: PostgresStore) -> None:
    memory.append("t", [{"role": "user", "content": "hello"}], resource="r")

    with store.engine.connect() as connection:
        for first, last in ((1, 2), (3, 3), (4, 9)):
            connection.execute(sa.text(CHUNK.format(first, last)))
        assert connection.scalar(sa.text("SELECT count(*) FROM chunks")) == 3
