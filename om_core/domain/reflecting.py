"""Reflecting: what of the log is condensed, how strongly, and which candidate is taken (DESIGN 6.8). Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from om_core.domain.thresholds import REFLECT_GROWTH

if TYPE_CHECKING:
    from collections.abc import Sequence

    from om_core.domain.message import JsonObject
    from om_core.domain.policy import ReflectionPolicy

LAST_LEVEL: Final = 4
MOST_LEVELS: Final = 4
"""Levels that one job climbs."""
TARGET_SHARE: Final = 0.5
"""A candidate should be at most this share of what it condenses."""
NO_PROGRESS_SHARE: Final = 0.95
"""A smallest candidate above this share is no progress: remember the size and wait for growth."""
TALKATIVE: Final = ("gemini-2.5-flash",)
"""Parts of the names of models that answer at length: they start one level higher."""


def slice_length(
    chunk_tokens: Sequence[int], base_tokens: int, reflection: ReflectionPolicy, *, whole: bool = False
) -> int:
    """How many chunks, from the front, a reflection condenses together with the base: whole ones, the oldest.

    The newest notes stay as they are: in the background just so much is taken that the slice reaches the size at which
    reflecting starts, and holds enough new notes to be worth it. From `block_after` on, and on request, all is taken.

    Args:
        chunk_tokens: of the chunks after the base, by position.
        base_tokens: of the active generation.
        reflection: absolute numbers.
        whole: take everything.
    """
    log_tokens = base_tokens + sum(chunk_tokens)
    start = reflection.buffer_at_tokens
    if whole or start is None or log_tokens >= reflection.block_after_tokens:
        return len(chunk_tokens)
    least = max(start - base_tokens, REFLECT_GROWTH * reflection.observation_tokens)
    total = 0
    for index, tokens in enumerate(chunk_tokens, start=1):
        total += tokens
        if total >= least:
            return index
    return len(chunk_tokens)


def ladder(model: str, *, manual: bool) -> range:
    """The levels to try, in order: from 0 (no guidance) on request, else from 1, or 2 for a model that answers at
    length.
    """
    first = 0 if manual else 2 if any(name in model for name in TALKATIVE) else 1
    return range(first, min(LAST_LEVEL, first + MOST_LEVELS - 1) + 1)


def target_tokens(input_tokens: int) -> int:
    """What a candidate should stay below."""
    return max(1, int(input_tokens * TARGET_SHARE))


def is_enough(candidate: JsonObject, target: int) -> bool:
    """Whether a candidate ends the climb: usable, and under the target."""
    return bool(candidate["notes"]) and candidate["tokens"] < target


def choose_candidate(candidates: Sequence[JsonObject], target: int) -> JsonObject | None:
    """The first usable candidate under the target, else the smallest usable; None when none is usable.

    Args:
        candidates: with `notes` (empty: not usable) and their `tokens`, in the order in which they were made.
        target: as `target_tokens` gives it.
    """
    usable = [candidate for candidate in candidates if candidate["notes"]]
    enough = (candidate for candidate in usable if is_enough(candidate, target))
    return next(enough, None) or min(usable, key=lambda candidate: int(candidate["tokens"]), default=None)


def is_progress(tokens: int, input_tokens: int) -> bool:
    """Whether a candidate of this size is shorter enough than its input to be stored."""
    return tokens <= input_tokens * NO_PROGRESS_SHARE
