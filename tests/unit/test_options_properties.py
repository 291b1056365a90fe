"""Whatever tree is accepted, its numbers fit together; and a policy survives being stored."""

import copy
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from om_core.domain.errors import PolicyError, shown
from om_core.options import policy_from_json, policy_to_json, resolve_policy
from om_core.options.schema import camel, leaves

amount = st.one_of(
    st.just(False),
    st.floats(0.01, 3, allow_nan=False),
    st.integers(-1, 200_000),
    st.sampled_from([0.5, 1, 1.2, 99.5, 100, 999, 1_000, "x"]),
)
ratio = st.one_of(st.just(False), st.floats(0.001, 1), st.integers(1_000, 100_000))
factor = st.one_of(st.floats(1, 120), st.integers(1_000, 300_000))
ttl = st.sampled_from([None, False, 0, 500, "auto", "5m", "1 hour"])
phase_model = st.sampled_from(["a/b", "default", ["a/b", "c/d"], {"up_to": {"1000": "a/b", "9000": "c/d"}}])
observation = st.fixed_dictionaries({}, optional={
    "message_tokens": st.integers(1, 200_000),
    "buffer_tokens": amount,
    "buffer_activation": ratio,
    "block_after": factor,
    "previous_observer_tokens": amount,
    "activate_after_idle": ttl,
    "continuation_hints": st.one_of(st.booleans(), st.fixed_dictionaries({}, optional={"current_task": st.booleans()})),
    "model": phase_model,
    "observe_attachments": st.sampled_from([True, "auto", ["image/*"], []]),
    "extract": st.sampled_from([[], [{"name": "Mood", "instructions": "How?", "schema": {"type": ["string", "null"]}}]]),
})  # fmt: skip
reflection = st.fixed_dictionaries({}, optional={
    "observation_tokens": st.integers(1, 200_000),
    "buffer_activation": ratio,
    "block_after": factor,
    "provider_options": st.dictionaries(st.text("ab", min_size=1), st.lists(st.one_of(st.integers(), st.none(), st.lists(st.text())))),
})  # fmt: skip
trees = st.fixed_dictionaries({}, optional={
    "observation": observation,
    "reflection": reflection,
    "scope": st.sampled_from(["thread", "resource"]),
    "retrieval": st.sampled_from([True, False, {"vector": True}]),
})  # fmt: skip
overrides = st.fixed_dictionaries({}, optional={
    "observation": st.fixed_dictionaries({}, optional={"message_tokens": st.integers(1, 300_000)}),
    "reflection": st.fixed_dictionaries({}, optional={"observation_tokens": st.integers(1, 300_000)}),
})  # fmt: skip


def resolved(options, **more):
    """The policy, or None when these options are refused."""
    try:
        return resolve_policy(options, **more)
    except PolicyError:
        return None


def in_camel_case(options):
    opaque = ("provider_options", "model", "extract")
    return {
        camel(key): in_camel_case(value) if isinstance(value, dict) and key not in opaque else value
        for key, value in options.items()
    }


@settings(max_examples=300, deadline=None)
@given(options=trees, own=overrides)
def test_accepted_numbers_fit_together(options, own):
    policy = resolved(options, overrides=own)
    if policy is None:
        return
    seen, kept = policy.observation, policy.reflection
    if policy.buffering:
        assert 0 < seen.buffer_tokens < seen.message_tokens <= seen.block_after_tokens
    else:
        assert seen.block_after_tokens == seen.message_tokens
        assert kept.buffer_at_tokens is None
    assert 0 <= seen.retention_tokens < seen.message_tokens
    assert kept.buffer_at_tokens is None or 0 < kept.buffer_at_tokens <= kept.observation_tokens
    assert kept.observation_tokens <= kept.block_after_tokens
    assert seen.previous_observer_tokens is None or seen.previous_observer_tokens >= 0
    numbers = (
        seen.message_tokens,
        seen.retention_tokens,
        seen.block_after_tokens,
        kept.observation_tokens,
        kept.block_after_tokens,
    )
    assert all(type(number) is int for number in numbers)


@settings(max_examples=150, deadline=None)
@given(options=trees)
def test_resolving_is_pure(options):
    before = copy.deepcopy(options)
    assert resolved(options) == resolved(options)
    assert options == before


@settings(max_examples=150, deadline=None)
@given(options=trees)
def test_camel_case_means_the_same_as_snake_case(options):
    assert resolved(in_camel_case(options)) == resolved(options)


@settings(max_examples=150, deadline=None)
@given(options=trees, own=overrides)
def test_a_stored_policy_comes_back_equal(options, own):
    policy = resolved(options, overrides=own)
    if policy is not None:
        assert policy_from_json(json.loads(json.dumps(policy_to_json(policy), allow_nan=False))) == policy


@pytest.mark.parametrize("tokens", [1, 50, 99, 100, 6_001, 29_999, 10**6])
def test_an_override_never_makes_accepted_options_fail(tokens):
    own = {"observation": {"message_tokens": tokens}, "reflection": {"observation_tokens": tokens}}
    options = {"observation": {"block_after": 30_000}, "reflection": {"block_after": 40_000}}
    policy = resolve_policy(options, overrides=own)
    assert policy.reflection.observation_tokens == tokens
    assert policy.observation.message_tokens == (tokens if tokens > 6_000 else 30_000)


anything = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(), st.floats(), st.text(), st.binary(), st.just(10**400), st.just(print)
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.one_of(st.text(), st.integers()), inner, max_size=3)
    ),
    max_leaves=5,
)


@settings(max_examples=400, deadline=None)
@given(
    path=st.sampled_from([path for path, _ in leaves()]),
    part=st.sampled_from(["", ".model", ".up_to", ".temperature"]),
    value=anything,
)
def test_any_value_of_any_option_is_accepted_or_refused_by_name(path, part, value):
    for name in reversed(f"{path}{part}".split(".")):
        value = {name: value}
    try:
        policy = resolve_policy(value)
    except PolicyError as error:
        assert error.option.startswith(path)  # noqa: PT017  # both outcomes are right
        assert str(error).startswith(f"{error.option} = {shown(error.value)} is not allowed")  # noqa: PT017  # as above
    else:
        assert policy_from_json(json.loads(json.dumps(policy_to_json(policy), allow_nan=False))) == policy


@pytest.mark.report("M10")
def test_fields_of_newer_code_are_ignored_and_missing_ones_get_their_default():
    stored = policy_to_json(resolve_policy({"observation": {"message_tokens": 9_000}}))
    stored["invented"] = 1
    stored["observation"]["model"]["invented"] = {"x": 1}
    del stored["retrieval"], stored["observation"]["thread_title"]
    assert policy_from_json(stored) == resolve_policy({"observation": {"message_tokens": 9_000}})


@pytest.mark.parametrize("stored", [[], {"observation": 3}, {"observation": {"extract": [{"slug": "a"}]}}])
def test_a_stored_policy_of_another_shape_is_refused(stored):
    with pytest.raises(PolicyError, match="as policy_to_json writes it"):
        policy_from_json(stored)
