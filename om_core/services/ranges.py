"""Which messages one observe job reads (DESIGN 6.1, 6.2): up to a cut, within the window, leaving the floor behind."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from om_core.domain.cuts import Cut, choose_cut, open_calls

if TYPE_CHECKING:
    from datetime import datetime

    from om_core.domain.message import StoredMessage
    from om_core.domain.policy import MemoryPolicy
    from om_core.domain.thread import ThreadState
    from om_core.ports import Transaction

READ_LIMIT = 2_000
"""Messages looked at for one range."""


def kept_range(
    tx: Transaction, thread: ThreadState, to_seq: int, *, room: int
) -> tuple[tuple[StoredMessage, ...], Cut | None]:
    """The range that saved calls already cover, to the message: a call answered since must not move its end."""
    messages = tx.messages.between(thread.id, thread.buffered_seq, to_seq, limit=max(1, to_seq - thread.buffered_seq))
    if not messages:
        return messages, None
    tokens = sum(message.tokens for message in messages)
    return messages, Cut(
        to_seq=to_seq,
        tokens=tokens,
        message_count=len(messages),
        open_calls=tuple(call.call_id for call in open_calls(messages)),
        sliced=tokens > room,
    )


def spare_tokens(thread: ThreadState, policy: MemoryPolicy) -> int | None:
    """From the threshold on: tokens that a chunk may cover so that the retention floor stays behind it.

    A chunk that covers all up to the newest message could not be activated before as much again was said.
    """
    observation = policy.observation
    left = thread.unbuffered_tokens - observation.retention_tokens
    return left if left > 0 and thread.pending_tokens >= observation.message_tokens else None


def cut_range(
    tx: Transaction,
    thread: ThreadState,
    policy: MemoryPolicy,
    *,
    to_seq: int | None,
    room: int,
    spare: int | None,
    now: datetime,
) -> tuple[tuple[StoredMessage, ...], Cut | None]:
    """Messages from `buffered_seq` on, and the cut in them; reads on while an open call holds all that was read."""
    limit = READ_LIMIT
    while True:
        messages = tx.messages.between(thread.id, thread.buffered_seq, to_seq, limit=limit)
        complete = to_seq is not None or len(messages) < limit
        cut = choose_cut(
            messages,
            question_seq=thread.question_seq,
            waiting=thread.open_calls,
            now=now,
            open_call_max_age_s=policy.observation.open_call_max_age_s,
            window_tokens=room if spare is None else min(room, spare),
            head_complete=complete,
        )
        if cut is not None or complete:
            return messages, cut and replace(cut, sliced=cut.tokens > room)
        limit *= 4
