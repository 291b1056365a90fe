"""The row of a thread after a removal: counters, cut, open calls, question, pins, hints and title (DESIGN 3.3)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from om_core.domain.cuts import MOST_OPEN_CALLS, choose_cut, open_calls

if TYPE_CHECKING:
    from collections.abc import Sequence

    from om_core.domain.message import OpenCall, StoredMessage
    from om_core.domain.policy import MemoryPolicy
    from om_core.domain.thread import ThreadState
    from om_core.ports import Transaction
    from om_core.ports.removal import Counted

ALL: Final = 2**31


def restate(
    tx: Transaction,
    policy: MemoryPolicy,
    thread: ThreadState,
    *,
    lost_rows: bool,
    lost_notes: bool,
    lost_title: bool,
) -> None:
    """Write what follows from the rows and chunks that are left of a locked thread, if it lost any."""
    changes: dict[str, Any] = {}
    if lost_rows or lost_notes:
        counted = tx.removal.recount(thread, {*thread.pins, *(call.seq for call in thread.open_calls)})
        changes = {
            "stale_tokens": counted.stale_tokens,
            "prefix_version": thread.prefix_version + 1,
            "prefix_reason": "removal",
        }
        if lost_rows:
            changes |= _rows_changed(tx, policy, thread, counted)
    if lost_notes:
        changes["hints"] = tx.removal.hints(thread.id)
    if lost_title:
        changes |= {"title": None, "title_seq": None}
    if changes:
        tx.threads.update(thread.id, **changes)


def _rows_changed(tx: Transaction, policy: MemoryPolicy, thread: ThreadState, counted: Counted) -> dict[str, Any]:
    rows = tx.messages.between(thread.id, thread.buffered_seq, None, limit=ALL)
    left = [row for row in rows if not row.removed]
    calls = _calls(tx, thread, left, counted)
    cut = choose_cut(
        left,
        question_seq=counted.question_seq,
        waiting=calls,
        now=tx.now(),
        open_call_max_age_s=policy.observation.open_call_max_age_s,
        window_tokens=float("inf"),
        head_complete=True,
    )
    cut_seq = thread.buffered_seq if cut is None else cut.to_seq
    if not left or cut_seq == left[-1].seq:
        cut_seq = thread.head_seq  # tombstones at the end hold nothing
    return {
        "pending_tokens": counted.pending_tokens,
        "unbuffered_tokens": counted.unbuffered_tokens,
        "held_tokens": sum(row.tokens for row in left if row.seq > cut_seq),
        "cut_seq": cut_seq,
        "open_calls": calls,
        "question_seq": counted.question_seq,
        "oldest_pending_at": counted.oldest_pending_at,
        "pins": tuple(pin for pin in thread.pins if pin in counted.live),
        "shown_from_seq": 0,
        "turn_open": thread.turn_open and counted.last_live_turn == thread.turn,
        "early_activation": None,
        "wait_latch_seq": None,
    }


def _calls(
    tx: Transaction, thread: ThreadState, left: Sequence[StoredMessage], counted: Counted
) -> tuple[OpenCall, ...]:
    """Calls that wait for results now; one whose result was removed waits from now on."""
    since = {(call.call_id, call.seq): call.at for call in thread.open_calls}
    covered = [call for call in thread.open_calls if call.seq <= thread.buffered_seq and call.seq in counted.live]
    found = open_calls(left, before=covered)[-MOST_OPEN_CALLS:]
    now = tx.now()
    return tuple(replace(call, at=since.get((call.call_id, call.seq), now)) for call in found)
