"""Where the Observer may cut: between whole messages, where no call waits for its result (DESIGN 6.2). Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from om_core.domain.message import OpenCall, ToolCall, ToolResult
from om_core.domain.slices import slice_messages as slice_messages  # noqa: PLC0414 - part of this module's interface

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from datetime import datetime

    from om_core.domain.message import StoredMessage

MOST_OPEN_CALLS: Final = 64
"""Open calls a thread remembers (its row stays narrow). The oldest beyond that count as never answered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """A range for one observe job: everything given up to `to_seq`.

    `sliced` means that even this smallest range is larger than the window and has to be observed in slices.
    """

    to_seq: int
    tokens: int
    message_count: int
    open_calls: tuple[str, ...] = ()
    """Ids of calls in the range that have no result in it."""
    sliced: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CutState:
    """The same, kept up to date at ingest: `cut_seq`, `open_calls` and `held_tokens` of a `ThreadState`."""

    cut_seq: int = 0
    open_calls: tuple[OpenCall, ...] = ()
    held_tokens: int = 0
    """Tokens of the messages after `cut_seq`."""


def choose_cut(
    messages: Sequence[StoredMessage],
    *,
    question_seq: int,
    now: datetime,
    open_call_max_age_s: float,
    window_tokens: float,
    head_complete: bool,
    waiting: Iterable[OpenCall] | None = None,
) -> Cut | None:
    """The largest range from the front that ends where a cut may fall and fits the window.

    Args:
        messages: from `buffered_seq + 1` on, by seq.
        question_seq: seq of the newest question of the thread.
        now: the database's clock, aware.
        open_call_max_age_s: a call open for longer does not hold a cut.
        window_tokens: room for input in the Observer's window; one larger unit comes back with `sliced`.
        head_complete: whether `messages` reach the end of the thread. If not, a call without a result among them may
            have one further on, so it holds the cut unless these messages themselves show that it was passed over.
        waiting: the thread's open calls. They know when a call was stored, by the clock of `now`; without them, its
            message's own time counts, which may be long past (an import) or wrong.

    Returns:
        None when every end is held by an open call (with `head_complete=False`: give more messages).
    """
    if not messages:
        return None
    if not head_complete:
        question_seq = max((message.seq for message in messages if message.is_question), default=0)
        now = messages[-1].created_at
    since = {(call.call_id, call.seq): call.at for call in waiting or ()} if head_complete else {}
    held = _held_ends(messages, question_seq, now, timedelta(seconds=open_call_max_age_s), since)
    best: tuple[int, int, bool] | None = None
    tokens = 0
    for index, message in enumerate(messages):
        tokens += message.tokens
        if tokens > window_tokens and best and best[1]:  # a range without tokens is no job of its own
            break
        if index not in held:
            best = (index, tokens, tokens > window_tokens)
    if best is None:
        return None
    end, tokens, sliced = best
    inside = messages[: end + 1]
    return Cut(
        to_seq=messages[end].seq,
        tokens=tokens,
        message_count=len(inside),
        open_calls=tuple(call.call_id for call in open_calls(inside)),
        sliced=sliced,
    )


def _held_ends(
    messages: Sequence[StoredMessage],
    question_seq: int,
    now: datetime,
    max_age: timedelta,
    since: Mapping[tuple[str, int], datetime],
) -> frozenset[int]:
    """Indexes after which no cut may fall, because a call at or before them waits for a result after them."""
    held: set[int] = set()
    for start, end, call in _open_spans(messages):
        answered = end < len(messages)
        until = messages[end].created_at if answered else now
        question = _question_within(messages[start + 1 : end]) if answered else question_seq
        at = call.at if answered else since.get((call.call_id, call.seq), call.at)
        if question <= call.seq and until - at < max_age:
            held.update(range(start, end))
    return frozenset(held)


def _question_within(messages: Iterable[StoredMessage]) -> int:
    return max((message.seq for message in messages if message.is_question), default=0)


def _open_spans(messages: Sequence[StoredMessage]) -> Iterator[tuple[int, int, OpenCall]]:
    """Every call with the index of its message and that of its result (the number of messages, if there is none)."""
    waiting: dict[str, tuple[int, OpenCall]] = {}
    for index, message in enumerate(messages):
        before = {call_id: call for call_id, (_, call) in waiting.items()}
        after = _stepped(before, message)
        for call_id, (start, call) in list(waiting.items()):
            if after.get(call_id) is not call:
                yield start, index, call
                del waiting[call_id]
        waiting.update({call_id: (index, call) for call_id, call in after.items() if call_id not in waiting})
    yield from ((start, len(messages), call) for start, call in waiting.values())


def _stepped(
    waiting: Mapping[str, OpenCall], message: StoredMessage, stored_at: datetime | None = None
) -> dict[str, OpenCall]:
    """The open calls after one more message: results close, calls open, in the order of its parts.

    A reused call id is a new call, and the earlier one is never answered.
    """
    after = dict(waiting)
    for part in message.parts:
        if isinstance(part, ToolResult | ToolCall):
            after.pop(part.call_id, None)
        if isinstance(part, ToolCall):
            at = stored_at or part.created_at or message.created_at
            after[part.call_id] = OpenCall(call_id=part.call_id, seq=message.seq, name=part.name, at=at)
    return after


def open_calls(
    messages: Iterable[StoredMessage], before: Iterable[OpenCall] = (), *, stored_at: datetime | None = None
) -> tuple[OpenCall, ...]:
    """Calls without a result after these messages, oldest first; `before` are those open at their start.

    They are open since `stored_at`, or else since their messages' own times.
    """
    waiting = {call.call_id: call for call in before}
    for message in messages:
        waiting = _stepped(waiting, message, stored_at)
    return tuple(waiting.values())


def advance_cut(
    state: CutState, messages: Iterable[StoredMessage], *, question_seq: int, now: datetime, max_age_s: float
) -> CutState:
    """The state after these messages were appended.

    Never beyond what `choose_cut` finds over all messages, and equal to it as long as no call outlives `max_age_s`.

    Args:
        state: before; `CutState()` for an empty thread.
        messages: new ones, by seq.
        question_seq: seq of the newest question, with or without those among `messages`.
        now: the database's clock, aware; calls among `messages` are open from then on, whatever their own times say.
        max_age_s: as `open_call_max_age_s` of `choose_cut`.
    """
    for message in messages:
        state = release_cut(state, head_seq=message.seq - 1, question_seq=question_seq, now=now, max_age_s=max_age_s)
        if message.is_question:
            question_seq = max(question_seq, message.seq)
        state = replace(
            state,
            open_calls=open_calls((message,), before=state.open_calls, stored_at=now)[-MOST_OPEN_CALLS:],
            held_tokens=state.held_tokens + message.tokens,
        )
        state = release_cut(state, head_seq=message.seq, question_seq=question_seq, now=now, max_age_s=max_age_s)
    return state


def release_cut(state: CutState, *, head_seq: int, question_seq: int, now: datetime, max_age_s: float) -> CutState:
    """The state at a later time without new messages: the cut moves to the head once no open call holds it.

    The idle sweep needs this: a call grows old without anything being appended.
    """
    if any(holds_cut(call, question_seq=question_seq, now=now, max_age_s=max_age_s) for call in state.open_calls):
        return state
    return replace(state, cut_seq=max(state.cut_seq, head_seq), held_tokens=0)


def holds_cut(call: OpenCall, *, question_seq: int, now: datetime, max_age_s: float) -> bool:
    """Whether an open call is recent enough to be waited for: not before the newest question, and not too old."""
    return call.seq >= question_seq and now - call.at < timedelta(seconds=max_age_s)


def buffered_cut(state: CutState, *, buffered_seq: int, unbuffered_tokens: int) -> CutState:
    """The state after a chunk was stored: a chunk may end beyond the kept cut, because calls have aged meanwhile."""
    if buffered_seq <= state.cut_seq:
        return state
    return replace(state, cut_seq=buffered_seq, held_tokens=unbuffered_tokens)
