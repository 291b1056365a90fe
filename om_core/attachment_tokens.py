"""What pictures and documents cost, by the published rules of the providers; no network, no decoding of pixels."""

from __future__ import annotations

import json
from math import ceil, isfinite
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from om_core.formats.attachments import data_bytes, image_size, inline_data

if TYPE_CHECKING:
    from om_core.domain.message import File, Image, JsonObject

Provider: TypeAlias = Literal["openai", "google", "anthropic"]

_KB: Final = 1024
_MB: Final = 1024 * 1024
_OPENAI_TILES: Final = (
    ("gpt-4o-mini", 2833, 5667),
    ("gpt-5", 70, 140),
    ("o1", 75, 150),
    ("o3", 75, 150),
    ("computer-use", 65, 129),
)
"""Model name, base tokens, tokens per tile; everything else costs 85 and 170."""
_GEMINI_3: Final = {"low": 280, "medium": 560, "high": 1120, "ultra_high": 2240}
_MEDIA_BYTES_PER_TOKEN: Final = 2000
"""Sound and film cost by duration: at usual bit rates this is near the providers' tokens per second."""
_MOST_PIXELS: Final = 65_535
"""Of one side: what the usual formats can hold. More is a mistake or a lie, and must not make an immense count."""
_DETAIL_KEYS: Final = ("imageDetail", "image_detail", "detail", "mediaResolution", "media_resolution")


def provider_of(model: str | None) -> Provider:
    """Whose rules a model follows; OpenAI's for a model that is not known."""
    name = (model or "").lower()
    if "claude" in name or name.startswith("anthropic/"):
        return "anthropic"
    if "gemini" in name or name.startswith("google/"):
        return "google"
    return "openai"


def image_tokens(image: Image, model: str | None) -> int:
    """Tokens of an image for a model: what the caller counted, else by size where it is given or told by the data."""
    counted = _counted(image.token_estimate)
    if counted is not None:
        return counted
    size = _pixels(image)
    data = _data_of(image)
    weight = None if data is None else data_bytes(data)
    provider = provider_of(model)
    if provider == "anthropic":
        return _anthropic(size, weight)
    detail = _detail_of(image, provider)
    if provider == "google":
        return _google(size, detail, (model or "").lower())
    return _openai(size, weight, detail, (model or "").lower().rpartition("/")[2])


def file_tokens(file: File, model: str | None) -> int | None:
    """Tokens of a document for a model; None where only a reference is known, which costs its words."""
    counted = _counted(file.token_estimate)
    if counted is not None:
        return counted
    data = _data_of(file)
    if data is None:
        return None
    weight = data_bytes(data)
    mime = file.mime_type or ""
    if mime == "application/pdf" or (file.filename or "").lower().endswith(".pdf"):
        least, per_token = {"google": (258, 20), "anthropic": (1500, 3), "openai": (500, 4)}[provider_of(model)]
        return max(least, ceil(weight / per_token))
    if mime.startswith(("audio/", "video/")):
        return max(1, ceil(weight / _MEDIA_BYTES_PER_TOKEN))
    return max(1, ceil(weight / 4))


def file_words(file: File) -> str:
    """What is counted of a document that is only referred to."""
    url = None if file.url is None else file.url[:2000]
    return json.dumps({"type": "file", "url": url, "mime_type": file.mime_type, "filename": file.filename})


def _counted(estimate: float | None) -> int | None:
    """The caller's own count; None where it is none: negative, not finite, no number."""
    if estimate is None or isinstance(estimate, bool) or not isinstance(estimate, int | float):
        return None
    return int(estimate) if isfinite(estimate) and estimate >= 0 else None


def _detail_of(image: Image, provider: Provider) -> str | None:
    """`low`, `high` and so on: of the part, else of what its provider's options say (`MEDIA_RESOLUTION_LOW`)."""
    options: JsonObject = image.provider_metadata or {}
    inner = options.get(provider)
    own = inner if isinstance(inner, dict) else {}
    said = (image.detail, *(own.get(key) for key in _DETAIL_KEYS))
    found = next((value for value in said if isinstance(value, str) and value), None)
    return found and found.lower().removeprefix("media_resolution_")


def _data_of(part: Image | File) -> str | None:
    found = inline_data(part)
    return part.data if found is None else found[1]


def _pixels(image: Image) -> tuple[int, int] | None:
    if image.width is not None and image.height is not None:
        return _side(image.width), _side(image.height)
    data = _data_of(image)
    found = None if data is None else image_size(data)
    return None if found is None else (_side(found[0]), _side(found[1]))


def _side(pixels: int) -> int:
    return min(max(1, pixels), _MOST_PIXELS)


def _by_weight(weight: int, steps: tuple[int, int, int, int]) -> int:
    limits = (512 * _KB, 2 * _MB, 4 * _MB)
    return next((step for limit, step in zip(limits, steps, strict=False) if weight <= limit), steps[3])


def _openai(size: tuple[int, int] | None, weight: int | None, detail: str | None, model: str) -> int:
    prices = ((base, tile) for name, base, tile in _OPENAI_TILES if model.startswith(name))
    base, tile = next(prices, (85, 170))
    if detail != "high" and (detail == "low" or not _looks_large(size, weight)):
        return base
    if size is not None:
        return base + _openai_tiles(*size) * tile
    if weight is not None:
        return base + _by_weight(weight, (1, 4, 6, 8)) * tile
    return base + (1 if model.startswith("gpt-4o-mini") else 4) * tile


def _looks_large(size: tuple[int, int] | None, weight: int | None) -> bool:
    if size is not None:
        return max(size) > 768
    return weight is not None and weight > _MB


def _openai_tiles(width: float, height: float) -> int:
    scale = min(1.0, 2048 / max(width, height))
    scale *= min(1.0, 768 / (min(width, height) * scale))
    return ceil(width * scale / 512) * ceil(height * scale / 512)


def _google(size: tuple[int, int] | None, detail: str | None, model: str) -> int:
    if "gemini-3" in model:
        return _GEMINI_3.get(detail or "", 1120)
    if size is None:
        return 258
    return 258 * max(1, ceil(size[0] / 768) * ceil(size[1] / 768))


def _anthropic(size: tuple[int, int] | None, weight: int | None) -> int:
    if size is not None:
        scale = min(1.0, 1568 / max(size))
        return max(1, ceil(size[0] * scale * size[1] * scale / 750))
    return 1600 if weight is None else _by_weight(weight, (341, 1366, 2048, 2731))
