"""The cap: which messages a context leaves out because the window is too small for them (DESIGN 6.5). Pure.

How the text is read: "that no chunk covers yet" means above `observed_seq`, where messages are raw; what is left out
is the range (observed_seq, shown_from_seq) without question and pins, as `ThreadState.shown_from_seq` says. Buffered
chunks may cover part of it. So that their notes are seen, the caller activates them first (reason `trim`: the prefix
changes anyway) and trims what is then still too much.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from om_core.domain.message import JsonObject, StoredMessage
    from om_core.domain.thread import ThreadState


@dataclass(frozen=True, slots=True)
class Trim:
    """A range left out of a context, both ends included; the question and pins inside it are shown."""

    from_seq: int
    to_seq: int


def trim_of(thread: ThreadState, shown_from_seq: int) -> Trim | None:
    """The range that `shown_from_seq` leaves out, or None when it leaves out nothing."""
    kept = _kept(thread)
    first, last = thread.observed_seq + 1, shown_from_seq - 1
    while first in kept:
        first += 1
    while last in kept:
        last -= 1
    return Trim(first, last) if first <= last else None


def _kept(thread: ThreadState) -> frozenset[int]:
    """What no trim leaves out: the question, and what was the question when the trim was stored."""
    return frozenset({thread.question_seq, *thread.pins})


def is_shown(thread: ThreadState, shown_from_seq: int, seq: int) -> bool:
    """Whether a row that was read stands in the context under this trim."""
    return seq <= thread.observed_seq or seq >= shown_from_seq or seq in _kept(thread)


def pins_after_trim(thread: ThreadState, shown_from_seq: int) -> tuple[int, ...]:
    """The pins to store with a trim: a question below it stays until the next prefix change, whatever is asked next."""
    pins = [seq for seq in thread.pins if seq <= thread.observed_seq]
    if thread.observed_seq < thread.question_seq < shown_from_seq:
        pins.append(thread.question_seq)
    return tuple(pins)


def trim_json(thread: ThreadState, trim: Trim, shown_tokens: int) -> JsonObject:
    """`trimmed` of API 3. `messages` counts seqs; `tokens` is what is pending and not among `shown_tokens`."""
    kept = sum(trim.from_seq <= seq <= trim.to_seq for seq in _kept(thread))
    return {
        "from_seq": trim.from_seq,
        "to_seq": trim.to_seq,
        "messages": trim.to_seq - trim.from_seq + 1 - kept,
        "tokens": max(0, thread.pending_tokens - shown_tokens),
    }


def choose_trim(
    tail: Sequence[StoredMessage],
    units: Mapping[int, int],
    *,
    question_seq: int,
    threshold_tokens: int,
    room_tokens: int,
) -> int | None:
    """The first seq to show, or None when nothing can be left out.

    The oldest whole turns go first, then the oldest units of the current turn, until what is shown is at most the
    threshold and fits. The newest unit stays if it fits at all, even above the threshold.

    Args:
        tail: shown messages above the cursor, by seq.
        units: first seq of the unit (a call with its results) that each visible message belongs to.
        question_seq: this message is never cut.
        threshold_tokens: stop at this size of the tail, the question included.
        room_tokens: what the tail may take without the question, so that the context fits its cap.
    """
    shown = [message for message in tail if message.seq != question_seq]
    if not shown:
        return None
    question_tokens = sum(message.tokens for message in tail if message.seq == question_seq)
    target = min(threshold_tokens - question_tokens, room_tokens)
    left = _tokens_from(shown)
    starts = [seq for seq in _starts(shown, units) if seq > shown[0].seq]
    for seq in starts:
        if left[seq] <= target:
            return _with_question(tail, question_seq, seq)
    if starts and left[starts[-1]] <= room_tokens:
        return _with_question(tail, question_seq, starts[-1])
    if not starts and left[shown[0].seq] <= room_tokens:
        return None
    return shown[-1].seq + 1


def _with_question(tail: Sequence[StoredMessage], question_seq: int, first: int) -> int:
    """The same cut, before the question where it stands right before the first message to show."""
    before = max((message.seq for message in tail if message.seq < first), default=0)
    return question_seq if before == question_seq else first


def _tokens_from(shown: Sequence[StoredMessage]) -> dict[int, int]:
    """For each seq the tokens from there to the end."""
    left: dict[int, int] = {}
    total = 0
    for message in reversed(shown):
        total += message.tokens
        left[message.seq] = total
    return left


def _starts(shown: Sequence[StoredMessage], units: Mapping[int, int]) -> list[int]:
    """Where a cut may fall: at the first message of a turn, and within the newest turn at the first of a unit."""
    newest, turn, starts = shown[-1].turn, None, []
    for message in shown:
        new_turn, turn = message.turn != turn, message.turn
        if units.get(message.seq) == message.seq and (new_turn or message.turn == newest):
            starts.append(message.seq)
    return starts
