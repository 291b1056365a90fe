"""Which environment variable a model still needs."""

from __future__ import annotations

import pytest

from om_core.domain.errors import SetupError
from om_core.llm.keys import KEY_VARIABLES, KEYLESS, missing_key

MISSING = [
    ("google/gemini-2.5-flash", {}, "GEMINI_API_KEY"),
    ("google/gemini-2.5-flash", {"GEMINI_API_KEY": "  "}, "GEMINI_API_KEY"),
    ("google/gemini-2.5-flash", {"GOOGLE_API_KEY": "x"}, None),
    ("openai/gpt-5-mini", {"GEMINI_API_KEY": "x"}, "OPENAI_API_KEY"),
    ("gpt-5-mini", {}, "OPENAI_API_KEY"),
    ("claude-sonnet-4-5", {}, "ANTHROPIC_API_KEY"),
    ("x-ai/grok-4", {}, "XAI_API_KEY"),
    ("openrouter/google/gemini-2.5-flash", {"GEMINI_API_KEY": "x"}, "OPENROUTER_API_KEY"),
    ("offline/extractive", {}, None),
    ("ollama/llama3", {}, None),
    ("bedrock/anthropic.claude-3-haiku-20240307-v1:0", {}, None),
]


@pytest.mark.parametrize("model, environ, expected", MISSING)
def test_the_missing_variable_is_named(model, environ, expected):
    assert missing_key(model, environ=environ) == expected


def test_a_server_of_ones_own_needs_no_key():
    assert missing_key("openai/local", api_base="http://127.0.0.1:1/v1", environ={}) is None


def test_no_provider_is_both_with_and_without_a_key():
    assert not KEYLESS & KEY_VARIABLES.keys()


def test_a_name_that_is_none_is_a_set_up_error():
    with pytest.raises(SetupError):
        missing_key("")
