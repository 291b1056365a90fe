"""Which environment variable a model needs and does not have, known before the first call fails.

LiteLLM reports a missing key as a server error, and importing it to ask takes seconds, so the common providers stand
in a table; an integration test compares the table with LiteLLM.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from om_core.llm.names import OFFLINE_PROVIDER, split_name

if TYPE_CHECKING:
    from collections.abc import Mapping

KEY_VARIABLES: Final[dict[str, tuple[str, ...]]] = {
    "anthropic": ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"),
    "azure": ("AZURE_API_KEY", "AZURE_AD_TOKEN"),
    "azure_ai": ("AZURE_AI_API_KEY",),
    "cerebras": ("CEREBRAS_API_KEY",),
    "cohere": ("COHERE_API_KEY",),
    "cohere_chat": ("COHERE_API_KEY",),
    "dashscope": ("DASHSCOPE_API_KEY",),
    "deepinfra": ("DEEPINFRA_API_KEY",),
    "deepseek": ("DEEPSEEK_API_KEY",),
    "fireworks_ai": ("FIREWORKS_AI_API_KEY", "FIREWORKS_API_KEY", "FIREWORKSAI_API_KEY"),
    "gemini": ("GEMINI_API_KEY", "GOOGLE_API_KEY"),
    "groq": ("GROQ_API_KEY",),
    "huggingface": ("HUGGINGFACE_API_KEY", "HF_TOKEN"),
    "mistral": ("MISTRAL_API_KEY",),
    "moonshot": ("MOONSHOT_API_KEY",),
    "nvidia_nim": ("NVIDIA_NIM_API_KEY",),
    "openai": ("OPENAI_API_KEY",),
    "openrouter": ("OPENROUTER_API_KEY", "OR_API_KEY"),
    "perplexity": ("PERPLEXITYAI_API_KEY", "PERPLEXITY_API_KEY"),
    "together_ai": ("TOGETHERAI_API_KEY", "TOGETHER_AI_TOKEN", "TOGETHER_API_KEY", "TOGETHER_AI_API_KEY"),
    "vercel_ai_gateway": ("VERCEL_AI_GATEWAY_API_KEY", "VERCEL_OIDC_TOKEN"),
    "xai": ("XAI_API_KEY",),
    "zai": ("ZAI_API_KEY",),
}
"""Provider -> variables of which one is enough; the first is the one to recommend."""

KEYLESS: Final = frozenset(
    {
        OFFLINE_PROVIDER,
        # servers of one's own
        "docker_model_runner", "hosted_vllm", "lemonade", "llamafile", "lm_studio", "ollama", "ollama_chat",
        "oobabooga", "triton", "vllm", "xinference",
        # credentials that may come from the machine itself, with no variable set
        "bedrock", "bedrock_mantle", "sagemaker", "sagemaker_chat", "vertex_ai", "vertex_ai_beta",
    }
)  # fmt: skip
"""Providers for which a missing variable proves nothing."""


def missing_key(model: str, *, api_base: str | None = None, environ: Mapping[str, str] | None = None) -> str | None:
    """The environment variable that has to be set before `model` can be called; None when nothing is missing.

    A model with its own `api_base` needs none: what such a server wants to see is unknown.

    Raises:
        SetupError: `model` is no model name.
    """
    provider, _ = split_name(model)
    if api_base or provider in KEYLESS:
        return None
    variables = KEY_VARIABLES.get(provider)
    if variables is None:
        return _ask_litellm(model)
    values = os.environ if environ is None else environ
    return None if any(values.get(name, "").strip() for name in variables) else variables[0]


def _ask_litellm(model: str) -> str | None:
    from om_core.llm.library import litellm_module
    from om_core.llm.names import to_litellm

    answer = litellm_module().validate_environment(to_litellm(model))
    missing = answer.get("missing_keys") or []
    return None if answer.get("keys_in_environment") or not missing else str(missing[0])
