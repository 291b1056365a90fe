"""Activation: whether ready chunks move into the log now, and how many of them (DESIGN 6.3). Pure."""

from __future__ import annotations

from datetime import timedelta
from itertools import accumulate
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime

    from om_core.domain.message import OpenCall
    from om_core.domain.policy import MemoryPolicy, ReflectionPolicy
    from om_core.domain.thread import ThreadState

EarlyReason: TypeAlias = Literal["provider_change", "ttl"]
ActivationReason: TypeAlias = Literal["provider_change", "ttl", "threshold", "trim", "manual"]

LEAST_LEFT: Final = 1_000
"""Tokens of raw tail that no activation goes below, unless the floor itself is smaller."""
LEAST_EARLY: Final = 0.75
"""Of the notes that a reflection at the threshold leaves untouched: what one before it has to leave at least."""
MOST_OVERSHOOT: Final = 0.95
"""How far an activation may cut into the retention floor, as a share of it."""
FLUSHING: Final = frozenset({"provider_change", "ttl", "trim"})
"""Reasons for which the prompt cache is lost anyway: every ready chunk goes, down to the least tail."""


def decide_activation(
    thread: ThreadState,
    policy: MemoryPolicy,
    now: datetime,
    *,
    model: str | None,
    ttl_s: float | None,
    ready: bool,
) -> ActivationReason | None:
    """Why chunks should move into the log now, or None.

    Args:
        thread: as it was before this call touched `last_activity_at` and `last_model`.
        policy: absolute numbers.
        now: the database's clock, aware.
        model: the actor's model, if the caller named one.
        ttl_s: the idle time resolved for that model in seconds; None: never.
        ready: whether a buffered chunk that is not stale is next in line.
    """
    if not ready or not policy.enabled:
        return None
    observation = policy.observation
    early = early_reason(
        thread, now, model=model, ttl_s=ttl_s, on_provider_change=observation.activate_on_provider_change
    )
    if early is not None:
        return early
    return "threshold" if thread.pending_tokens >= observation.message_tokens else None


def early_reason(
    thread: ThreadState, now: datetime, *, model: str | None, ttl_s: float | None, on_provider_change: bool
) -> EarlyReason | None:
    """Why the prompt cache is lost, by the settings of one phase; None: it is not. Arguments as `decide_activation`."""
    if on_provider_change and model_changed(thread.last_model, model):
        return "provider_change"
    last = thread.last_activity_at
    return "ttl" if ttl_s is not None and last is not None and now - last >= timedelta(seconds=ttl_s) else None


def reflection_fits(reflection_tokens: int, later_tokens: int, reflection: ReflectionPolicy) -> bool:
    """Whether a finished reflection may take effect before the log has reached its threshold (behaviour 5.4): the notes
    after it are no fewer than its own, and the log does not shrink far below what a usual one leaves.

    Args:
        reflection_tokens: of the generation's text.
        later_tokens: of the chunks after those it condenses.
        reflection: absolute numbers.
    """
    start = reflection.buffer_at_tokens or 0
    least = LEAST_EARLY * (reflection.observation_tokens - start)
    return later_tokens >= reflection_tokens and later_tokens + reflection_tokens >= least


def model_changed(last: str | None, current: str | None) -> bool:
    """Whether two model names mean different models: an unknown model or provider is no change.

    `openai.responses/gpt-5` and `openai/gpt-5` are the same model; so are `openai/gpt-5` and `gpt-5`.
    """
    if not last or not current:
        return False
    last_provider, last_name = _split(last)
    provider, name = _split(current)
    return name != last_name or bool(provider and last_provider and provider != last_provider)


def _split(model: str) -> tuple[str, str]:
    provider, slash, name = model.strip().partition("/")
    return (provider.partition(".")[0].lower(), name) if slash else ("", provider)


def choose_prefix(
    chunk_message_tokens: Sequence[int], pending_tokens: int, policy: MemoryPolicy, reason: ActivationReason
) -> int:
    """How many chunks, from the front, to activate; 0 when every choice would leave too little.

    Args:
        chunk_message_tokens: tokens of the messages each ready chunk covers, oldest first.
        pending_tokens: tokens of all raw messages above the cursor.
        policy: absolute numbers.
        reason: `threshold` keeps the retention floor; `manual` takes all; the others take all down to the least tail.
    """
    if reason == "manual":
        return len(chunk_message_tokens)
    if reason in FLUSHING:
        least = min(LEAST_LEFT, policy.observation.retention_tokens)
        return _longest(chunk_message_tokens, pending_tokens - least)
    chosen, left = 0, pending_tokens
    while more := _one_choice(chunk_message_tokens[chosen:], left, policy):
        left -= sum(chunk_message_tokens[chosen : chosen + more])
        chosen += more
        if left < policy.observation.message_tokens:
            break
    return chosen


def _longest(sizes: Iterable[int], limit: int) -> int:
    """Length of the longest prefix whose sum is at most `limit`."""
    return sum(1 for total in accumulate(sizes) if total <= limit)


def _one_choice(sizes: Sequence[int], pending: int, policy: MemoryPolicy) -> int:
    """The prefix nearest to what has to go: just over it if that is allowed, else just under it (behaviour 2.5)."""
    floor = policy.observation.retention_tokens
    target, least = pending - floor, min(LEAST_LEFT, floor)
    if target <= 0:
        return 0
    sums = list(accumulate(sizes))
    under = sum(1 for total in sums if total < target)
    if under < len(sums):
        over = sums[under]
        forced = pending >= policy.observation.block_after_tokens
        if (forced or over - target <= MOST_OVERSHOOT * floor) and pending - over >= least:
            return under + 1
    return under if under and pending - sums[under - 1] >= least else 0


def pins_after_activation(*, question_seq: int, open_calls: Iterable[OpenCall], observed_seq: int) -> tuple[int, ...]:
    """Which seqs at or below the new cursor stay raw: the newest question, and messages whose calls are open.

    Args:
        question_seq: seq of the newest user message, 0 if there is none.
        open_calls: calls without a stored result.
        observed_seq: the cursor after the activation.
    """
    wanted = {question_seq, *(call.seq for call in open_calls)}
    return tuple(sorted(seq for seq in wanted if 0 < seq <= observed_seq))
