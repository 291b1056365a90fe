"""From the options of a phase to LiteLLM's arguments: model settings, provider options, the prompt's messages.

Options may come from a tenant's configuration, so nothing in them reaches LiteLLM's own switches (addresses, keys,
callbacks, retries): known names are passed as arguments, others only inside the request body.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from om_core.domain.errors import SetupError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from om_core.domain.message import JsonObject
    from om_core.ports import Phase, PromptMessage

TEMPERATURE: Final[dict[str, float]] = {"observe": 0.3, "reflect": 0.0, "extract": 0.0}
"""By phase, as in the reference (values are worked out, not phrased); LiteLLM drops them where a model takes none."""
WARMER: Final = 0.2
WARMEST: Final = 1.0
"""What each failure adds to the temperature, and up to where: the same answer again would be as useless."""

COOL_THINKERS: Final = frozenset({"gemini", "vertex_ai"})
"""Providers that take a thinking budget together with a temperature; others insist on their own."""

ARGUMENTS: Final = frozenset(
    {
        "frequency_penalty", "logit_bias", "parallel_tool_calls", "presence_penalty", "prompt_cache_key",
        "prompt_cache_retention", "reasoning_effort", "response_format", "safety_identifier", "seed", "service_tier",
        "stop", "store", "thinking", "top_p", "user", "verbosity",
    }
)  # fmt: skip
"""Provider options that are LiteLLM arguments, in snake_case."""

BODY_PROVIDERS: Final = frozenset(
    {
        "cerebras", "deepinfra", "deepseek", "fireworks_ai", "gemini", "groq", "hosted_vllm",
        "lm_studio", "mistral", "nvidia_nim", "openai", "openrouter", "perplexity", "together_ai", "vertex_ai", "xai",
    }
)  # fmt: skip
"""Providers for which LiteLLM merges `extra_body` into the request."""

URL_PROVIDERS: Final = frozenset({"anthropic", "azure", "litellm_proxy", "mistral", "openai", "openrouter", "xai"})
"""Providers that fetch an image by its https URL themselves. Anything else LiteLLM would fetch from here."""

SECTIONS: Final[dict[str, tuple[str, ...]]] = {
    "gemini": ("google", "gemini"),
    "vertex_ai": ("vertex", "google-vertex", "google", "vertex_ai"),
    "bedrock": ("bedrock", "amazon-bedrock"),
    "xai": ("xai", "x-ai"),
}
"""Provider -> names of its section in `provider_options`; by default its own name."""

NOT_SHOWN: Final = "[attachment by URL, not shown]"


def call_arguments(
    settings: Mapping[str, Any],
    provider_options: Mapping[str, Any],
    *,
    phase: Phase,
    provider: str,
    most: int | None,
    failures: int = 0,
) -> dict[str, Any]:
    """LiteLLM arguments of one call.

    Args:
        settings: `temperature` and `max_output_tokens`; other names are dropped, as the reference does.
        provider_options: sections by provider, as in `{"google": {"thinkingConfig": {"thinkingBudget": 215}}}`; other
            providers' sections are ignored.
        phase: decides the default temperature.
        provider: LiteLLM's name of the provider.
        most: largest output of the model in tokens, if known; a larger wish is lowered to it.
        failures: how often this input had no usable answer before.

    Raises:
        SetupError: a setting is no number, or a provider option cannot be passed on.
    """
    arguments = _provider_arguments(provider_options, provider)
    thinks = "thinking" in arguments and provider not in COOL_THINKERS
    temperature = _number(settings, "temperature", None if thinks else TEMPERATURE[phase])
    if temperature is not None:
        arguments["temperature"] = max(temperature, min(WARMEST, temperature + WARMER * failures))
    wish = _number(settings, "max_output_tokens", _number(settings, "maxOutputTokens", None))
    if wish is not None:
        arguments["max_tokens"] = max(1, int(wish) if most is None else min(int(wish), most))
    return arguments


def _number(settings: Mapping[str, Any], name: str, default: float | None) -> float | None:
    value = settings.get(name)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise SetupError(f"model_settings.{name} = {value!r} is no number.")
    return value


def _provider_arguments(provider_options: Mapping[str, Any], provider: str) -> dict[str, Any]:
    arguments: dict[str, Any] = {}
    body: dict[str, Any] = {}
    for section in SECTIONS.get(provider, (provider,)):
        for key, value in (provider_options.get(section) or {}).items():
            name = _snake(key)
            if name in {"thinking_config", "thinking"} and isinstance(value, dict):
                arguments["thinking"] = _thinking(value)
            elif name in ARGUMENTS:
                arguments[name] = value
            elif provider in BODY_PROVIDERS:
                body[key] = value
            else:
                where = f"provider_options.{section}.{key}"
                raise SetupError(f"{where} cannot be passed to {provider}: remove it, or use one of {_listed()}.")
    if body:
        arguments["extra_body"] = body
    return arguments


def _thinking(value: Mapping[str, Any]) -> JsonObject:
    """Both spellings of a thinking budget as LiteLLM's one form; a budget of 0 switches thinking off."""
    config = {_snake(key): item for key, item in value.items()}
    budget = config.get("thinking_budget", config.get("budget_tokens"))
    if budget is None:
        return {"type": config.get("type", "enabled")}
    return {"type": config.get("type", "enabled"), "budget_tokens": int(budget)}


def _snake(name: str) -> str:
    return "".join(f"_{char.lower()}" if char.isupper() else char for char in name)


def _listed() -> str:
    return ", ".join(sorted(ARGUMENTS))


def prompt_messages(prompt: Iterable[PromptMessage], provider: str) -> list[JsonObject]:
    """The prompt in OpenAI form. Attachments given by URL stay only where the provider itself fetches them."""
    return [{"role": message.role, "content": _content(message.content, provider)} for message in prompt]


def _content(content: str | list[JsonObject], provider: str) -> str | list[JsonObject]:
    if isinstance(content, str):
        return content
    schemes = ("http:",) if provider in URL_PROVIDERS else ("http:", "https:")
    return [{"type": "text", "text": NOT_SHOWN} if _stands_at(block, schemes) else block for block in content]


def _stands_at(block: JsonObject, schemes: tuple[str, ...]) -> bool:
    """Whether a content block points to a place with one of these schemes."""
    image, file = block.get("image_url"), block.get("file")
    places = [image.get("url") if isinstance(image, dict) else image]
    if isinstance(file, dict):
        places += [file.get("file_id"), file.get("file_data")]
    return any(isinstance(place, str) and place.strip().lower().startswith(schemes) for place in places)
