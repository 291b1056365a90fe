"""The ladder of a reflection, and which whole chunks it condenses (DESIGN 6.8)."""

from __future__ import annotations

import pytest

from om_core.domain.policy import ReflectionPolicy
from om_core.domain.reflecting import choose_candidate, is_enough, is_progress, ladder, slice_length, target_tokens

RULES = ReflectionPolicy(observation_tokens=1000, buffer_at_tokens=500, block_after_tokens=1200)
NO_BUFFER = ReflectionPolicy(observation_tokens=1000, buffer_at_tokens=None, block_after_tokens=1000)


@pytest.mark.report("F06")
@pytest.mark.conforms("5.1")
@pytest.mark.parametrize(
    ("model", "manual", "levels"),
    [
        ("openai/gpt-5-mini", False, [1, 2, 3, 4]),
        ("offline/extractive", False, [1, 2, 3, 4]),
        ("google/gemini-2.5-flash", False, [2, 3, 4]),
        ("openrouter/google/gemini-2.5-flash-lite", False, [2, 3, 4]),
        ("google/gemini-2.5-pro", False, [1, 2, 3, 4]),
        ("openai/gpt-5-mini", True, [0, 1, 2, 3]),
        ("google/gemini-2.5-flash", True, [0, 1, 2, 3]),
    ],
)
def test_the_levels_by_model_and_by_who_asked(model: str, manual: bool, levels: list[int]):
    assert list(ladder(model, manual=manual)) == levels


def candidates(*sizes: int | None) -> list[dict[str, object]]:
    """Candidates by size; None: not usable."""
    return [
        {"level": level, "notes": "" if size is None else "* note", "tokens": size or 0}
        for level, size in enumerate(sizes, start=1)
    ]


@pytest.mark.report("F06")
@pytest.mark.conforms("5.1", "11.12")
@pytest.mark.parametrize(
    ("sizes", "chosen"),
    [
        ((90,), 1),
        ((125, 90, 40), 2),  # the first under the target, though a later one is shorter
        ((125, 185, 245, 401), 1),  # none under it: the smallest, not the last
        ((401, 185, 125, 245), 3),
        ((125, None), 1),  # a last one that is not usable spoils nothing
        ((None, None, 150), 3),
        ((None, 185, None, 125), 4),
        ((100, 99), 2),  # the target itself is not under the target
        ((None, None), None),
        ((), None),
    ],
)
def test_the_first_candidate_under_the_target_else_the_smallest_usable(sizes, chosen):
    best = choose_candidate(candidates(*sizes), 100)
    assert (best and best["level"]) == chosen


@pytest.mark.conforms("5.1")
@pytest.mark.parametrize(("size", "enough"), [(99, True), (100, False), (101, False), (None, False)])
def test_a_climb_ends_with_a_usable_candidate_under_the_target(size, enough):
    assert is_enough(candidates(size)[0], 100) is enough


@pytest.mark.conforms("5.3", "11.11")
@pytest.mark.parametrize(
    ("chunks", "base", "rules", "whole", "expected"),
    [
        ([200, 200, 200], 0, RULES, False, 3),  # 400 would not reach the start of 500
        ([200, 200, 200, 200], 0, RULES, False, 3),  # the newest stays as it is
        ([600, 200, 100], 0, RULES, False, 1),  # a whole chunk, never a part of one
        ([50, 50, 50, 50, 50, 50, 50], 300, RULES, False, 4),  # the base counts
        ([60, 60, 60], 480, RULES, False, 2),  # at least a tenth of the threshold in new notes
        ([60, 60, 60], 900, RULES, False, 2),
        ([40], 460, RULES, False, 1),  # too little for a good slice: all there is
        ([400, 400, 399], 0, RULES, False, 2),
        ([400, 400, 400], 0, RULES, False, 3),  # from the blocking point on everything
        ([200, 200, 200, 200], 0, RULES, True, 4),  # asked for by hand: everything
        ([400, 400, 100], 0, NO_BUFFER, False, 3),  # no background work: everything
        ([], 700, RULES, False, 0),
    ],
)
def test_a_slice_is_the_oldest_whole_chunks(chunks, base, rules, whole, expected):
    assert slice_length(chunks, base, rules, whole=whole) == expected


@pytest.mark.conforms("5.1")
@pytest.mark.parametrize(("input_tokens", "target"), [(1000, 500), (401, 200), (1, 1), (0, 1)])
def test_the_target_is_half_of_the_input(input_tokens: int, target: int):
    assert target_tokens(input_tokens) == target


@pytest.mark.report("F01", "F10")
@pytest.mark.conforms("5.4")
@pytest.mark.parametrize(("tokens", "progress"), [(500, True), (950, True), (951, False), (1200, False)])
def test_what_is_hardly_shorter_is_no_progress(tokens: int, progress: bool):
    assert is_progress(tokens, 1000) is progress
