"""Putting an actor's prompt together from one consistent read (DESIGN 2.5, 2.6, 6.2, 6.5, 6.6, 7). Pure.

Order: preamble, reflection and log as system blocks; then pins, raw messages of stale chunks and the tail, by seq, with
gap markers; then messages still open; then the volatile tail. Everything but the last two is the stable part. Notes
that other threads have added since the last prefix change wait in the tail for the next one (DESIGN 6.9).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, TypeAlias

from om_core.domain.chunk import ChunkKind
from om_core.domain.context import Context, ContextTokens, SystemBlock
from om_core.domain.message import Message, Role, ToolResult, text_of
from om_core.domain.other_threads import conversation_name, news_blocks
from om_core.domain.pairs import Normalised, Piece, normalise
from om_core.domain.preamble import preamble, recall_preamble
from om_core.domain.slices import as_text
from om_core.domain.stable import prefix_hash
from om_core.domain.tags import injected, wrap
from om_core.domain.time_gaps import gap_before, is_spoken
from om_core.domain.trim import Trim, choose_trim, is_shown, pins_after_trim, trim_json, trim_of
from om_core.domain.volatile_tail import after_newest, ephemeral_rows, ephemeral_tokens, tail_message, volatile_blocks

if TYPE_CHECKING:
    from collections.abc import Sequence

    from om_core.domain.chunk import Chunk
    from om_core.domain.context import ContextInput, VolatileBlock
    from om_core.domain.message import StoredMessage

Count: TypeAlias = Callable[[str], int]
"""Tokens of a text; never raises."""

TRIM_MARKER_TOKENS: Final = 60
"""Kept free for the marker that a trim adds."""
_LOG_FRAME: Final = wrap("log", "")
_COVERED: Final = wrap("gap", "Some messages between these are not shown; what they held is in your notes.")
_CONTINUES: Final = wrap("start", "The conversation continues here; what came before is in your notes.")
_BEGINS: Final = wrap("start", "The conversation begins here.")


def assemble(given: ContextInput, count: Count) -> Context:
    """The context: the same input gives the same bytes.

    Args:
        given: one consistent read. Rows that a stored trim leaves out may be among its messages or not.
        count: for texts that are not stored with a count (preamble, markers, hints).

    Returns:
        `shown_from_seq` is the trim to store, with `pins`, when it rose; `prefix_changed` is then `trim`, else the
        thread's stored reason.
        `activated` and `waited_s` are the caller's to fill in.
    """
    thread, newest = given.thread, given.memory.next_position - 1
    reason = thread.prefix_reason or (given.memory.log_reason if given.log_changed else None)
    shown_position = newest if reason else thread.shown_position
    draft = _draft(given, thread.shown_from_seq, shown_position, count)
    if given.max_tokens is not None and draft.tokens.total > given.max_tokens:
        first_shown = _new_trim(given, draft, given.max_tokens)
        if first_shown is not None:
            thread = replace(thread, pins=pins_after_trim(thread, first_shown))
            if first_shown > thread.shown_from_seq:
                reason, shown_position = "trim", newest
            draft = _draft(replace(given, thread=thread), first_shown, shown_position, count)
    over_cap = given.max_tokens is not None and draft.tokens.total > given.max_tokens
    stable = draft.messages[: draft.stable]
    return Context(
        system=draft.system,
        messages=draft.messages,
        stable_messages=draft.stable,
        volatile=draft.volatile,
        tokens=draft.tokens,
        generation=given.reflection.generation if given.reflection else 0,
        observed_seq=thread.observed_seq,
        head_seq=thread.head_seq,
        prefix_hash=prefix_hash(draft.system, stable),
        prefix_changed=reason,
        trimmed=trim_json(thread, draft.trim, sum(row.tokens for row in draft.tail)) if draft.trim else None,
        over_budget=over_cap or thread.pending_tokens >= given.policy.observation.block_after_tokens,
        message_seqs=draft.seqs,
        shown_from_seq=draft.shown_from if draft.trim else 0,
        pins=thread.pins,
        shown_position=shown_position,
        shown_version=given.memory.log_version,
        volatile_messages=draft.volatile_messages,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Draft:
    """A context for one value of `shown_from_seq`."""

    system: tuple[SystemBlock, ...]
    messages: tuple[Message, ...]
    seqs: tuple[int | None, ...]
    stable: int
    volatile: tuple[VolatileBlock, ...]
    volatile_messages: int
    tail: tuple[StoredMessage, ...]
    units: dict[int, int]
    tokens: ContextTokens
    shown_from: int
    trim: Trim | None


def _draft(given: ContextInput, shown_from: int, shown_position: int, count: Count) -> _Draft:
    thread, trim = given.thread, trim_of(given.thread, shown_from)
    rows = shown_rows(given, shown_from)
    markers = _markers(given, rows, trim)
    stored = _with_start(normalise(rows, markers), bool(thread.observed_seq))
    everything = stored
    if given.ephemeral:
        everything = _with_start(normalise([*rows, *ephemeral_rows(given)], markers), bool(thread.observed_seq))
    log, news = _visible(given, shown_position)
    system, blocks = system_blocks(given, log), volatile_blocks(given, news_blocks(news, given.policy))
    tail = tail_message(blocks)
    pieces = list(everything.pieces)
    volatile_from = after_newest(pieces, thread.head_seq)
    if tail:
        pieces.insert(volatile_from, Piece(message=tail, seq=None, unit=thread.head_seq + 1, kind="marker"))
    own = [text for piece in pieces if piece.kind in {"marker", "placeholder"} for text in _texts(piece.message)]
    log_tokens = sum(chunk.tokens for chunk in log) + (given.reflection.tokens if given.reflection else 0)
    units = _units(everything.pieces)
    rows = [row for row in rows if row.seq in units]
    raw = sum(row.tokens for row in rows)
    extra = sum(map(count, own)) + ephemeral_tokens(given, count) + _system_tokens(system, count)
    return _Draft(
        system=system,
        messages=tuple(piece.message for piece in pieces),
        seqs=tuple(piece.seq if piece.seq is None or piece.seq <= thread.head_seq else None for piece in pieces),
        stable=stored.stable,
        volatile=blocks,
        volatile_messages=len(pieces) - volatile_from,
        tail=tuple(row for row in rows if row.seq > thread.observed_seq),
        units=units,
        tokens=ContextTokens(log=log_tokens, messages=raw, total=log_tokens + raw + extra),
        shown_from=shown_from,
        trim=trim,
    )


def shown_rows(given: ContextInput, shown_from: int) -> list[StoredMessage]:
    """Rows that are raw in the context, by seq, each once: all given ones but those left out by the trim.

    Rows without anything visible stay among them: they show that their seq is not a gap.
    """
    thread = given.thread
    rows = {row.seq: row for row in given.messages}
    return [rows[seq] for seq in sorted(rows) if is_shown(thread, shown_from, seq)]


def _markers(given: ContextInput, rows: list[StoredMessage], trim: Trim | None) -> dict[int, list[Message]]:
    """Messages of memory's own, by the seq they stand before: what is not shown between rows, and long pauses."""
    thread = given.thread
    horizon = max(thread.observed_seq, trim.to_seq if trim else 0)
    markers: dict[int, list[Message]] = {}
    previous: StoredMessage | None = None
    spoken: StoredMessage | None = None
    trim_shown = trim is None
    for row in [*rows, None]:
        seq, after = row.seq if row else thread.head_seq + 1, previous.seq if previous else thread.observed_seq
        texts: list[str] = []
        if previous and previous.seq + 1 < min(seq, thread.observed_seq + 1):
            texts.append(_COVERED)
        if trim and not trim_shown and after < trim.to_seq and seq > trim.from_seq:
            texts.append(_left_out(trim))
            trim_shown = True
        hidden = previous is not None and previous.seq + 1 < seq and previous.seq < horizon
        if row and given.policy.temporal_markers:
            gap = gap_before(row, None if hidden else spoken, thread.timezone)
            texts += [wrap("time-gap", gap)] if gap else []
            spoken = row if is_spoken(row) else None if hidden else spoken
        if texts:
            markers[seq] = [injected(text) for text in texts]
        previous = row
    return markers


def _left_out(trim: Trim) -> str:
    return wrap(
        "gap",
        "Messages are left out here, because the window is too small for them; they will be in your notes later.",
        from_seq=str(trim.from_seq),
        to_seq=str(trim.to_seq),
    )


def _with_start(found: Normalised, continues: bool) -> Normalised:  # noqa: FBT001 - one of two fixed texts
    """A conversation has to begin with the user: a fixed message of memory's own stands before an assistant's."""
    if not found.pieces or found.pieces[0].message.role is Role.USER:
        return found
    first = Piece(message=injected(_CONTINUES if continues else _BEGINS), seq=None, unit=0, kind="marker")
    return replace(found, pieces=(first, *found.pieces), stable=found.stable + 1)


def system_blocks(given: ContextInput, log: Sequence[Chunk]) -> tuple[SystemBlock, ...]:
    """Preamble, reflection and one block per chunk, so that earlier blocks keep their bytes when the log grows."""
    blocks: list[SystemBlock] = []
    if given.reflection and given.reflection.text.strip():
        blocks.append(SystemBlock(text=wrap("reflection", given.reflection.text), kind="reflection"))
    blocks += [SystemBlock(text=_log_text(chunk, given), kind="log") for chunk in log]
    first = preamble(given.policy) if blocks else recall_preamble(given.policy)
    return (SystemBlock(text=first, kind="preamble"), *blocks) if first else ()


def _visible(given: ContextInput, shown_position: int) -> tuple[list[Chunk], list[Chunk]]:
    """Chunks with notes to show, in the log and as news; the range of a stale one is shown raw instead (DESIGN 3.3)."""
    log: list[Chunk] = []
    news: list[Chunk] = []
    for chunk in given.chunks:
        if chunk.text.strip() and not chunk.stale:
            foreign = chunk.thread_id != given.thread.id
            (news if foreign and (chunk.position or 0) > shown_position else log).append(chunk)
    return log, news


def _log_text(chunk: Chunk, given: ContextInput) -> str:
    extract = "extract" if chunk.kind is ChunkKind.PARKED else None
    if chunk.thread_id == given.thread.id:
        return wrap("log", chunk.text, kind=extract)
    name = conversation_name(chunk.thread, given.policy)
    return wrap("log", chunk.text, kind=extract, source="other conversation", conversation=name)


def _system_tokens(system: tuple[SystemBlock, ...], count: Count) -> int:
    """Tokens of the preamble and of the tags around notes; the notes themselves are stored with a count."""
    if not system:
        return 0
    return count(system[0].text) + (len(system) - 1) * count(_LOG_FRAME)


def _texts(message: Message) -> list[str]:
    return [as_text(part.result) if isinstance(part, ToolResult) else text_of((part,)) for part in message.parts]


def _units(pieces: tuple[Piece, ...]) -> dict[int, int]:
    """The first seq of the unit that each row is part of; of several, the earliest."""
    units: dict[int, int] = {}
    for piece in pieces:
        if piece.seq is not None:
            units[piece.seq] = min(piece.unit, units.get(piece.seq, piece.unit))
    return units


def _new_trim(given: ContextInput, draft: _Draft, cap: int) -> int | None:
    """The higher trim that brings the context under its cap, as far as possible."""
    question = given.thread.question_seq
    tail = [row for row in draft.tail if row.seq >= draft.shown_from]
    cuttable = sum(row.tokens for row in tail if row.seq != question)
    return choose_trim(
        tail,
        draft.units,
        question_seq=question,
        threshold_tokens=given.policy.observation.message_tokens,
        room_tokens=cap - (draft.tokens.total - cuttable) - TRIM_MARKER_TOKENS,
    )
