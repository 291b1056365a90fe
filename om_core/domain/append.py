"""What an append does to a thread's state. Pure: seqs, turns and counters follow from state and messages alone."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from om_core.domain.cuts import CutState, advance_cut, buffered_cut
from om_core.domain.message import StoredMessage

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from om_core.domain.message import Message
    from om_core.domain.thread import ThreadState


def advance_thread(
    thread: ThreadState,
    messages: Sequence[tuple[Message, int, int | None]],
    *,
    now: datetime,
    model: str | None,
    end_of_turn: bool,
    open_call_max_age_s: float,
) -> tuple[ThreadState, list[StoredMessage]]:
    """The state after appending, and the rows to insert.

    Args:
        thread: the locked state.
        messages: (message, tokens, seq it continues or None), in order.
        now: the database's clock; the time of messages that bring none.
        model: the actor's model, if the caller says so.
        end_of_turn: whether the turn closes with these messages.
        open_call_max_age_s: see `cuts`.
    """
    rows: list[StoredMessage] = []
    turn, turn_open, question = thread.turn, thread.turn_open, thread.question_seq
    cut = CutState(cut_seq=thread.cut_seq, open_calls=thread.open_calls, held_tokens=thread.held_tokens)
    for seq, (message, tokens, continues) in enumerate(messages, start=thread.head_seq + 1):
        row = StoredMessage(
            seq=seq,
            message=message,
            tokens=tokens,
            created_at=message.created_at or now,
            turn=turn,
            continues=continues,
        )
        if row.is_question:
            # A user message opens a turn when none is open, or after a reply without open calls (DESIGN 1).
            answered = question < seq - 1 and not cut.open_calls
            if not turn_open or answered:
                turn, turn_open = turn + 1, True
            question = seq
        row = replace(row, turn=turn)
        cut = advance_cut(cut, [row], question_seq=question, now=now, max_age_s=open_call_max_age_s)
        rows.append(row)
    added = sum(row.tokens for row in rows)
    unbuffered = thread.unbuffered_tokens + added
    cut = buffered_cut(cut, buffered_seq=thread.buffered_seq, unbuffered_tokens=unbuffered)
    state = replace(
        thread,
        head_seq=thread.head_seq + len(rows),
        cut_seq=cut.cut_seq,
        held_tokens=cut.held_tokens,
        open_calls=cut.open_calls,
        pending_tokens=thread.pending_tokens + added,
        unbuffered_tokens=unbuffered,
        turn=turn,
        turn_open=turn_open and not end_of_turn,
        question_seq=question,
        last_model=model or thread.last_model,
        last_activity_at=now if rows else thread.last_activity_at,
        oldest_pending_at=thread.oldest_pending_at or (now if rows else None),
    )
    return state, rows
