"""The two phases of the option tree: observation and reflection, with their amounts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal

from om_core.domain.errors import PolicyError
from om_core.domain.policy import ObservationPolicy, ReflectionPolicy, Ttl
from om_core.domain.ttl import parse_ttl
from om_core.options import amounts, values
from om_core.options.extractors import resolve_extractors
from om_core.options.models import PhaseDefaults, choose_by_precedence, resolve_phase_model
from om_core.options.schema import Options, option_value

_OBSERVER: Final = PhaseDefaults(
    path="observation",
    provider_options={"google": {"thinkingConfig": {"thinkingBudget": 215}}},
)
_REFLECTOR: Final = PhaseDefaults(
    path="reflection",
    provider_options={"google": {"thinkingConfig": {"thinkingBudget": 1024}}},
)


def resolve_observation(tree: Options, own: Options, default_model: str) -> ObservationPolicy:
    """The observation branch of a normalised tree; `own` are the overrides."""

    def get(name: str) -> Any:
        return option_value(tree, f"observation.{name}")

    def flag(name: str) -> bool:
        return values.flag(get(name), f"observation.{name}")

    chosen = choose_by_precedence(tree, "observation", "reflection")
    current_task, suggested_response = _hints(get("continuation_hints"), "observation.continuation_hints")
    message_tokens, interval, floor, block = _observation_amounts(tree.get("observation", {}), own)
    inherited = option_value(tree, "activate_on_provider_change")
    return ObservationPolicy(
        model=resolve_phase_model(tree.get("observation", {}), chosen, _OBSERVER, default_model),
        message_tokens=message_tokens,
        buffer_tokens=interval,
        retention_tokens=floor,
        block_after_tokens=block,
        block_timeout_s=_block_timeout(get("block_timeout")),
        previous_observer_tokens=_previous_tokens(get("previous_observer_tokens")),
        buffer_on_idle=flag("buffer_on_idle"),
        buffer_max_age_s=values.duration(get("buffer_max_age"), "observation.buffer_max_age"),
        open_call_max_age_s=values.duration(get("open_call_max_age"), "observation.open_call_max_age"),
        activate_after_idle_s=_observation_ttl(tree),
        activate_on_provider_change=flag("activate_on_provider_change")
        if "activate_on_provider_change" in tree.get("observation", {})
        else values.flag(inherited, "activate_on_provider_change"),
        instruction=values.optional_text(get("instruction"), "observation.instruction"),
        thread_title=flag("thread_title"),
        current_task=current_task,
        suggested_response=suggested_response,
        observe_attachments=_attachments(get("observe_attachments")),
        max_tokens_per_batch=values.tokens(get("max_tokens_per_batch"), "observation.max_tokens_per_batch"),
        extract=resolve_extractors(get("extract"), "observation.extract"),
        manage_working_memory=flag("manage_working_memory"),
    )


def _observation_amounts(phase: Options, own: Options) -> tuple[int, int | None, int, int]:
    """Threshold, buffer interval, retention floor and blocking point.

    The interval is that of the options, whatever the override; a ratio and a factor follow the override, and an
    absolute blocking point is raised to it.
    """
    tree = {"observation": phase}
    base = values.tokens(option_value(tree, "observation.message_tokens"), "observation.message_tokens")
    interval = amounts.buffer_interval(option_value(tree, "observation.buffer_tokens"), base)
    activation = option_value(tree, "observation.buffer_activation")
    if interval is None:
        if "buffer_activation" in phase:
            amounts.retention_floor(activation, base)
        _refuse_block_after(phase, "observation", "buffering is on (observation.buffer_tokens is not False)")
        threshold = _overridden(base, own, "observation", "message_tokens")
        return threshold, None, 0, threshold
    floor = amounts.retention_floor(activation, base)
    block = option_value(tree, "observation.block_after")
    amounts.block_after(block, base, "observation.block_after", "message_tokens")
    threshold = _overridden(base, own, "observation", "message_tokens")
    if threshold <= interval or (activation > 1 and threshold <= activation):
        threshold = base
    if threshold != base:
        floor = amounts.retention_floor(activation, threshold)
    return threshold, interval, floor, _block_for(block, threshold, "observation", "message_tokens")


def _block_for(value: float, threshold: int, phase: str, name: str) -> int:
    """The blocking point of a threshold that may be overridden: an absolute one is raised to it."""
    if value >= amounts.LEAST_ABSOLUTE_BLOCK:
        value = max(value, threshold)
    return amounts.block_after(value, threshold, f"{phase}.block_after", name)


def _overridden(value: int, own: Options, phase: str, name: str) -> int:
    override = own.get(phase, {}).get(name)
    return value if override is None else values.tokens(override, f"config.{phase}.{name}")


def _refuse_block_after(phase: Options, name: str, condition: str) -> None:
    if "block_after" in phase:
        raise PolicyError(f"{name}.block_after", phase["block_after"], f"allowed only while {condition}")


def resolve_reflection(tree: Options, own: Options, default_model: str, *, buffering: bool) -> ReflectionPolicy:
    """The reflection branch of a normalised tree; without `buffering` nothing reflects in the background."""
    phase = tree.get("reflection", {})

    def get(name: str) -> Any:
        return option_value(tree, f"reflection.{name}")

    chosen = choose_by_precedence(tree, "reflection", "observation")
    current_task, suggested_response = _hints(get("continuation_hints"), "reflection.continuation_hints")
    observation_tokens, start, block = _reflection_amounts(phase, own, buffering=buffering)
    return ReflectionPolicy(
        model=resolve_phase_model(phase, chosen, _REFLECTOR, default_model),
        observation_tokens=observation_tokens,
        buffer_at_tokens=start,
        block_after_tokens=block,
        activate_after_idle_s=parse_ttl(get("activate_after_idle"), "reflection.activate_after_idle"),
        activate_on_provider_change=values.flag(
            get("activate_on_provider_change"), "reflection.activate_on_provider_change"
        ),
        instruction=values.optional_text(get("instruction"), "reflection.instruction"),
        current_task=current_task,
        suggested_response=suggested_response,
        extract=resolve_extractors(get("extract"), "reflection.extract"),
    )


def _reflection_amounts(phase: Options, own: Options, *, buffering: bool) -> tuple[int, int | None, int]:
    """Threshold, size at which a background reflection starts, and blocking point."""
    tree = {"reflection": phase}
    base = values.tokens(option_value(tree, "reflection.observation_tokens"), "reflection.observation_tokens")
    threshold = _overridden(base, own, "reflection", "observation_tokens")
    start = amounts.reflection_start(option_value(tree, "reflection.buffer_activation"), threshold)
    if start is None or not buffering:
        condition = "observation.buffer_tokens and reflection.buffer_activation are not False"
        _refuse_block_after(phase, "reflection", condition)
        return threshold, None, threshold
    block = option_value(tree, "reflection.block_after")
    amounts.block_after(block, base, "reflection.block_after", "observation_tokens")
    return threshold, start, _block_for(block, threshold, "reflection", "observation_tokens")


def _observation_ttl(tree: Options) -> Ttl:
    phase = tree.get("observation", {})
    if "activate_after_idle" in phase:
        return parse_ttl(phase["activate_after_idle"], "observation.activate_after_idle")
    return parse_ttl(option_value(tree, "activate_after_idle"), "activate_after_idle")


def _block_timeout(value: object) -> float:
    """0 and False: a context call never waits."""
    return 0.0 if value is False else values.duration(value, "observation.block_timeout", least_s=0)


def _previous_tokens(value: object) -> int | None:
    option, allowed = "observation.previous_observer_tokens", f"False for all, or tokens from 0 to {values.MOST_TOKENS}"
    if value is False:
        return None
    given = values.number(value, option, allowed)
    if not 0 <= given <= values.MOST_TOKENS:
        raise PolicyError(option, value, allowed)
    return values.js_round(given)


def _hints(value: object, option: str) -> tuple[bool, bool]:
    """Whether to ask for the current task and for a suggested response; a missing name counts as True."""
    if isinstance(value, bool):
        return value, value
    if not isinstance(value, Mapping):
        raise PolicyError(option, value, "True, False, or {'current_task': bool, 'suggested_response': bool}")
    names = ("current_task", "suggested_response")
    current_task, suggested_response = (values.flag(value.get(name, True), f"{option}.{name}") for name in names)
    return current_task, suggested_response


def _attachments(value: object) -> bool | Literal["auto"] | tuple[str, ...]:
    option = "observation.observe_attachments"
    allowed = "True, False, 'auto', or a list of MIME patterns such as 'image/*'"
    if isinstance(value, bool):
        return value
    if value == "auto":
        return "auto"
    if not isinstance(value, list | tuple):
        raise PolicyError(option, value, allowed)
    for pattern in value:
        if not isinstance(pattern, str) or not (pattern == "*" or all(pattern.partition("/"))):
            raise PolicyError(option, pattern, allowed)
    return tuple(values.text(pattern, option).lower() for pattern in value)
