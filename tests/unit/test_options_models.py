"""Model resolution (behaviour 1.4): precedence, forms, fallbacks, models by input size, default settings."""

import pytest

from om_core.domain.errors import GiveUpError, PolicyError
from om_core.domain.policy import DEFAULT_MODEL
from om_core.options import ModelByInputTokens, resolve_policy

GOOGLE = {"google": {"thinkingConfig": {"thinkingBudget": 215}}}


def names(options, **more):
    policy = resolve_policy(options, **more)
    return policy.observation.model.name, policy.reflection.model.name


@pytest.mark.conforms("1.4")
@pytest.mark.parametrize(("options", "observer", "reflector"), [
    ({}, DEFAULT_MODEL, DEFAULT_MODEL),
    ({"model": "a/top"}, "a/top", "a/top"),
    ({"observation": {"model": "a/o"}}, "a/o", "a/o"),
    ({"reflection": {"model": "a/r"}}, "a/r", "a/r"),
    ({"observation": {"model": "a/o"}, "reflection": {"model": "a/r"}}, "a/o", "a/r"),
    ({"model": "default"}, DEFAULT_MODEL, DEFAULT_MODEL),
    ({"observation": {"model": "default"}, "reflection": {"model": "a/r"}}, DEFAULT_MODEL, "a/r"),
])  # fmt: skip
def test_top_level_then_own_then_the_other_phase_then_default(options, observer, reflector):
    assert names(options) == (observer, reflector)


def test_the_callers_default_model_serves_phases_that_name_none():
    assert names({}, default_model="a/d") == ("a/d", "a/d")
    assert names({"model": "default"}, default_model="a/d") == ("a/d", "a/d")
    assert names({"model": "a/top"}, default_model="a/d") == ("a/top", "a/top")


@pytest.mark.parametrize("phase", ["observation", "reflection"])
def test_a_top_level_model_beside_one_of_a_phase_is_refused(phase):
    with pytest.raises(PolicyError, match=rf"{phase}\.model = 'a/p' .*not together with model = 'a/top'"):
        resolve_policy({"model": "a/top", phase: {"model": "a/p"}})


@pytest.mark.report("K09")
@pytest.mark.parametrize("value", [
    ["a/one", "b/two", "a/one"],
    [{"model": "a/one"}, {"model": "b/two"}],
    [{"model": "off/x", "enabled": False}, {"model": "a/one", "enabled": True}, "b/two"],
])  # fmt: skip
def test_a_list_is_a_model_and_its_fallbacks(value):
    model = resolve_policy({"model": value}).observation.model
    assert (model.name, model.fallbacks) == ("a/one", ("b/two",))


LIMITS: dict = {"up_to": {"128000": "a/large", 8_000: "a/small"}}


@pytest.mark.conforms("1.4")
@pytest.mark.report("K09")
@pytest.mark.parametrize("value", [LIMITS, {"upTo": LIMITS["up_to"]}, ModelByInputTokens(LIMITS["up_to"])])
def test_a_model_by_input_size_takes_the_first_limit_that_is_not_below(value):
    model = resolve_policy({"model": value}).reflection.model
    assert model.by_input_tokens == ((8_000, "a/small"), (128_000, "a/large"))
    assert [model.model_for(size) for size in (0, 8_000, 8_001, 128_000)] == [
        "a/small",
        "a/small",
        "a/large",
        "a/large",
    ]


@pytest.mark.conforms("1.4")
def test_an_input_above_the_largest_limit_is_refused_with_both_numbers():
    model = resolve_policy({"model": LIMITS}).observation.model
    with pytest.raises(GiveUpError, match=r"128001.*128000"):
        model.model_for(128_001)


@pytest.mark.report("K09")
def test_the_largest_limit_bounds_the_window_so_that_inputs_are_cut_instead():
    assert resolve_policy({"model": LIMITS}).observation.model.window_tokens == 128_000
    smaller = {"observation": {"model": LIMITS, "window_tokens": 64_000}}
    assert resolve_policy(smaller).observation.model.window_tokens == 64_000


def test_a_plain_model_serves_every_size():
    assert resolve_policy({"model": "a/b"}).observation.model.model_for(10**9) == "a/b"


@pytest.mark.parametrize(("value", "option"), [
    ("", "model"),
    ("a b", "model"),
    (3, "model"),
    (False, "model"),
    (lambda context: "a/b", "model"),
    ([], "model"),
    ([{"model": "a/b", "enabled": False}], "model"),
    ([{"name": "a/b"}], "model"),
    ([{"model": "a/b", "maxRetries": 3}], "model"),
    ({}, "model"),
    ({"up_to": {}}, "model.up_to"),
    ({"up_to": {0: "a/b"}}, "model.up_to"),
    ({"up_to": {1.5: "a/b"}}, "model.up_to"),
    ({"up_to": {"ten": "a/b"}}, "model.up_to"),
    ({"up_to": {float("inf"): "a/b"}}, "model.up_to"),
    ({"up_to": {1000: "a/b", "1000": "c/d"}}, "model.up_to"),
    ({"up_to": {1000: 5}}, "model.up_to.1000"),
    ({"up_to": {1000: "a/b"}, "else": "c/d"}, "model"),
])  # fmt: skip
def test_what_is_no_model_is_refused_by_name(value, option):
    with pytest.raises(PolicyError) as caught:
        resolve_policy({"model": value})
    assert caught.value.option == option


@pytest.mark.conforms("1.4")
@pytest.mark.parametrize(("options", "settings"), [
    ({}, {"max_output_tokens": 100_000}),
    ({"model": "default"}, {"max_output_tokens": 100_000}),
    ({"model": "a/b"}, {}),
    ({"model": LIMITS}, {"max_output_tokens": 100_000}),
])  # fmt: skip
def test_default_settings_depend_on_how_the_model_was_chosen(options, settings):
    assert resolve_policy(options).observation.model.settings == settings


def test_another_default_model_gets_no_output_limit_made_for_the_usual_one():
    assert resolve_policy({}, default_model="a/d").reflection.model.settings == {}


def test_provider_options_replace_the_default_and_are_never_merged():
    assert resolve_policy({}).observation.model.provider_options == GOOGLE
    own = {"observation": {"provider_options": {"openai": {"effort": "low"}}}}
    assert resolve_policy(own).observation.model.provider_options == {"openai": {"effort": "low"}}
    assert resolve_policy(own).reflection.model.provider_options == {
        "google": {"thinkingConfig": {"thinkingBudget": 1024}}
    }
