"""Observational Memory: long memory for LLM agents on Postgres, Redis and Celery."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from om_core.client import AsyncMemoryClient, MemoryClient
    from om_core.memory import Memory
    from om_core.options import Extractor, ModelByInputTokens
    from om_core.services.extraction_event import ExtractionEvent, ExtractionRequest

__all__ = [
    "AsyncMemoryClient",
    "ExtractionEvent",
    "ExtractionRequest",
    "Extractor",
    "Memory",
    "MemoryClient",
    "ModelByInputTokens",
]

_HOMES = {
    "AsyncMemoryClient": "om_core.client",
    "ExtractionEvent": "om_core.services.extraction_event",
    "ExtractionRequest": "om_core.services.extraction_event",
    "Extractor": "om_core.options",
    "Memory": "om_core.memory",
    "MemoryClient": "om_core.client",
    "ModelByInputTokens": "om_core.options",
}


def __getattr__(name: str) -> object:
    """Load the entry points on first use: importing a part of the library does not load all of it."""
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    msg = f"module {__name__!r} has no attribute {name!r}"
    raise AttributeError(msg)
