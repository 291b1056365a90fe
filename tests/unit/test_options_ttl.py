"""Times as users write them, and cache lifetimes of providers (behaviour 1.5)."""

import pytest

from om_core.domain.errors import PolicyError, shown
from om_core.domain.ttl import LONGEST_S, auto_ttl_s, parse_ttl

MINUTE, HOUR = 60.0, 3_600.0


@pytest.mark.conforms("1.5")
@pytest.mark.parametrize(("value", "seconds"), [
    (None, None), (False, None), ("auto", "auto"),
    (0, 0.0), (1_500, 1.5), (0.5, 0.0005), ("0s", 0.0),
    *((f"250{unit}", 0.25) for unit in ("ms", "msec", "msecs", "millisecond", "milliseconds")),
    *((f"3 {unit}", 3.0) for unit in ("s", "sec", "secs", "second", "seconds")),
    *((f"  5{unit} ", 300.0) for unit in ("m", "min", "mins", "minute", "minutes")),
    *((f"1.5  {unit}", 5_400.0) for unit in ("h", "hr", "hrs", "hour", "hours")),
    ("5M", 300.0), ("2 Hours", 7_200.0),
    (10**300, LONGEST_S), (10**400, LONGEST_S), ("99999999999h", LONGEST_S),
])  # fmt: skip
def test_a_time_is_read_in_every_form(value, seconds):
    assert parse_ttl(value) == seconds


@pytest.mark.conforms("1.5")
@pytest.mark.parametrize("value", [
    "Auto", " auto ", "", "5", "m", "5d", "2 days", "1w", "-5m", "+5m", "5m 3s", "1e3s", ".5s", "5.s", "٥m", "5 \u017f",
    -1, -(10**400), float("nan"), float("inf"), True, [], {}, b"5m", "9" * 400 + "h",
])  # fmt: skip
def test_any_other_time_is_refused_with_its_option(value):
    with pytest.raises(PolicyError) as caught:
        parse_ttl(value, "observation.activate_after_idle")
    assert str(caught.value).startswith(
        f"observation.activate_after_idle = {shown(value)} is not allowed: milliseconds"
    )


@pytest.mark.conforms("1.5")
@pytest.mark.parametrize(("model", "seconds"), [
    ("openai/gpt-4o", 5 * MINUTE), ("openai/gpt-4", 5 * MINUTE), ("openai/gpt-41-anything", 5 * MINUTE),
    ("openai/gpt-5", 5 * MINUTE), ("openai/gpt-5-mini", 5 * MINUTE),
    ("openai/gpt-5.1", 5 * MINUTE), ("openai/gpt-5.4-mini", 5 * MINUTE),
    ("openai/gpt-5.5", HOUR), ("openai/gpt-5.1x", HOUR), ("openai/gpt-50", HOUR), ("openai/gpt-6", HOUR), ("openai/o3", HOUR),
    ("OpenAI.chat/gpt-4o", 5 * MINUTE), ("azure-openai/gpt-6", HOUR), ("azure/gpt-6", HOUR),
    ("google/gemini-2.5-flash", 24 * HOUR), ("gemini/x", 24 * HOUR), ("vertex_ai/gemini-2.5-pro", 24 * HOUR),
    ("deepseek/deepseek-chat", HOUR), ("groq/llama", 2 * HOUR),
    ("anthropic/claude-sonnet-4", 5 * MINUTE), ("xai/grok-4", 5 * MINUTE), ("grok/4", 5 * MINUTE),
    ("openrouter/openai/gpt-6", 5 * MINUTE), ("mistral/large", 5 * MINUTE), ("", 5 * MINUTE), (None, 5 * MINUTE),
    ("gpt-4o", 5 * MINUTE), ("gpt-6", HOUR), ("o3-mini", HOUR), ("gemini-2.5-pro", 24 * HOUR), ("claude-opus-4", 5 * MINUTE),
])  # fmt: skip
def test_a_provider_keeps_its_cache_for_its_time(model, seconds):
    assert auto_ttl_s(model) == seconds


@pytest.mark.conforms("1.5")
@pytest.mark.parametrize(("options", "seconds"), [
    ({"openai": {"promptCacheRetention": "24h"}}, HOUR),
    ({"openai": {"prompt_cache_retention": "24h"}}, HOUR),
    ({"openai": {"promptCacheRetention": "in_memory"}}, 5 * MINUTE),
    ({"openai": {"promptCacheRetention": ["?"]}}, 5 * MINUTE),
    ({"openai": None}, 5 * MINUTE),
    ({}, 5 * MINUTE),
])  # fmt: skip
def test_openai_follows_the_retention_that_the_request_asks_for(options, seconds):
    assert auto_ttl_s("openai/gpt-4o", options) == seconds


def test_in_memory_retention_shortens_a_newer_openai_model():
    assert auto_ttl_s("openai/gpt-6", {"openai": {"promptCacheRetention": "in_memory"}}) == 5 * MINUTE


def test_the_retention_option_concerns_openai_only():
    assert auto_ttl_s("anthropic/claude", {"openai": {"promptCacheRetention": "24h"}}) == 5 * MINUTE
