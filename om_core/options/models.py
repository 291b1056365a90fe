"""Which model a phase calls, and how (behaviour 1.4)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from om_core.domain.errors import PolicyError
from om_core.domain.message import JsonObject
from om_core.domain.policy import DEFAULT_MODEL, PhaseModel
from om_core.options import values
from om_core.options.schema import camel, table

_NAME: Final = re.compile(r"[^\s\x00-\x1f\x7f\ud800-\udfff]{1,256}")
_ALLOWED_MODEL: Final = (
    "a model name such as 'openai/gpt-5-mini', 'default', a list of names or of {'model': name} (the first is called, "
    "the others are fallbacks), or {'up_to': {tokens: name}}; functions cannot be stored with a job"
)
_ALLOWED_LIMITS: Final = "at least one entry {largest input in tokens, a whole number from 1: model name}"


@dataclass(frozen=True, slots=True)
class ModelByInputTokens:
    """A model chosen by the size of its input: the first limit that is not below it.

    `ModelByInputTokens({8_000: "openai/gpt-5-nano", 128_000: "openai/gpt-5-mini"})`. The largest limit also bounds
    the input window, so larger inputs are cut, not refused.
    """

    up_to: Mapping[int, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseDefaults:
    """What a phase uses where the user says nothing; provider options replace, they are never merged."""

    path: str
    provider_options: JsonObject


def resolve_phase_model(
    phase: Mapping[str, Any], chosen: tuple[Any, str], defaults: PhaseDefaults, default_model: str = DEFAULT_MODEL
) -> PhaseModel:
    """The model of one phase.

    Args:
        phase: the phase's normalised options.
        chosen: the value that precedence picked (None: no model was chosen) and the path of its option.
        defaults: of this phase.
        default_model: what None and the word `default` stand for.
    """
    names, limits = _names(*chosen, default_model)
    window = phase.get("window_tokens")
    window_tokens = None if window is None else values.tokens(window, f"{defaults.path}.window_tokens")
    if limits:
        window_tokens = min(window_tokens or limits[-1][0], limits[-1][0])
    is_default = chosen[0] in (None, "default") and default_model == DEFAULT_MODEL
    provider_options = phase.get("provider_options", defaults.provider_options)
    return PhaseModel(
        name=names[0],
        fallbacks=names[1:],
        settings=_settings(phase, defaults, by_size=bool(limits), is_default=is_default),
        provider_options=values.json_object(provider_options, f"{defaults.path}.provider_options"),
        max_attempt_s=values.duration(phase.get("max_attempt", "2m"), f"{defaults.path}.max_attempt"),
        window_tokens=window_tokens,
        by_input_tokens=limits,
    )


def choose_by_precedence(options: Mapping[str, Any], own: str, other: str) -> tuple[Any, str]:
    """Top level, own sub-option, the other phase's sub-option, nothing; with the path it was found at.

    Raises:
        PolicyError: a top-level model beside a sub-option's.
    """
    if "model" in options:
        for phase in ("observation", "reflection"):
            if "model" in options.get(phase, {}):
                allowed = f"not together with model = {options['model']!r}; keep one of the two"
                raise PolicyError(f"{phase}.model", options[phase]["model"], allowed)
        return options["model"], "model"
    for phase in (own, other):
        if "model" in options.get(phase, {}):
            return options[phase]["model"], f"{phase}.model"
    return None, f"{own}.model"


def _names(value: Any, option: str, default_model: str) -> tuple[tuple[str, ...], tuple[tuple[int, str], ...]]:
    """Names to try in order, and limits by input size (then the first name only identifies the model)."""
    if value is None:
        return (default_model,), ()
    if isinstance(value, ModelByInputTokens):
        value = {"up_to": value.up_to}
    if isinstance(value, Mapping):
        limits = _limits(value, option, default_model)
        return (limits[0][1],), limits
    if isinstance(value, list | tuple):
        names = tuple(name for name in (_entry(item, option, default_model) for item in value) if name)
        if not names:
            raise PolicyError(option, value, _ALLOWED_MODEL)
        return tuple(dict.fromkeys(names)), ()
    return (_name(value, option, default_model),), ()


def _name(value: object, option: str, default_model: str) -> str:
    if not isinstance(value, str) or not _NAME.fullmatch(value):
        raise PolicyError(option, value, _ALLOWED_MODEL)
    return default_model if value == "default" else value


def _entry(item: object, option: str, default_model: str) -> str | None:
    """One entry of a list; None when it is switched off with `enabled: False`."""
    if not isinstance(item, Mapping):
        return _name(item, option, default_model)
    if "model" not in item or not set(item) <= {"model", "enabled"}:
        raise PolicyError(option, dict(item), "entries of the list are {'model': name, 'enabled': True or False}")
    name = _name(item["model"], option, default_model)
    return name if values.flag(item.get("enabled", True), f"{option}.enabled") else None


def _limits(value: Mapping[Any, Any], option: str, default_model: str) -> tuple[tuple[int, str], ...]:
    spelling = next((key for key in ("up_to", camel("up_to")) if key in value), None)
    if spelling is None or len(value) != 1:
        raise PolicyError(option, dict(value), _ALLOWED_MODEL)
    entries = value[spelling]
    if not isinstance(entries, Mapping) or not entries:
        raise PolicyError(f"{option}.up_to", entries, _ALLOWED_LIMITS)
    limits: dict[int, str] = {}
    for key, name in entries.items():
        limit = _limit(key, f"{option}.up_to")
        if limit in limits:
            raise PolicyError(f"{option}.up_to", key, f"each limit once; {_ALLOWED_LIMITS}")
        limits[limit] = _name(name, f"{option}.up_to.{limit}", default_model)
    return tuple(sorted(limits.items()))


def _limit(key: object, option: str) -> int:
    """Keys may be texts of digits: JSON and TOML know no other keys."""
    given: object = int(key) if isinstance(key, str) and key.isascii() and key.isdigit() and len(key) <= 10 else key
    limit = values.number(given, option, _ALLOWED_LIMITS)
    if not 1 <= limit <= values.MOST_TOKENS or limit != int(limit):
        raise PolicyError(option, key, _ALLOWED_LIMITS)
    return int(limit)


def _settings(phase: Mapping[str, Any], defaults: PhaseDefaults, *, by_size: bool, is_default: bool) -> JsonObject:
    """Temperature and output limit as the user set them, and the reference's default limit.

    The default temperature is not set here: it depends on the model that is called in the end (`om_core.llm.options`).
    """
    path = f"{defaults.path}.model_settings"
    given = table(phase.get("model_settings", {}), path)
    settings: JsonObject = {}
    if "temperature" in given:
        settings["temperature"] = _temperature(given["temperature"], f"{path}.temperature")
    if "max_output_tokens" in given:
        settings["max_output_tokens"] = values.tokens(given["max_output_tokens"], f"{path}.max_output_tokens")
    elif by_size or is_default:
        settings["max_output_tokens"] = 100_000
    return settings


def _temperature(value: object, option: str) -> float:
    allowed = "a number from 0 to 2"
    given = values.number(value, option, allowed)
    if not 0 <= given <= 2:
        raise PolicyError(option, value, allowed)
    return float(given)
