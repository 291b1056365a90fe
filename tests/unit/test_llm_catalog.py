"""Windows and prices without LiteLLM, and the import time that saves."""

from __future__ import annotations

import subprocess
import sys

import pytest

from om_core.domain.policy import DEFAULT_MODEL
from om_core.llm.catalog import UNKNOWN, ModelPrice, facts_of

QUESTION = """
import sys
import om_core.llm.registry as registry
model = registry.ModelRegistry(count_tokens=len)
assert model.window_tokens("google/gemini-2.5-flash") > 500_000
assert model.price_of("google/gemini-2.5-flash") is not None
model.missing_key("google/gemini-2.5-flash")
print(sorted(name for name in ("litellm", "openai", "aiohttp", "httpx") if name in sys.modules))
"""


def test_the_registry_answers_about_windows_prices_and_keys_without_importing_litellm():
    done = subprocess.run([sys.executable, "-c", QUESTION], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "[]"


def test_the_default_model_has_a_window_an_output_limit_and_a_price():
    facts = facts_of(DEFAULT_MODEL)
    assert facts.window_tokens
    assert facts.output_tokens
    assert facts.price is not None
    assert 0 < facts.price.input < facts.price.output < 1e-3


@pytest.mark.parametrize("name", ["openai/a-model-of-my-own", "nonsense", "", "offline/extractive"])
def test_what_the_table_does_not_hold_is_unknown(name):
    assert facts_of(name) == UNKNOWN


def test_cached_input_is_charged_at_its_own_price():
    price = ModelPrice(input=4.0, output=10.0, cached=1.0)
    assert price.cost_usd(input_tokens=10, cached_tokens=6, output_tokens=2) == 4 * 4 + 6 * 1 + 2 * 10
    assert ModelPrice(input=4.0, output=10.0).cost_usd(input_tokens=10, cached_tokens=6, output_tokens=0) == 40
