"""Long histories in a second: SQL as superuser that leaves every constraint, cursor and counter as the service would.

A thread of any length whose messages are all covered by chunks that tile, most of them reflected; and threads whose
chunks are ready to be activated onto a log of a given size. Appends, contexts and activations then take the normal path.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from om_core.tokens import MESSAGE_OVERHEAD, TiktokenCounter

if TYPE_CHECKING:
    import psycopg2.extensions

COUNTER = TiktokenCounter()
TEXT_TOKENS = 120
RESOURCE = "bench"
TENANT = "default"
PER_CHUNK = 50
"""Messages per chunk: 6,000 tokens, the default buffer interval."""
VISIBLE = 10
"""Chunks of a long history that are not reflected yet."""
_PROSE = (
    " is the number of this message. We agreed that the invoice goes to the Berlin office on Friday, that Maria calls the"
    " warehouse about the missing boxes, and that nobody changes the delivery address before she has an answer."
    " The boxes hold the replacement parts for the two pumps in hall four, which have to run again by the end of the month."
    " If the parts come late, we rent a pump from the supplier in Leipzig, as we did in March, and send them the bill."
    " Please remind me on Thursday to check what the rent was and whether the contract still holds for the next year or two."
)
_NOTE = (
    "* 🟡 (09:12) The invoice goes to the Berlin office on Friday; Maria calls the warehouse about the missing boxes.\n"
)


def message_text(number: int) -> str:
    """A text of exactly 120 tokens; another one for each number up to a million."""
    return COUNTER.truncate(f"{number:06d}{_PROSE}", TEXT_TOKENS)


REST = message_text(0)[6:]
MESSAGE_TOKENS = TEXT_TOKENS + MESSAGE_OVERHEAD


def notes_text(tokens: int) -> str:
    """Notes of about so many tokens, below a date."""
    lines = max(1, round(tokens / COUNTER.count_text(_NOTE)))
    return ("Date: May 4, 2026\n" + _NOTE * lines).rstrip()


_THREAD = """
WITH m AS (
    INSERT INTO memories (tenant_id, scope, scope_key) VALUES (%(tenant)s, 'thread', %(resource)s || '/' || %(name)s)
    RETURNING id)
INSERT INTO threads (tenant_id, external_id, resource_id, memory_id)
SELECT %(tenant)s, %(name)s, %(resource)s, m.id FROM m
RETURNING id, memory_id
"""
_MESSAGES = """
INSERT INTO messages (tenant_id, thread_id, seq, client_id, role, parts, tokens, fingerprint, created_at, turn)
SELECT %(tenant)s, %(thread)s, n, 'om-' || md5(%(thread)s || '-' || n),
       CASE WHEN n %% 2 = 1 THEN 'user' ELSE 'assistant' END,
       json_build_array(json_build_object('type', 'text', 'text', lpad(n::text, 6, '0') || %(rest)s)),
       %(tokens)s, decode(md5(n::text), 'hex'),
       clock_timestamp() - interval '1 second' * (%(to)s - n + 1), (n + 1) / 2
  FROM generate_series(%(from)s, %(to)s) AS n
"""
_CHUNKS = """
INSERT INTO chunks (tenant_id, memory_id, thread_id, from_seq, to_seq, kind, state, position, text, tokens,
                    message_tokens, activated_at)
SELECT %(tenant)s, %(memory)s, %(thread)s, %(first_seq)s + (n - 1) * %(per)s,
       %(first_seq)s + least(n * %(per)s, %(messages)s) - 1, 'observed', CASE WHEN %(active)s THEN 'active' ELSE 'buffered' END,
       CASE WHEN %(active)s THEN n END, %(text)s, %(note_tokens)s,
       %(tokens)s * (least(n * %(per)s, %(messages)s) - (n - 1) * %(per)s),
       CASE WHEN %(active)s THEN clock_timestamp() END
  FROM generate_series(1, %(chunks)s) AS n
"""
_REFLECTION = """
INSERT INTO reflections (tenant_id, memory_id, generation, base_generation, through_position, state, text, tokens,
                         input_tokens, activated_at)
VALUES (%(tenant)s, %(memory)s, 1, 0, %(through)s, 'active', %(text)s, %(tokens)s, %(tokens)s, clock_timestamp())
"""
_MEMORY_STATE = """
UPDATE memories SET generation = %(generation)s, base_tokens = %(base)s, log_tokens = %(log)s,
       reflected_position = %(through)s, next_position = %(next)s
 WHERE tenant_id = %(tenant)s AND id = %(memory)s
"""
_THREAD_STATE = """
UPDATE threads SET head_seq = %(head)s, buffered_seq = %(buffered)s, observed_seq = %(observed)s, cut_seq = %(head)s,
       pending_tokens = %(pending)s, unbuffered_tokens = 0, turn = (%(head)s + 1) / 2,
       question_seq = %(head)s - (%(head)s + 1) %% 2, last_activity_at = clock_timestamp()
 WHERE tenant_id = %(tenant)s AND id = %(thread)s
"""


def covered_thread(admin: psycopg2.extensions.connection, name: str, messages: int) -> int:
    """A thread of so many messages of 120 tokens, all of them covered by active chunks; its id.

    Of the chunks, the newest ten stand in the log and the older ones behind a reflection.
    """
    chunks = -(-messages // PER_CHUNK)
    through = max(0, chunks - VISIBLE)
    text = notes_text(100)
    note_tokens = COUNTER.count_text(text)
    base = note_tokens if through else 0
    with admin.cursor() as cursor:
        thread, memory = _new_thread(cursor, name)
        ids = {"tenant": TENANT, "thread": thread, "memory": memory}
        cursor.execute(_MESSAGES, {**ids, "from": 1, "to": messages, "rest": REST, "tokens": MESSAGE_TOKENS})
        cursor.execute(_CHUNKS, {**ids, **_chunk_values(messages, chunks, text, note_tokens), "active": True})
        if through:
            cursor.execute(_REFLECTION, {**ids, "through": through, "text": text, "tokens": base})
        log = base + (chunks - through) * note_tokens
        state = {"generation": int(through > 0), "base": base, "log": log, "through": through, "next": chunks + 1}
        cursor.execute(_MEMORY_STATE, {**ids, **state})
        cursor.execute(
            _THREAD_STATE, {**ids, "head": messages, "buffered": messages, "observed": messages, "pending": 0}
        )
    return thread


def ready_thread(admin: psycopg2.extensions.connection, name: str, *, chunks: int, log_tokens: int) -> int:
    """A thread over its threshold: so many buffered chunks of 6,000 tokens, on a log of about `log_tokens`; its id.

    The log consists of chunks of 400 tokens, each of which covers one message.
    """
    messages = chunks * PER_CHUNK
    text, note_tokens = _sized(100)
    old_text, old_tokens = _sized(400)
    old_chunks = round(log_tokens / old_tokens)
    with admin.cursor() as cursor:
        thread, memory = _new_thread(cursor, name)
        ids = {"tenant": TENANT, "thread": thread, "memory": memory}
        head = old_chunks + messages
        cursor.execute(_MESSAGES, {**ids, "from": 1, "to": head, "rest": REST, "tokens": MESSAGE_TOKENS})
        if old_chunks:
            values = _chunk_values(old_chunks, old_chunks, old_text, old_tokens)
            cursor.execute(_CHUNKS, {**ids, **values, "per": 1, "active": True})
        values = _chunk_values(messages, chunks, text, note_tokens)
        cursor.execute(_CHUNKS, {**ids, **values, "first_seq": old_chunks + 1, "active": False})
        state = {"generation": 0, "base": 0, "through": 0, "log": old_chunks * old_tokens, "next": old_chunks + 1}
        cursor.execute(_MEMORY_STATE, {**ids, **state})
        cursors = {"head": head, "buffered": head, "observed": old_chunks, "pending": messages * MESSAGE_TOKENS}
        cursor.execute(_THREAD_STATE, {**ids, **cursors})
    return thread


def settle(admin: psycopg2.extensions.connection) -> None:
    """Statistics, visibility and a checkpoint, so that none of them falls into a measurement."""
    with admin.cursor() as cursor:
        cursor.execute("VACUUM ANALYZE")
        cursor.execute("CHECKPOINT")


def _sized(tokens: int) -> tuple[str, int]:
    text = notes_text(tokens)
    return text, COUNTER.count_text(text)


def _new_thread(cursor: psycopg2.extensions.cursor, name: str) -> tuple[int, int]:
    cursor.execute(_THREAD, {"tenant": TENANT, "resource": RESOURCE, "name": name})
    row = cursor.fetchone()
    assert row is not None
    return int(row[0]), int(row[1])


def _chunk_values(messages: int, chunks: int, text: str, note_tokens: int) -> dict[str, object]:
    return {
        "messages": messages,
        "chunks": chunks,
        "per": PER_CHUNK,
        "first_seq": 1,
        "text": text,
        "note_tokens": note_tokens,
        "tokens": MESSAGE_TOKENS,
    }
