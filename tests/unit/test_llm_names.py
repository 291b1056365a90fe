"""Model names in the reference's and in other common spellings."""

from __future__ import annotations

import pytest

from om_core.domain.errors import SetupError
from om_core.llm.names import PROVIDER_ALIASES, is_offline, provider_of, to_litellm

SPELLINGS = [
    ("google/gemini-2.5-flash", "gemini/gemini-2.5-flash"),
    ("Google/gemini-2.5-flash", "gemini/gemini-2.5-flash"),
    ("gemini/gemini-2.5-flash", "gemini/gemini-2.5-flash"),
    ("vertex/gemini-2.5-pro", "vertex_ai/gemini-2.5-pro"),
    ("x-ai/grok-4", "xai/grok-4"),
    ("mistralai/mistral-large-latest", "mistral/mistral-large-latest"),
    ("together/meta-llama/Llama-3.3-70B", "together_ai/meta-llama/Llama-3.3-70B"),
    ("openrouter/google/gemini-2.5-flash", "openrouter/google/gemini-2.5-flash"),
    ("openai/gpt-5-mini", "openai/gpt-5-mini"),
    ("anthropic/claude-sonnet-4-5", "anthropic/claude-sonnet-4-5"),
    ("my_provider/some-model:q4", "my_provider/some-model:q4"),
    ("gpt-5-mini", "openai/gpt-5-mini"),
    ("o3-mini", "openai/o3-mini"),
    ("claude-haiku-4-5", "anthropic/claude-haiku-4-5"),
    ("gemini-2.5-flash", "gemini/gemini-2.5-flash"),
    (" openai/gpt-5 ", "openai/gpt-5"),
    ("offline/extractive", "offline/extractive"),
]


@pytest.mark.report("K09")
@pytest.mark.parametrize("name, expected", SPELLINGS)
def test_a_name_becomes_provider_and_model_in_litellms_spelling(name, expected):
    assert to_litellm(name) == expected
    assert provider_of(name) == expected.partition("/")[0]


@pytest.mark.parametrize("name, _", SPELLINGS)
def test_translating_twice_changes_nothing_more(name, _):
    assert to_litellm(to_litellm(name)) == to_litellm(name)


def test_no_alias_leads_to_another_alias():
    assert not set(PROVIDER_ALIASES.values()) & set(PROVIDER_ALIASES)


@pytest.mark.parametrize(
    "name",
    ["", "   ", "/", "openai/", "/gpt-5", "openai//", "some model", "openai/gpt 5", "llama", "a\nb/c", "x" * 300],
)
def test_what_is_no_name_is_refused_with_an_example(name):
    with pytest.raises(SetupError, match=r"google/gemini-2\.5-flash") as caught:
        to_litellm(name)
    assert len(str(caught.value)) < 300


def test_only_the_built_in_model_is_offline():
    assert is_offline("offline/extractive")
    assert not is_offline("openai/offline")
