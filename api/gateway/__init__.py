"""Gateways: OpenAI's chat completions and Anthropic's messages, with memory switched on by a header (API 3)."""

from __future__ import annotations

from api.gateway.anthropic import router as anthropic
from api.gateway.openai import router as openai

__all__ = ["anthropic", "openai"]
