"""Times that users write, and how long a provider keeps a prompt cache (behaviour 1.5). Pure.

An idle time makes sense only against the cache it protects: once the provider has forgotten the prefix, changing it
costs nothing. `auto` therefore means "the cache lifetime of the actor's provider".
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from om_core.domain.errors import PolicyError

if TYPE_CHECKING:
    from om_core.domain.policy import Ttl

LONGEST_S: Final = 100 * 365 * 86_400.0
"""Longer times are cut to this (100 years), so that adding one to a date never overflows."""

_MINUTE: Final = 60.0
_HOUR: Final = 3_600.0
_UNITS: Final = (
    (("ms", "msec", "msecs", "millisecond", "milliseconds"), 0.001),
    (("s", "sec", "secs", "second", "seconds"), 1.0),
    (("m", "min", "mins", "minute", "minutes"), _MINUTE),
    (("h", "hr", "hrs", "hour", "hours"), _HOUR),
)
_SECONDS: Final = {name: seconds for names, seconds in _UNITS for name in names}
_TIME: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([a-z]+)", re.ASCII | re.IGNORECASE)
_ALLOWED_TIME: Final = "milliseconds as a number >= 0, or a text such as '500ms', '30s', '5m' or '1h'"

_SHORT_OPENAI: Final = re.compile(r"gpt-4|gpt-5(?:\.[1-4])?(?:$|-)")
_LIFETIMES: Final = (("google", 24 * _HOUR), ("gemini", 24 * _HOUR), ("deepseek", _HOUR), ("groq", 2 * _HOUR))
_DEFAULT_LIFETIME_S: Final = 5 * _MINUTE
_BARE_OPENAI: Final = re.compile(r"(?:chatgpt|gpt|o[1-9])(?:$|-)")
_SAME_CACHE: Final = {"azure": "azure-openai", "vertex_ai": "google-vertex"}
"""LiteLLM's provider names that do not contain the name of the service whose cache they use."""


def parse_duration(value: object, option: str, *, allowed: str = _ALLOWED_TIME) -> float:
    """Seconds from milliseconds (a number) or from `"5m"` (a number, a unit, no sign; case does not matter).

    Raises:
        PolicyError: anything else, naming `option`.
    """
    seconds = _seconds(value)
    if seconds is None or not math.isfinite(seconds) or seconds < 0:
        raise PolicyError(option, value, allowed)
    return min(seconds, LONGEST_S)


def parse_ttl(value: object, option: str = "activate_after_idle") -> Ttl:
    """Seconds, `"auto"`, or None for never (None or False). 0 means: expired at once.

    Raises:
        PolicyError: anything else, naming `option`.
    """
    if value is None or value is False:
        return None
    if value == "auto":
        return "auto"
    return parse_duration(value, option, allowed=f"{_ALLOWED_TIME}, 'auto', or False for never")


def _seconds(value: object) -> float | None:
    if isinstance(value, str):
        match = _TIME.fullmatch(value.strip())
        factor = _SECONDS.get(match[2].lower()) if match else None
        return None if match is None or factor is None else float(match[1]) * factor
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value) / 1000
    except OverflowError:  # an int beyond the range of float
        return LONGEST_S if value > 0 else None


def auto_ttl_s(model: str | None, provider_options: Mapping[str, Any] | None = None) -> float:
    """How long the actor's provider keeps a prompt cache, in seconds.

    Args:
        model: the actor's model as `provider/model`, or a bare model name; None when it is not known.
        provider_options: of the actor's request; `openai.prompt_cache_retention` (or camelCase) is looked at.
    """
    provider, name = _provider_and_name(model)
    if "openai" in provider:
        return _openai_lifetime_s(name, provider_options or {})
    return next((seconds for word, seconds in _LIFETIMES if word in provider), _DEFAULT_LIFETIME_S)


def _provider_and_name(model: str | None) -> tuple[str, str]:
    """A bare name stands for its provider too: `gemini-2.5-pro` contains `gemini`, and `gpt-4o` is OpenAI's."""
    head, slash, tail = (model or "").strip().lower().partition("/")
    if slash:
        return _SAME_CACHE.get(head, head), tail
    return ("openai" if _BARE_OPENAI.match(head) else head), head


def _openai_lifetime_s(name: str, provider_options: Mapping[str, Any]) -> float:
    options = provider_options.get("openai")
    chosen = None
    if isinstance(options, Mapping):
        chosen = options.get("promptCacheRetention", options.get("prompt_cache_retention"))
    if chosen == "24h":
        return _HOUR
    short = chosen in ("in_memory", "in-memory") or _SHORT_OPENAI.match(name)  # it may be unhashable
    return 5 * _MINUTE if short else _HOUR
