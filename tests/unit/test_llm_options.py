"""From options to LiteLLM's arguments; nothing in them may reach its switches."""

from __future__ import annotations

import pytest

from om_core.domain.errors import SetupError
from om_core.llm.options import NOT_SHOWN, call_arguments, prompt_messages
from om_core.ports import PromptMessage


def arguments(settings=None, options=None, *, phase="observe", provider="openai", most=None, failures=0):
    return call_arguments(settings or {}, options or {}, phase=phase, provider=provider, most=most, failures=failures)


@pytest.mark.parametrize(
    "phase, settings, expected",
    [
        ("observe", {}, 0.3),
        ("reflect", {}, 0.0),
        ("observe", {"temperature": 0}, 0),
        ("reflect", {"temperature": 1}, 1),
    ],
)
def test_each_phase_has_its_own_temperature_unless_one_is_set(phase, settings, expected):
    assert arguments(settings, phase=phase)["temperature"] == expected


@pytest.mark.report("E01")
@pytest.mark.parametrize(
    "phase, settings, failures, expected",
    [
        ("reflect", {}, 1, 0.2),
        ("observe", {}, 2, 0.7),
        ("observe", {}, 9, 1.0),
        ("extract", {"temperature": 1.5}, 3, 1.5),
    ],
)
def test_what_failed_before_is_asked_for_at_a_higher_temperature(phase, settings, failures, expected):
    assert arguments(settings, phase=phase, failures=failures)["temperature"] == pytest.approx(expected)


@pytest.mark.parametrize(
    "settings, most, expected",
    [
        ({}, 100, None),
        ({"max_output_tokens": 50}, 100, 50),
        ({"maxOutputTokens": 50}, None, 50),
        ({"max_output_tokens": 100_000}, 65_536, 65_536),
    ],
)
def test_the_output_limit_never_exceeds_the_models(settings, most, expected):
    assert arguments(settings, most=most).get("max_tokens") == expected


def test_a_setting_that_is_no_number_is_a_set_up_error_that_names_it():
    with pytest.raises(SetupError, match="temperature"):
        arguments({"temperature": "hot"})


@pytest.mark.parametrize(
    "provider, options, expected",
    [
        ("gemini", {"google": {"thinkingConfig": {"thinkingBudget": 215}}}, {"type": "enabled", "budget_tokens": 215}),
        (
            "anthropic",
            {"anthropic": {"thinking": {"type": "enabled", "budgetTokens": 9}}},
            {"type": "enabled", "budget_tokens": 9},
        ),
        ("anthropic", {"anthropic": {"thinking": {"type": "disabled"}}}, {"type": "disabled"}),
    ],
)
def test_a_thinking_budget_is_understood_in_both_spellings(provider, options, expected):
    assert arguments(options=options, provider=provider)["thinking"] == expected


def test_a_model_that_thinks_keeps_its_own_temperature_where_its_provider_insists():
    options = {"anthropic": {"thinking": {"budgetTokens": 9}}, "google": {"thinkingConfig": {"thinkingBudget": 9}}}
    assert "temperature" not in arguments(options=options, provider="anthropic")
    assert arguments(options=options, provider="gemini")["temperature"] == 0.3


def test_options_of_other_providers_are_ignored():
    options = {"google": {"thinkingConfig": {"thinkingBudget": 215}}, "openai": {"reasoningEffort": "low"}}
    assert arguments(options=options, provider="openai") == {"temperature": 0.3, "reasoning_effort": "low"}


SWITCHES = [
    "api_base",
    "base_url",
    "api_key",
    "callbacks",
    "fallbacks",
    "num_retries",
    "mock_response",
    "extra_headers",
]


@pytest.mark.parametrize("switch", SWITCHES)
def test_litellms_own_switches_cannot_be_set_through_options(switch):
    passed = arguments(options={"openai": {switch: "x"}})
    assert switch not in passed
    assert passed["extra_body"] == {switch: "x"}


@pytest.mark.parametrize("switch", SWITCHES)
def test_an_option_that_cannot_be_passed_is_a_set_up_error_that_names_it(switch):
    with pytest.raises(SetupError, match=rf"provider_options\.anthropic\.{switch}"):
        arguments(options={"anthropic": {switch: "x"}}, provider="anthropic")


def image(url):
    return {"type": "image_url", "image_url": {"url": url}}


HTTPS, HTTP, DATA = (
    image("https://example.org/a.png"),
    image("http://10.0.0.1/a.png"),
    image("data:image/png;base64,AA=="),
)
FILE = {"type": "file", "file": {"file_id": "https://example.org/a.pdf"}}


@pytest.mark.parametrize(
    "provider, shown, hidden", [("openai", [HTTPS, DATA, FILE], [HTTP]), ("gemini", [DATA], [HTTPS, HTTP, FILE])]
)
def test_an_address_reaches_only_providers_that_fetch_it_themselves(provider, shown, hidden):
    prompt = [PromptMessage(role="user", content=[*shown, *hidden])]
    [message] = prompt_messages(prompt, provider)
    assert message["content"] == shown + [{"type": "text", "text": NOT_SHOWN}] * len(hidden)
