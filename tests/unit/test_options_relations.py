"""Options that depend on each other: what excludes what, inheritance, overrides, extractors (behaviour 1.4 to 1.7)."""

import copy
from dataclasses import dataclass

import pytest

from om_core.domain.errors import PolicyError
from om_core.domain.policy import ExtractorSpec, MemoryPolicy
from om_core.options import resolve_policy
from om_core.options.schema import OPTIONS, Leaf
from om_core.options.values import js_round
from tests.unit.test_options_resolve import tree


@pytest.mark.parametrize("phase", ["observation", "reflection"])
def test_block_after_needs_buffering(phase):
    with pytest.raises(PolicyError, match=rf"{phase}\.block_after = 1\.5 .*observation\.buffer_tokens"):
        resolve_policy(tree(f"{phase}.block_after", 1.5, observation__buffer_tokens=False))


def test_reflection_block_after_needs_its_buffer_activation():
    with pytest.raises(PolicyError, match=r"reflection\.block_after = 1\.5 .*reflection\.buffer_activation"):
        resolve_policy(tree("reflection.block_after", 1.5, reflection__buffer_activation=False))


@pytest.mark.parametrize("option", ["observation.buffer_activation", "reflection.buffer_activation"])
def test_activation_is_checked_even_while_buffering_is_off(option):
    with pytest.raises(PolicyError, match=option):
        resolve_policy(tree(option, 2, observation__buffer_tokens=False))
    assert not resolve_policy(tree(option, 0.5, observation__buffer_tokens=False)).buffering


@pytest.mark.conforms("1.6")
def test_resource_scope_buffers_like_thread_scope():
    policy = resolve_policy(
        tree("scope", "resource", observation__buffer_tokens=0.1, reflection__buffer_activation=0.5)
    )
    assert policy.buffering
    assert policy.observation.buffer_tokens == 3_000


@pytest.mark.conforms("1.6")
def test_a_shared_budget_works_with_buffering_off():
    assert resolve_policy(tree("share_token_budget", True, observation__buffer_tokens=False)).share_token_budget


@pytest.mark.conforms("1.6")
def test_a_shared_budget_beside_the_default_buffering_says_that_it_is_a_default():
    with pytest.raises(PolicyError, match=r"share_token_budget = True .*buffering is on by default"):
        resolve_policy({"share_token_budget": True})


@pytest.mark.conforms("1.6")
@pytest.mark.parametrize(
    "option", ["observation.buffer_tokens", "observation.buffer_activation", "reflection.buffer_activation"]
)
def test_a_shared_budget_beside_explicit_buffering_names_what_to_remove(option):
    with pytest.raises(PolicyError, match=rf"share_token_budget = True .*remove {option}"):
        resolve_policy(tree(option, 0.5, share_token_budget=True))


class TestInheritance:
    def test_observation_overrides_the_top_level_with_false(self):
        options = tree(
            "observation.activate_after_idle",
            False,
            activate_after_idle="5m",
            activate_on_provider_change=True,
            observation__activate_on_provider_change=False,
        )
        observation = resolve_policy(options).observation
        assert observation.activate_after_idle_s is None
        assert not observation.activate_on_provider_change

    def test_only_the_effective_idle_time_is_parsed(self):
        options = tree("observation.activate_after_idle", "1m", activate_after_idle="nonsense")
        assert resolve_policy(options).observation.activate_after_idle_s == 60.0


class TestOverrides:
    @pytest.mark.conforms("1.7")
    def test_thresholds_of_one_thread_scale_ratios_and_factors_but_not_the_buffer_interval(self):
        policy = resolve_policy(
            {}, overrides={"observation": {"messageTokens": 10_000}, "reflection": {"observationTokens": 8_000}}
        )
        assert (policy.observation.message_tokens, policy.observation.buffer_tokens) == (10_000, 6_000)
        assert (policy.observation.retention_tokens, policy.observation.block_after_tokens) == (2_000, 12_000)
        assert (policy.reflection.observation_tokens, policy.reflection.buffer_at_tokens) == (8_000, 4_000)
        assert policy.reflection.block_after_tokens == 9_600

    @pytest.mark.conforms("1.7")
    @pytest.mark.parametrize(("options", "override"), [
        ({}, 6_000),
        ({"observation": {"buffer_tokens": 100, "buffer_activation": 5_000}}, 5_000),
    ])  # fmt: skip
    def test_a_message_override_at_or_below_interval_or_floor_is_ignored(self, options, override):
        policy = resolve_policy(options, overrides={"observation": {"message_tokens": override}})
        assert policy == resolve_policy(options)
        more = resolve_policy(options, overrides={"observation": {"message_tokens": override + 1}})
        assert more.observation.message_tokens == override + 1

    def test_an_absolute_blocking_point_is_raised_to_the_override(self):
        policy = resolve_policy(
            tree("observation.block_after", 31_000), overrides={"observation": {"message_tokens": 50_000}}
        )
        assert policy.observation.block_after_tokens == 50_000

    def test_with_buffering_off_the_override_is_the_blocking_point(self):
        policy = resolve_policy(
            tree("observation.buffer_tokens", False), overrides={"observation": {"message_tokens": 100}}
        )
        assert policy.observation.message_tokens == policy.observation.block_after_tokens == 100

    @pytest.mark.parametrize(("overrides", "option"), [
        ({"observation": {"message_tokens": 0}}, "config.observation.message_tokens"),
        ({"reflection": {"observation_tokens": "9"}}, "config.reflection.observation_tokens"),
        ({"observation": {"buffer_tokens": 5}}, "config.observation.buffer_tokens"),
        ({"scope": "thread"}, "config.scope"),
        ([], "config"),
    ])  # fmt: skip
    def test_a_wrong_override_names_its_field(self, overrides, option):
        with pytest.raises(PolicyError) as caught:
            resolve_policy({}, overrides=overrides)
        assert caught.value.option == option


class TestExtract:
    def test_an_extractor_becomes_data_with_its_slug_and_path(self):
        given = [{"name": 'User\'s "Mood"!', "instructions": "How do they feel?"}]
        (spec,) = resolve_policy(tree("observation.extract", given)).observation.extract
        assert spec == ExtractorSpec(
            slug="users-mood",
            name='User\'s "Mood"!',
            instructions="How do they feel?",
            metadata_key_path="extracted.users-mood",
        )

    def test_a_dataclass_is_accepted_like_a_table(self):
        @dataclass
        class Extractor:
            name: str
            instructions: str
            schema: dict | None = None

        (spec,) = resolve_policy(tree("reflection.extract", [Extractor("Plan", "The plan")])).reflection.extract
        assert spec.slug == "plan"

    def test_two_extractors_with_one_slug_are_refused(self):
        given = [{"name": "A b", "instructions": "x"}, {"name": "a-b", "instructions": "y"}]
        with pytest.raises(PolicyError, match=r"observation\.extract\.1\.name = 'a-b' .*a-b is taken"):
            resolve_policy(tree("observation.extract", given))


def test_hooks_are_checked_and_left_to_the_caller():
    assert resolve_policy({"hooks": {"onObservationStart": print}}) == MemoryPolicy()


def test_resolving_neither_changes_nor_keeps_what_it_is_given():
    options = {"observation": {"providerOptions": {"openai": {"tags": ["a"]}}}}
    before = copy.deepcopy(options)
    policy = resolve_policy(options)
    assert options == before
    options["observation"]["providerOptions"]["openai"]["tags"].append("b")
    assert policy.observation.model.provider_options == {"openai": {"tags": ["a"]}}


@pytest.mark.parametrize(
    ("value", "rounded"),
    [(0.5, 1), (1.5, 2), (2.5, 3), (2.4999, 2), (-0.5, 0), (0.49999999999999994, 0), (43332.9, 43333)],
)
def test_rounding_takes_halves_up(value, rounded):
    assert js_round(value) == rounded


def test_the_reference_vector_of_block_after():
    assert (
        resolve_policy(
            tree("observation.block_after", 1.3, observation__message_tokens=33_333)
        ).observation.block_after_tokens
        == 43_333
    )


def test_every_option_of_the_tree_is_a_leaf_or_a_table_of_leaves():
    assert all(
        isinstance(node, Leaf) or all(isinstance(inner, Leaf) for inner in node.values()) for node in OPTIONS.values()
    )
