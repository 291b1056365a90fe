"""Sizes of a context and its cap: what is left out, and what never is (DESIGN 6.1, 6.5)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from om_core.domain.chunk import Hints
from om_core.domain.tags import wrap
from om_core.domain.validate_context import check_context
from tests.unit.context_builders import (
    build,
    calls,
    chunk,
    lines,
    policy,
    reflection,
    results,
    says,
    thread,
    user,
    words,
)

LEFT_OUT = "Messages are left out here"


def sound(context, question_seq=0):
    assert check_context(context, question_seq=question_seq) == []
    return context


# -- sizes ---------------------------------------------------------------------------------------------------------


@pytest.mark.report("Q06")
def test_sizes_use_stored_counts_and_count_only_what_memory_adds():
    rows = [user(1, tokens=100), says(2, tokens=50)]
    plain = build(rows)
    assert (plain.tokens.log, plain.tokens.messages, plain.tokens.total) == (0, 150, 150)
    logged = build(rows, chunks=[chunk(1, 1, 1)], reflected=reflection(), hints=Hints(current_task="Book it now."))
    assert (logged.tokens.log, logged.tokens.messages) == (12, 150)
    assert logged.tokens.total == 12 + 150 + words(logged.system[0].text) + 2 * 2 + words(
        wrap("current-task", "Book it now.")
    )


def test_a_context_over_block_after_says_so():
    rows = [user(1, tokens=100)]
    assert build(rows, rules=policy(block=100)).over_budget
    assert not build(rows, rules=policy(block=101)).over_budget


# -- the cap -------------------------------------------------------------------------------------------------------


def turns(count, *, per_message=100):
    """Turns of a question and an answer each: seqs 1 and 2, 3 and 4, ..."""
    rows = []
    for turn in range(1, count + 1):
        rows += [user(2 * turn - 1, tokens=per_message, turn=turn), says(2 * turn, tokens=per_message, turn=turn)]
    return rows


def test_below_the_cap_nothing_is_left_out():
    context = build(turns(4), rules=policy(200), max_tokens=800)
    assert (context.trimmed, context.shown_from_seq, context.over_budget) == (None, 0, False)


def test_above_the_cap_whole_turns_go_down_to_the_threshold():
    context = sound(build(turns(5), rules=policy(400), max_tokens=999), 9)
    assert context.message_seqs == (None, 7, 8, 9, 10)
    assert context.trimmed == {"from_seq": 1, "to_seq": 6, "messages": 6, "tokens": 600}
    assert (context.shown_from_seq, context.prefix_changed, context.over_budget) == (7, "trim", False)
    assert LEFT_OUT in lines(context)[0]
    assert 'from_seq="1" to_seq="6"' in lines(context)[0]


def test_within_a_threshold_that_is_above_the_cap_the_cap_decides():
    context = sound(build(turns(5), rules=policy(900), max_tokens=500), 9)
    assert context.tokens.total <= 500
    assert context.message_seqs == (None, 7, 8, 9, 10)


@pytest.mark.report("B05")
def test_of_the_current_turn_the_oldest_units_go_but_never_the_question():
    rows = [*turns(1), user(3, tokens=100, turn=2)]
    for seq in range(4, 12, 2):
        rows += [calls(seq, "a", tokens=10, turn=2), results(seq + 1, "a", tokens=190, turn=2)]
    context = sound(build(rows, rules=policy(520), max_tokens=900), 3)
    assert context.message_seqs == (None, 3, 8, 9, 10, 11)
    assert context.trimmed == {"from_seq": 1, "to_seq": 7, "messages": 6, "tokens": 600}


def test_the_marker_stands_where_the_first_left_out_message_stood():
    rows = [user(1, tokens=100), *(says(seq, tokens=100) for seq in range(2, 8))]
    context = sound(build(rows, rules=policy(300), max_tokens=600), 1)
    assert context.message_seqs == (1, None, 6, 7)
    assert context.trimmed == {"from_seq": 2, "to_seq": 5, "messages": 4, "tokens": 400}


@pytest.mark.parametrize(("size", "kept"), [(700, True), (5_000, False)])
def test_the_newest_unit_stays_if_it_fits_even_above_the_threshold(size, kept):
    rows = [user(1, tokens=50), says(2, tokens=400), calls(3, "a", tokens=10), results(4, "a", tokens=size)]
    context = sound(build(rows, rules=policy(300), max_tokens=1_000), 1)
    assert context.message_seqs == ((1, None, 3, 4) if kept else (1, None))
    assert not context.over_budget


@pytest.mark.report("D13")
def test_a_call_and_its_results_are_left_out_together_at_every_cap():
    rows = [user(1, tokens=10)]
    rows += [
        calls(2, "a", "b", tokens=50),
        results(3, "b", tokens=50),
        results(4, "x", tokens=50),
        results(5, "a", tokens=50),
    ]
    rows += [calls(6, "c", tokens=50), results(7, "c", tokens=50), says(8, tokens=50)]
    for cap in range(60, 460):
        context = sound(build(rows, rules=policy(1_000), max_tokens=cap), 1)
        kept = {seq for seq in context.message_seqs if seq}
        assert kept & {2, 3, 4, 5} in (set(), {2, 3, 4, 5})
        assert kept & {6, 7} in (set(), {6, 7})


def test_log_pins_and_question_are_sent_even_above_the_cap():
    rows = [calls(2, "a", tokens=300), user(9, tokens=500), says(10, tokens=10)]
    state = thread(rows, observed_seq=8, pins=(2,))
    context = sound(build(rows, state=state, chunks=[chunk(1, 1, 8)], max_tokens=100), 9)
    assert {2, 9} <= set(context.message_seqs)
    assert context.over_budget
    assert context.trimmed == {"from_seq": 10, "to_seq": 10, "messages": 1, "tokens": 10}


def test_a_stored_trim_stays_whether_its_rows_are_read_or_not_and_only_rises():
    rows = turns(5)
    state = thread(rows, shown_from_seq=5)
    read = build(rows, state=state, rules=policy(400))
    not_read = build(rows[4:], state=state, rules=policy(400))
    assert read.message_seqs == not_read.message_seqs == (None, 5, 6, 7, 8, 9, 10)
    assert read.trimmed == not_read.trimmed == {"from_seq": 1, "to_seq": 4, "messages": 4, "tokens": 400}
    assert (read.shown_from_seq, read.prefix_changed) == (5, None)
    again = build(rows, state=state, rules=policy(400), max_tokens=500)
    assert (again.shown_from_seq, again.prefix_changed) == (7, "trim")


def test_a_trim_below_the_cursor_is_over():
    context = build([user(9)], state=thread([user(9)], observed_seq=8, shown_from_seq=5), chunks=[chunk(1, 1, 8)])
    assert (context.trimmed, context.shown_from_seq) == (None, 0)


def test_after_a_trim_new_messages_extend_the_stable_part():
    rows = turns(5)
    first = build(rows, rules=policy(400), max_tokens=999)
    state = replace(thread([*rows, user(11)]), shown_from_seq=first.shown_from_seq, question_seq=11)
    second = build([*rows, user(11)], state=state, rules=policy(400), max_tokens=999)
    assert second.prefix_changed is None
    assert second.messages[: first.stable_messages] == first.messages[: first.stable_messages]


def test_a_question_below_a_trim_stays_when_the_next_one_is_asked():
    rows = [user(1, tokens=100), *(says(seq, tokens=100) for seq in range(2, 8))]
    first = build(rows, rules=policy(300), max_tokens=600)
    assert first.pins == (1,)
    later = [*rows, user(8, turn=2)]
    state = replace(thread(later), shown_from_seq=first.shown_from_seq, pins=first.pins)
    second = sound(build(later, state=state, rules=policy(300), max_tokens=700), 8)
    assert second.message_seqs == (1, None, 6, 7, 8)
    again = sound(build(later, state=state, rules=policy(300), max_tokens=300), 8)
    assert (again.pins, again.message_seqs) == ((), (None, 7, 8))
    assert again.trimmed == {"from_seq": 1, "to_seq": 6, "messages": 6, "tokens": 600}


@pytest.mark.parametrize(("threshold", "first_kept"), [(400, 7), (399, 9)])
def test_down_to_the_threshold_means_at_most_the_threshold(threshold, first_kept):
    context = build(turns(5), rules=policy(threshold), max_tokens=999)
    assert context.shown_from_seq == first_kept
