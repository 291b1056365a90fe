"""Calling a phase's model: which name, its window, fallbacks, one deadline (DESIGN 5, 7)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from om_core.domain.errors import GiveUpError, RetryLaterError, SetupError
from om_core.services.measure import ask

if TYPE_CHECKING:
    from collections.abc import Callable
    from threading import Event

    from om_core.domain.policy import PhaseModel
    from om_core.ports import LanguageModel, ModelReply, ModelRequest

UNKNOWN_WINDOW = 128_000
"""Input window assumed for a model that nobody knows, in tokens."""
WINDOW_SHARE = 0.8
"""Of the window, what instructions, prior notes and input may fill; the rest is for the answer and for miscounting."""
MOST_INPUT = 200_000
"""A range is cut here even where the window is larger: recall inside very long prompts is poor."""


def model_name(phase: PhaseModel, input_tokens: int) -> str:
    """The model for an input of this size.

    Raises:
        SetupError: `ModelByInputTokens` has no model for so much; the text names both numbers.
    """
    try:
        return phase.model_for(input_tokens)
    except GiveUpError as error:
        # The input is not at fault: the installation lacks a model that is large enough.
        raise SetupError(f"{error}; add a larger one to model.up_to") from error


def input_room(model: LanguageModel, phase: PhaseModel, *, overhead_tokens: int) -> int:
    """Tokens of messages that one call may take."""
    window = phase.window_tokens or model.window_tokens(phase.name) or UNKNOWN_WINDOW
    return max(1_000, min(MOST_INPUT, int(window * WINDOW_SHARE) - overhead_tokens))


def call(
    model: LanguageModel,
    phase: PhaseModel,
    build: Callable[[str], ModelRequest],
    name: str,
    *,
    cancelled: Event,
    failures: int,
) -> ModelReply:
    """Ask the model, then each fallback in turn where the one before is out of order.

    Args:
        model: answers the calls.
        phase: says which fallbacks there are, and how long each may take.
        build: makes the request for a model's name.
        name: the model to ask first.
        cancelled: gives the call up early once it is set.
        failures: of the job before this attempt; what was unusable is asked for differently.

    Raises:
        RetryLaterError, GiveUpError, SetupError: of the last model asked.
    """
    names = [name, *phase.fallbacks]
    for index, candidate in enumerate(names):
        try:
            request = replace(build(candidate), failures=failures)
            return ask(model, request, timeout_s=phase.max_attempt_s, cancelled=cancelled)
        except (RetryLaterError, SetupError):
            if cancelled.is_set() or index == len(names) - 1:
                raise
    msg = "no model is configured"
    raise SetupError(msg)
