"""Model names: the reference's and other common spellings, translated to LiteLLM's `provider/model`."""

from __future__ import annotations

import re
from typing import Final

from om_core.domain.errors import SetupError

OFFLINE_PROVIDER: Final = "offline"
MAX_NAME: Final = 256

PROVIDER_ALIASES: Final = {
    "alibaba": "dashscope",
    "amazon-bedrock": "bedrock",
    "azure-openai": "azure",
    "fireworks": "fireworks_ai",
    "google": "gemini",
    "google-vertex": "vertex_ai",
    "grok": "xai",
    "lmstudio": "lm_studio",
    "mistralai": "mistral",
    "moonshotai": "moonshot",
    "nvidia": "nvidia_nim",
    "qwen": "dashscope",
    "together": "together_ai",
    "togetherai": "together_ai",
    "vercel": "vercel_ai_gateway",
    "vertex": "vertex_ai",
    "vertexai": "vertex_ai",
    "vllm": "hosted_vllm",  # a server; LiteLLM's own `vllm` loads a model into this process
    "x-ai": "xai",
    "z-ai": "zai",
}
"""First part of a name -> LiteLLM's provider; providers not listed keep their name."""

BARE_NAMES: Final = (
    ("gpt-", "openai"),
    ("chatgpt-", "openai"),
    ("o1", "openai"),
    ("o3", "openai"),
    ("o4", "openai"),
    ("claude-", "anthropic"),
    ("gemini-", "gemini"),
    ("mistral-", "mistral"),
    ("codestral-", "mistral"),
    ("deepseek-", "deepseek"),
    ("command-", "cohere_chat"),
    ("grok-", "xai"),
)
"""Beginning of a name without a provider -> its maker."""

_PROVIDER: Final = re.compile(r"[a-z0-9][a-z0-9_.-]*")
_MODEL: Final = re.compile(r"[^\s\x00-\x1f\x7f]+")


def to_litellm(name: str) -> str:
    """The name as LiteLLM takes it, always with its provider: `google/x` is `gemini/x`, `gpt-5` is `openai/gpt-5`.

    Raises:
        SetupError: the name is empty, has blanks, or names no provider.
    """
    provider, model = split_name(name)
    return f"{provider}/{model}"


def provider_of(name: str) -> str:
    """LiteLLM's provider of a model name, as in `gemini` for `google/gemini-2.5-flash`; `offline` for ours.

    Raises:
        SetupError: as `to_litellm`.
    """
    return split_name(name)[0]


def is_offline(name: str) -> bool:
    """Whether the built-in model is meant, which needs neither network nor key."""
    return name.strip().startswith(f"{OFFLINE_PROVIDER}/")


def split_name(name: str) -> tuple[str, str]:
    """Provider and model, the provider in LiteLLM's spelling.

    Raises:
        SetupError: as `to_litellm`.
    """
    text = name.strip()
    if not text or len(text) > MAX_NAME or not _MODEL.fullmatch(text):
        raise SetupError(_complaint(text, "it is empty, longer than 256 characters, or has blanks"))
    head, slash, model = text.partition("/")
    if not slash:
        return _maker(text), text
    provider = head.lower()
    if not _PROVIDER.fullmatch(provider) or not model.strip("/"):
        raise SetupError(_complaint(text, "the part before or after the slash is missing"))
    return PROVIDER_ALIASES.get(provider, provider), model


def _maker(text: str) -> str:
    for beginning, provider in BARE_NAMES:
        if text.lower().startswith(beginning):
            return provider
    raise SetupError(_complaint(text, "it names no provider"))


def _complaint(text: str, what: str) -> str:
    shown = text if len(text) <= 80 else f"{text[:80]}..."
    return f"{shown!r} is no model name: {what}. Write provider/model, as in google/gemini-2.5-flash."
