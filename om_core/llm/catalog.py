"""Windows, output limits and prices of known models, read from the table inside the LiteLLM package.

Reading the file takes a fraction of a second; importing LiteLLM for the same answer takes seconds, and a context call
of the API asks for windows too.
"""

from __future__ import annotations

import importlib.util
import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

from om_core.domain.errors import SetupError
from om_core.llm.names import is_offline, split_name

TABLE: Final = "model_prices_and_context_window_backup.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelPrice:
    """US dollars per token. `cached` is for input tokens read from the provider's prompt cache."""

    input: float
    output: float
    cached: float | None = None

    def cost_usd(self, *, input_tokens: int, output_tokens: int, cached_tokens: int = 0) -> float:
        """The price of one call; `cached_tokens` are part of `input_tokens`."""
        cached = min(cached_tokens, input_tokens)
        cached_price = self.input if self.cached is None else self.cached
        return (input_tokens - cached) * self.input + cached * cached_price + output_tokens * self.output


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFacts:
    """What is known of one model; None where it is not."""

    window_tokens: int | None = None
    output_tokens: int | None = None
    price: ModelPrice | None = None
    media: frozenset[str] = frozenset()
    """MIME types and groups of them that it reads beside text, as in `image/*`."""


UNKNOWN: Final = ModelFacts()
_MEDIA: Final = {
    "supports_vision": "image/*",
    "supports_pdf_input": "application/pdf",
    "supports_audio_input": "audio/*",
    "supports_video_input": "video/*",
}
"""The table's flags; it has them only where they are true."""


def facts_of(model: str) -> ModelFacts:
    """What the table says about a model in any spelling; `UNKNOWN` for models it does not hold. No network."""
    try:
        provider, name = split_name(model)
    except SetupError:
        return UNKNOWN
    table = _table()
    entry = table.get((provider, f"{provider}/{name}")) or table.get((provider, name))
    if entry is None:
        entry = table.get((provider, name.rpartition("/")[2]))
    return UNKNOWN if entry is None else entry


def reads_media(model: str, mime_type: str) -> bool | None:
    """Whether a model reads attachments of a MIME type; None when nothing is known of the model. No network."""
    if is_offline(model):
        return False
    facts = facts_of(model)
    if facts is UNKNOWN:
        return None
    return bool(facts.media & {mime_type, f"{mime_type.split('/', 1)[0]}/*"})


@cache
def _table() -> dict[tuple[str, str], ModelFacts]:
    spec = importlib.util.find_spec("litellm")
    folders = [] if spec is None else list(spec.submodule_search_locations or [])
    for folder in folders:
        path = Path(folder) / TABLE
        if path.is_file():
            return _read(json.loads(path.read_bytes()))
    return {}


def _read(raw: dict[str, Any]) -> dict[tuple[str, str], ModelFacts]:
    table = {}
    for key, entry in raw.items():
        if not isinstance(entry, dict) or key == "sample_spec":
            continue
        provider = _provider(str(entry.get("litellm_provider", "")))
        table[provider, key] = ModelFacts(
            window_tokens=_count(entry.get("max_input_tokens")),
            output_tokens=_count(entry.get("max_output_tokens")) or _count(entry.get("max_tokens")),
            price=_price(entry),
            media=frozenset(mime for flag, mime in _MEDIA.items() if entry.get(flag) is True),
        )
    return table


def _provider(name: str) -> str:
    """The table splits Vertex into families, as in `vertex_ai-language-models`."""
    return "vertex_ai" if name.startswith("vertex_ai-") else name


def _count(value: object) -> int | None:
    return int(value) if isinstance(value, int | float) and value > 0 else None


def _price(entry: dict[str, Any]) -> ModelPrice | None:
    given, made = entry.get("input_cost_per_token"), entry.get("output_cost_per_token")
    if not isinstance(given, int | float) or not isinstance(made, int | float):
        return None
    cached = entry.get("cache_read_input_token_cost")
    return ModelPrice(input=given, output=made, cached=cached if isinstance(cached, int | float) else None)
