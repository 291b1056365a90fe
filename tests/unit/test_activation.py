"""Whether and how much to activate (DESIGN 6.3, behaviour 2.5)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from om_core.domain.activation import (
    choose_prefix,
    decide_activation,
    model_changed,
    pins_after_activation,
    reflection_fits,
)
from om_core.domain.message import OpenCall
from om_core.domain.policy import MemoryPolicy, ObservationPolicy, ReflectionPolicy
from om_core.domain.thread import ThreadState

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


def policy(threshold=30_000, floor=6_000, block=None, *, on_change=False):
    return MemoryPolicy(
        observation=ObservationPolicy(
            message_tokens=threshold,
            retention_tokens=floor,
            block_after_tokens=round(threshold * 1.2) if block is None else block,
            activate_on_provider_change=on_change,
        )
    )


def thread(pending=0, *, model=None, idle_s=0.0):
    return ThreadState(
        id=1,
        tenant_id="t",
        external_id="x",
        resource_id="r",
        memory_id=1,
        pending_tokens=pending,
        last_model=model,
        last_activity_at=NOW - timedelta(seconds=idle_s),
    )


@pytest.mark.report("B01", "B02")
@pytest.mark.parametrize(
    ("name", "threshold", "floor", "sizes", "pending", "activated"),
    [
        ("nearest below the target, when nothing reaches it", 30_000, 9_000, [5_000] * 3, 25_000, 15_000),
        ("overshoots a little rather than keep too much", 30_000, 9_000, [8_000, 9_000], 25_000, 17_000),
        ("never takes a chunk that leaves nothing", 30_000, 9_000, [3_000, 25_000], 25_000, 3_000),
        ("an absolute floor", 30_000, 5_000, [4_000] * 3, 15_000, 12_000),
        ("no floor: everything", 30_000, 0, [4_000, 6_000], 10_000, 10_000),
        ("an overshoot above 95 % of the floor is refused", 1_000, 500, [600, 600], 1_200, 600),
        # DESIGN 6.3 overrides the reference, which activates its first chunk here and leaves 700 of at least 1,000:
        ("no fallback to the first chunk", 1_000, 1_000, [700, 700], 1_400, 0),
        (
            "a huge chunk behind small ones stays, at 1k + 1k + 18k and 5k to go",
            30_000,
            14_500,
            [1_000, 1_000, 18_000],
            19_500,
            2_000,
        ),
        ("one chunk over nearly everything is refused", 30_000, 6_000, [29_500], 30_000, 0),
        ("no chunks", 30_000, 6_000, [], 40_000, 0),
    ],
)
def test_the_prefix_keeps_the_retention_floor(name, threshold, floor, sizes, pending, activated):
    chosen = choose_prefix(sizes, pending, policy(threshold, floor), "threshold")
    assert sum(sizes[:chosen]) == activated, name


def test_from_block_after_on_the_overshoot_guard_gives_way_but_the_least_tail_does_not():
    below = choose_prefix([59_000], 60_500, policy(50_000, 40_000, block=61_000), "threshold")
    at = choose_prefix([59_000], 60_500, policy(50_000, 40_000, block=60_500), "threshold")
    too_much = choose_prefix([59_600], 60_500, policy(50_000, 40_000, block=60_500), "threshold")
    assert (below, at, too_much) == (0, 1, 0)


@pytest.mark.conforms("11.46")
@pytest.mark.parametrize(
    ("reason", "chunks"), [("threshold", 0), ("ttl", 2), ("provider_change", 2), ("trim", 2), ("manual", 3)]
)
def test_when_the_cache_is_lost_anyway_every_ready_chunk_goes_down_to_the_least_tail(reason, chunks):
    assert choose_prefix([2_000, 2_000, 500], 5_200, policy(), reason) == chunks


@pytest.mark.report("B01")
@given(
    sizes=st.lists(st.integers(0, 20_000), max_size=12),
    tail=st.integers(0, 40_000),
    floor=st.integers(0, 29_000),
    reason=st.sampled_from(["threshold", "ttl", "provider_change", "trim"]),
)
def test_no_activation_leaves_less_than_the_least_tail_and_each_is_final(sizes, tail, floor, reason):
    pending = sum(sizes) + tail
    rules = policy(floor=floor)
    chosen = choose_prefix(sizes, pending, rules, reason)
    left = pending - sum(sizes[:chosen])
    assert chosen == 0 or left >= min(1_000, floor)
    if reason != "threshold":
        longer = [total for total in accumulate(sizes) if pending - total >= min(1_000, floor)]
        assert chosen >= len([size for size in longer if size]), "a longer prefix would have been allowed"
    elif left >= 30_000:
        assert choose_prefix(sizes[chosen:], left, rules, reason) == 0, "still over, and more could have gone"


@pytest.mark.report("B02")
@given(sizes=st.lists(st.integers(1, 20_000), max_size=12), tail=st.integers(0, 40_000), floor=st.integers(0, 29_000))
def test_below_block_after_the_overshoot_stays_within_95_percent_of_the_floor(sizes, tail, floor):
    pending = sum(sizes) + tail
    chosen = choose_prefix(sizes, pending, policy(floor=floor, block=10**9), "threshold")
    assert sum(sizes[:chosen]) - max(0, pending - floor) <= 0.95 * floor


@pytest.mark.parametrize(
    ("name", "pending", "idle_s", "ttl_s", "last", "current", "ready", "reason"),
    [
        ("nothing is ready", 90_000, 900, 1, "openai/a", "openai/b", False, None),
        ("a change of model comes first", 90_000, 900, 1, "openai/a", "openai/b", True, "provider_change"),
        ("then the idle time", 90_000, 900, 900, "openai/a", "openai/a", True, "ttl"),
        ("then the threshold", 30_000, 899, 900, "openai/a", "openai/a", True, "threshold"),
        ("a token below the threshold", 29_999, 899, 900, "openai/a", "openai/a", True, None),
        ("an idle time of 0 is always over", 1, 0, 0, None, None, True, "ttl"),
        ("no idle time is never over", 1, 10**6, None, None, None, True, None),
        ("an unknown model is no change", 1, 0, None, "openai/a", None, True, None),
        ("an unknown last model is no change", 1, 0, None, None, "openai/a", True, None),
    ],
)
def test_the_reasons_have_an_order(name, pending, idle_s, ttl_s, last, current, ready, reason):
    state = thread(pending, model=last, idle_s=idle_s)
    decided = decide_activation(state, policy(on_change=True), NOW, model=current, ttl_s=ttl_s, ready=ready)
    assert decided == reason, name


def test_a_change_of_model_is_no_reason_unless_the_option_is_on():
    state = thread(1, model="openai/a")
    assert decide_activation(state, policy(), NOW, model="openai/b", ttl_s=None, ready=True) is None


@pytest.mark.parametrize(
    ("last", "current", "changed"),
    [
        ("openai/gpt-5", "openai/gpt-5", False),
        ("openai.responses/gpt-5", "openai/gpt-5", False),
        ("openai/gpt-5", "gpt-5", False),
        ("openrouter/openai/gpt-5", "openrouter/openai/gpt-5", False),
        ("openai/gpt-5", "openai/gpt-5-mini", True),
        ("openai/gpt-5", "azure/gpt-5", True),
        ("", "openai/gpt-5", False),
    ],
)
def test_models_are_compared_by_name_and_by_provider_where_both_are_known(last, current, changed):
    assert model_changed(last, current) is changed
    assert model_changed(current, last) is changed


@pytest.mark.report("B05")
def test_the_question_and_open_calls_below_the_cursor_are_pinned():
    calls = [OpenCall(call_id=str(seq), seq=seq, name="f", at=NOW) for seq in (7, 3, 3, 12)]
    assert pins_after_activation(question_seq=5, open_calls=calls, observed_seq=10) == (3, 5, 7)
    assert pins_after_activation(question_seq=11, open_calls=(), observed_seq=10) == ()
    assert pins_after_activation(question_seq=0, open_calls=(), observed_seq=10) == ()


@pytest.mark.conforms("5.4", "11.47")
@pytest.mark.parametrize(
    ("reflection_tokens", "later_tokens", "fits"),
    [
        (200, 400, True),
        (200, 199, False),  # fewer new notes than the reflection itself has
        (200, 200, True),
        (100, 274, False),  # less than 0.75 x (1000 - 500) would be left
        (100, 275, True),
    ],
)
def test_a_reflection_takes_effect_early_where_enough_is_left(reflection_tokens, later_tokens, fits):
    rules = ReflectionPolicy(observation_tokens=1000, buffer_at_tokens=500)
    assert reflection_fits(reflection_tokens, later_tokens, rules) is fits
