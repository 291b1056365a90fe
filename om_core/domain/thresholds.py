"""Deciding: which background work a thread and its memory need now. Pure; the only implementation of each trigger."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from om_core.domain.job import JobKind

if TYPE_CHECKING:
    from datetime import datetime

    from om_core.domain.policy import MemoryPolicy
    from om_core.domain.thread import Snapshot, ThreadState

REPAIR: Final = "repair"
"""Reason of jobs that make again what a removal took away; they are due at once (DESIGN 3.3)."""
RAMP: Final = 1.1
"""Within this many buffer intervals of the threshold, chunks are made at half the interval (DESIGN 6.1)."""
REFLECT_GROWTH: Final = 0.1
"""New notes, as a share of the reflection threshold, that make another attempt worthwhile (DESIGN 6.8)."""


@dataclass(frozen=True, slots=True)
class Action:
    """Insert a job of this kind; `reason` is stored with it and shown by `status`."""

    kind: JobKind
    reason: str


@dataclass(frozen=True, slots=True)
class Decision:
    """What to do, or why nothing: `idle[kind]` is a code that `status` turns into a sentence."""

    actions: tuple[Action, ...]
    idle: tuple[tuple[JobKind, str], ...]


def decide(snapshot: Snapshot, policy: MemoryPolicy, now: datetime) -> Decision:
    """Decide on observe and reflect work.

    Args:
        snapshot: thread and memory as one transaction saw them.
        policy: absolute numbers.
        now: the database's clock, aware.
    """
    if not policy.enabled:
        return Decision(actions=(), idle=tuple((kind, "disabled") for kind in (JobKind.OBSERVE, JobKind.REFLECT)))
    verdicts = {
        JobKind.OBSERVE: _observe(snapshot, policy, now),
        JobKind.REFLECT: _reflect(snapshot, policy),
    }
    return Decision(
        actions=tuple(Action(kind, reason) for kind, (due, reason) in verdicts.items() if due),
        idle=tuple((kind, reason) for kind, (due, reason) in verdicts.items() if not due),
    )


def buffer_interval(pending_tokens: int, policy: MemoryPolicy) -> int:
    """Unbuffered tokens that make the next chunk due, at this distance from the threshold."""
    observation = policy.observation
    if observation.buffer_tokens is None:
        return observation.message_tokens
    if pending_tokens >= observation.message_tokens - RAMP * observation.buffer_tokens:
        return max(1, observation.buffer_tokens // 2)
    return observation.buffer_tokens


def _observe(snapshot: Snapshot, policy: MemoryPolicy, now: datetime) -> tuple[bool, str]:
    thread, observation = snapshot.thread, policy.observation
    if JobKind.OBSERVE in snapshot.live_jobs:
        return False, "running"
    if thread.unbuffered_tokens <= 0 and thread.head_seq <= thread.buffered_seq:
        return False, "nothing_pending"
    if thread.cut_seq <= thread.buffered_seq:
        return False, "open_call"
    cuttable = thread.cuttable_tokens
    if thread.pending_tokens >= observation.message_tokens and (
        not policy.buffering or cuttable >= buffer_interval(thread.pending_tokens, policy)
    ):
        return True, "threshold"
    if policy.buffering and cuttable >= buffer_interval(thread.pending_tokens, policy):
        return True, "buffer"
    if policy.buffering and observation.buffer_on_idle and not thread.turn_open:
        return True, "idle"
    if _aged(thread, observation.buffer_max_age_s, now):
        return True, "age"
    return False, "below_threshold"


def _aged(thread: ThreadState, max_age_s: float, now: datetime) -> bool:
    oldest = thread.oldest_pending_at
    return oldest is not None and now - oldest >= timedelta(seconds=max_age_s)


def _reflect(snapshot: Snapshot, policy: MemoryPolicy) -> tuple[bool, str]:
    memory, reflection = snapshot.memory, policy.reflection
    if JobKind.REFLECT in snapshot.live_jobs:
        return False, "running"
    if JobKind.REFLECT in snapshot.discarded_jobs:
        return False, "discarded"
    if memory.buffered_generation is not None:
        return False, "buffered"
    start = reflection.buffer_at_tokens if reflection.buffer_at_tokens is not None else reflection.observation_tokens
    if memory.log_tokens < start:
        return False, "below_threshold"
    growth = REFLECT_GROWTH * reflection.observation_tokens
    if memory.log_tokens - memory.base_tokens < growth:
        return False, "nothing_new"
    if memory.stuck_log_tokens is not None and memory.log_tokens - memory.stuck_log_tokens < growth:
        return False, "no_progress"
    return True, "threshold" if memory.log_tokens >= reflection.observation_tokens else "buffer"


def next_wake(
    thread: ThreadState, policy: MemoryPolicy, ttl_s: float | None, *, after: datetime | None = None
) -> datetime | None:
    """When the idle sweep should look at this thread again, or None when nothing is pending.

    The least of the activation time, the age at which a small tail is observed, and, with `buffer_on_idle`, the close
    of the turn (DESIGN 5). `ttl_s` is the idle time resolved for the thread's last model. With `after`, times up to
    then are over, and the age at which an open call no longer holds the cut counts as well.
    """
    if thread.last_activity_at is None:
        return None
    times: list[datetime] = []
    if ttl_s is not None and thread.head_seq > thread.observed_seq:
        times.append(thread.last_activity_at + timedelta(seconds=ttl_s))
    if thread.oldest_pending_at is not None:
        times.append(thread.oldest_pending_at + timedelta(seconds=policy.observation.buffer_max_age_s))
        if policy.observation.buffer_on_idle and not thread.turn_open:
            times.append(thread.last_activity_at)
    if after is None:
        return min(times, default=None)
    times += [call.at + timedelta(seconds=policy.observation.open_call_max_age_s) for call in thread.open_calls]
    return min((time for time in times if time > after), default=None)
