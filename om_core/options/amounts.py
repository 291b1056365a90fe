"""Fractions and absolute numbers become tokens (behaviour 1.5); each function owns the rule of one option."""

from __future__ import annotations

from typing import Final

from om_core.domain.errors import PolicyError
from om_core.options.values import MOST_TOKENS, js_round, number

LEAST_ABSOLUTE_RETENTION: Final = 1_000
"""From here on `observation.buffer_activation` is tokens to keep, not a ratio."""
LEAST_ABSOLUTE_BLOCK: Final = 100
"""From here on `block_after` is tokens, not a factor."""


def buffer_interval(value: object, message_tokens: int) -> int | None:
    """`observation.buffer_tokens`: False is off, below 1 a share of the threshold, else tokens.

    The result lies above 0 and below the threshold.
    """
    if value is False:
        return None
    option = "observation.buffer_tokens"
    allowed = f"False, a fraction between 0 and 1, or tokens from 1 to below message_tokens = {message_tokens}"
    given = number(value, option, allowed)
    if given <= 0:
        raise PolicyError(option, value, allowed)
    interval = js_round(given * message_tokens if given < 1 else given)
    if interval < 1:
        raise PolicyError(option, value, f"it rounds to 0 tokens; {allowed}")
    if interval >= message_tokens:
        raise PolicyError(option, value, f"it resolves to {interval} tokens; {allowed}")
    return interval


def retention_floor(value: object, message_tokens: int) -> int:
    """`observation.buffer_activation`: a ratio to remove, or from 1000 the tokens to keep; below the threshold."""
    option = "observation.buffer_activation"
    allowed = (
        f"a ratio above 0 and up to 1, or tokens to keep from {LEAST_ABSOLUTE_RETENTION} "
        f"to below message_tokens = {message_tokens}"
    )
    given = number(value, option, allowed)
    if 0 < given <= 1:
        return min(js_round(message_tokens * (1 - given)), message_tokens - 1)
    if LEAST_ABSOLUTE_RETENTION <= given < message_tokens:
        return min(js_round(given), message_tokens - 1)
    raise PolicyError(option, value, allowed)


def block_after(value: object, threshold: int, option: str, threshold_name: str) -> int:
    """`block_after` of a phase: from 1 to below 100 a factor of the threshold, from 100 tokens; never below it."""
    allowed = (
        f"a factor from 1 to below {LEAST_ABSOLUTE_BLOCK}, or tokens from {LEAST_ABSOLUTE_BLOCK}, "
        f"at least {threshold_name} = {threshold}"
    )
    given = number(value, option, allowed)
    if given < 1 or given > MOST_TOKENS:
        raise PolicyError(option, value, allowed)
    resolved = js_round(given * threshold if given < LEAST_ABSOLUTE_BLOCK else given)
    if resolved < threshold:
        raise PolicyError(option, value, f"it resolves to {resolved} tokens; {allowed}")
    return resolved


def reflection_start(value: object, observation_tokens: int) -> int | None:
    """`reflection.buffer_activation`: False is off, else the share of the threshold at which reflecting starts."""
    if value is False:
        return None
    option = "reflection.buffer_activation"
    allowed = "False, or a ratio above 0 and up to 1"
    given = number(value, option, allowed)
    if not 0 < given <= 1:
        raise PolicyError(option, value, allowed)
    return max(1, js_round(given * observation_tokens))
