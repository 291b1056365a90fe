"""Known messages (API 3): which of a request's messages are stored already. A retried turn stores nothing twice."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from om_core.domain.errors import ConflictError
from om_core.domain.tags import is_injected
from om_core.formats.fingerprint import added_parts, fingerprint, same_content

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from om_core.domain.message import Message, Part
    from om_core.ports import KnownMessage, LockedThread
DIVERGENCE_RUN = 2
"""Messages at the start of a request that must equal a stored run for it to be a divergence, not new talk."""


RESENT_RUN = 4
"""Messages in a row that must be stored already for ids nobody knows to be new names of known messages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A sanitised message with what is stored beside it."""

    message: Message
    tokens: int
    fingerprint: bytes
    continues: int | None = None
    fallback_id: str | None = None
    """Its id if it brings none and is new."""

    def named(self, message_id: str | None) -> Prepared:
        """The same under an id."""
        return replace(self, message=replace(self.message, id=message_id))


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRef:
    """One message of a request: its id, its seq, its tokens, and whether this request stored it."""

    id: str
    seq: int
    tokens: int
    created: bool


@dataclass(slots=True)
class Recognised:
    """A request, sorted: what to store, what is known, what was deleted, where it leaves the stored history."""

    new: list[Prepared] = field(default_factory=list)
    known: list[StoredRef] = field(default_factory=list)
    deleted: tuple[str, ...] = ()
    diverged_at_seq: int | None = None


def recognise(
    locked: LockedThread,
    prepared: Sequence[Prepared],
    *,
    find_run: Callable[[Sequence[bytes]], int | None],
    count: Callable[[Message], int],
) -> Recognised:
    """Sort a request's messages against the stored ones.

    Raises:
        ConflictError: a known id comes with other content.
    """
    named = any(item.message.id is not None for item in prepared)
    if locked.known or (named and not _is_resent(locked, prepared)):
        return _by_id(locked, [item.named(item.message.id or item.fallback_id) for item in prepared], count)
    return _by_content(locked, prepared, find_run)


def _by_id(locked: LockedThread, prepared: Sequence[Prepared], count: Callable[[Message], int]) -> Recognised:
    stored: dict[str, list[KnownMessage]] = {}
    for row in locked.known:
        stored.setdefault(row.client_id or "", []).append(row)
    result = Recognised()
    deleted: list[str] = []
    seen: dict[str, Prepared] = {}
    for item in prepared:
        message_id = item.message.id
        if message_id is None or (message_id not in stored and message_id not in seen):
            result.new.append(item)
            if message_id is not None:
                seen[message_id] = item
        elif message_id in seen:
            _same_or_conflict(message_id, seen[message_id].message.parts, item.message.parts)
        elif any(row.message is None for row in stored[message_id]):
            deleted.append(message_id)
        else:
            _known(result, item, stored[message_id], count)
    result.deleted = tuple(deleted)
    return result


def _known(result: Recognised, item: Prepared, rows: list[KnownMessage], count: Callable[[Message], int]) -> None:
    """A known id: a repetition adds nothing, more parts become a continuation row."""
    message_id = item.message.id or ""
    parts: tuple[Part, ...] = tuple(part for row in rows if row.message for part in row.message.parts)
    relation = same_content(parts, item.message.parts)
    if relation == "differs" or (rows[0].message and rows[0].message.role is not item.message.role):
        msg = (
            f"message {message_id!r} is stored (seq {rows[0].seq}) with other content: a stored message never changes;"
            " send the new text under a new id"
        )
        raise ConflictError(msg)
    result.known.append(StoredRef(id=message_id, seq=rows[0].seq, tokens=item.tokens, created=False))
    if relation == "extends":
        rest = replace(item.message, parts=added_parts(parts, item.message.parts))
        if is_injected(rest):
            return  # the client kept what a context put behind the message (DESIGN 6.11)
        result.new.append(
            Prepared(message=rest, tokens=count(rest), fingerprint=fingerprint(rest), continues=rows[0].seq)
        )


def _same_or_conflict(message_id: str, first: tuple[Part, ...], second: tuple[Part, ...]) -> None:
    if same_content(first, second) not in ("equal", "prefix"):
        msg = f"message {message_id!r} stands twice in one request, with different content"
        raise ConflictError(msg)


def _is_resent(locked: LockedThread, prepared: Sequence[Prepared]) -> bool:
    """Whether this is the stored history again under ids made up anew: some clients name messages at each request.

    Ids are believed otherwise. So it takes a run of several messages up to the stored end, most of them different
    (people do say "next" twenty times), and none with a time of its own (an import has these).
    """
    run = _overlap(locked, [item.fingerprint for item in prepared])
    prints = {item.fingerprint for item in prepared[:run]}
    return run >= RESENT_RUN and 2 * len(prints) > run and all(item.message.created_at is None for item in prepared)


def _overlap(locked: LockedThread, prints: Sequence[bytes]) -> int:
    """Length of the longest beginning of a request that equals the end of what is stored."""
    stored = [row.fingerprint for row in locked.tail]
    return next((size for size in range(min(len(prints), len(stored)), 0, -1) if stored[-size:] == prints[:size]), 0)


def _by_content(
    locked: LockedThread, prepared: Sequence[Prepared], find_run: Callable[[Sequence[bytes]], int | None]
) -> Recognised:
    """The longest prefix of the request that equals a suffix of the stored messages is known (API 3)."""
    result = Recognised()
    tail = locked.tail
    if len(prepared) <= 1 or not tail:
        result.new.extend(prepared)
        return result
    prints = [item.fingerprint for item in prepared]
    overlap = _overlap(locked, prints)
    if overlap == 0:
        result.diverged_at_seq = find_run(prints)
        if result.diverged_at_seq is None:
            result.new.extend(prepared)
        return result
    result.known = [
        StoredRef(id=row.client_id or "", seq=row.seq, tokens=item.tokens, created=False)
        for item, row in zip(prepared[:overlap], tail[-overlap:], strict=True)
    ]
    result.new.extend(prepared[overlap:])
    return result
