"""Where the Observer may cut (DESIGN 6.1, 6.2)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from math import inf
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from om_core.domain.cuts import CutState, advance_cut, buffered_cut, choose_cut, open_calls, release_cut, slice_messages
from om_core.domain.message import (
    Data,
    Image,
    Message,
    Reasoning,
    Role,
    StoredMessage,
    Text,
    ToolCall,
    ToolResult,
    text_of,
)

START = datetime(2026, 3, 1, 12, tzinfo=UTC)
HOUR = 3_600.0


def stored(seq, role, *parts, tokens=10, after_s=0.0):
    at = START + timedelta(seconds=after_s)
    return StoredMessage(seq=seq, message=Message(role=Role(role), parts=parts), tokens=tokens, created_at=at, turn=1)


def user(seq, **more):
    return stored(seq, "user", Text(text=f"question {seq}"), **more)


def says(seq, **more):
    return stored(seq, "assistant", Text(text=f"answer {seq}"), **more)


def calls(seq, *ids, **more):
    return stored(seq, "assistant", *(ToolCall(call_id=id, name="tool") for id in ids), **more)


def result(seq, *ids, **more):
    return stored(seq, "tool", *(ToolResult(call_id=id, result="done") for id in ids), **more)


def cut(messages, *, question_seq=0, after_s=0.0, window=inf, head_complete=True):
    return choose_cut(
        messages,
        question_seq=question_seq,
        now=START + timedelta(seconds=after_s),
        open_call_max_age_s=HOUR,
        window_tokens=window,
        head_complete=head_complete,
    )


@pytest.mark.conforms("3.6")
@pytest.mark.report("A08")
@pytest.mark.parametrize(
    ("name", "messages", "more", "to_seq", "open_ids"),
    [
        ("no calls: all", [user(1), says(2)], {}, 2, ()),
        ("before an open call", [user(1), calls(2, "a"), says(3)], {"question_seq": 1}, 1, ()),
        ("after the result", [user(1), calls(2, "a"), result(3, "a")], {"question_seq": 1}, 3, ()),
        ("not between parallel calls", [user(1), calls(2, "a", "b"), result(3, "a")], {"question_seq": 1}, 1, ()),
        ("interleaved calls are one unit", [user(1), calls(2, "a"), calls(3, "b"), result(4, "a")], {"question_seq": 1}, 1, ()),
        ("an open call first: nowhere", [calls(1, "a"), says(2)], {}, None, None),
        ("older than the newest question: passed over", [calls(1, "a"), says(2), user(3)], {"question_seq": 3}, 3, ("a",)),
        ("open for an hour: passed over", [calls(1, "a"), says(2)], {"after_s": HOUR}, 2, ("a",)),
        ("open for less: held", [calls(1, "a"), says(2)], {"after_s": HOUR - 1}, None, None),
        ("a result without its call holds nothing", [user(1), result(2, "x")], {"question_seq": 1}, 2, ()),
        ("a call answered in its own message", [stored(1, "assistant", ToolCall(call_id="a", name="t"), ToolResult(call_id="a"))], {}, 1, ()),
        ("a reused id is a new call", [calls(1, "a"), result(2, "a"), user(3), calls(4, "a")], {"question_seq": 3}, 3, ()),
        ("within the window", [user(1), says(2), says(3)], {"window": 25}, 2, ()),
        ("not between a call and its result for the window's sake", [user(1), calls(2, "a"), result(3, "a")], {"window": 25}, 1, ()),
        ("nor because a later question exists", [user(1), calls(2, "a"), result(3, "a"), user(4)], {"window": 25, "question_seq": 4}, 1, ()),
        ("nor because the call is old by now", [user(1), calls(2, "a"), result(3, "a")], {"window": 25, "after_s": 9 * HOUR}, 1, ()),
        ("but where its result came after a new question", [calls(1, "a"), says(2), user(3), result(4, "a")], {"window": 25, "question_seq": 3}, 2, ("a",)),
    ],
)  # fmt: skip
def test_the_cut_is_the_last_place_where_no_call_waits(name, messages, more, to_seq, open_ids):
    found = cut(messages, **more)
    assert (found and found.to_seq) == to_seq, name
    if found:
        inside = [message for message in messages if message.seq <= to_seq]
        assert (found.tokens, found.message_count) == (sum(m.tokens for m in inside), len(inside))
        assert found.open_calls == open_ids
        assert not found.sliced


@pytest.mark.parametrize(
    ("messages", "to_seq"),
    [
        ([user(1, tokens=500), says(2)], 1),
        ([calls(1, "a"), result(2, "a", tokens=500), says(3)], 2),
        ([stored(1, "system", Text(text="x"), tokens=0), user(2, tokens=500)], 2),
    ],
)
def test_a_first_unit_larger_than_the_window_is_taken_alone_and_sliced(messages, to_seq):
    found = cut(messages, window=100)
    assert found is not None
    assert (found.to_seq, found.sliced) == (to_seq, True)


def test_with_only_the_first_part_of_the_tail_an_unanswered_call_holds_whatever_the_thread_knows():
    first_part = [user(1), calls(2, "a")]
    whole = cut(first_part, question_seq=9, after_s=9 * HOUR, head_complete=True)
    part = cut(first_part, question_seq=9, after_s=9 * HOUR, head_complete=False)
    passed_over = cut([calls(2, "a"), user(3)], head_complete=False)
    assert whole and whole.to_seq == 2
    assert part and part.to_seq == 1
    assert passed_over and passed_over.to_seq == 3


def test_nothing_given_is_no_cut():
    assert cut([]) is None


# -- kept up to date at ingest -------------------------------------------------------------------------------------


def advance(state, messages, *, question_seq=0, after_s=0.0):
    return advance_cut(
        state, messages, question_seq=question_seq, now=START + timedelta(seconds=after_s), max_age_s=HOUR
    )


def test_calls_hold_the_kept_cut_until_their_results_are_stored():
    state = advance(CutState(), [user(1), calls(2, "a", "b")])
    assert (state.cut_seq, state.held_tokens, [call.call_id for call in state.open_calls]) == (1, 10, ["a", "b"])
    state = advance(state, [result(3, "a")], question_seq=1)
    assert (state.cut_seq, state.held_tokens, [call.call_id for call in state.open_calls]) == (1, 20, ["b"])
    state = advance(state, [result(4, "b")], question_seq=1)
    assert (state.cut_seq, state.held_tokens, state.open_calls) == (4, 0, ())


def test_a_new_question_lets_go_of_older_calls_and_remembers_them():
    state = advance(CutState(), [calls(1, "a"), user(2)])
    assert (state.cut_seq, state.held_tokens, [call.call_id for call in state.open_calls]) == (2, 0, ["a"])
    assert advance(state, [result(3, "a")], question_seq=2).open_calls == ()


def test_a_call_that_grows_old_lets_go_without_a_new_message():
    state = advance(CutState(), [user(1), calls(2, "a")])
    young = release_cut(state, head_seq=2, question_seq=1, now=START + timedelta(seconds=HOUR - 1), max_age_s=HOUR)
    old = release_cut(state, head_seq=2, question_seq=1, now=START + timedelta(seconds=HOUR), max_age_s=HOUR)
    assert young == state
    assert (old.cut_seq, old.held_tokens, old.open_calls) == (2, 0, state.open_calls)


def test_an_imported_call_is_as_old_as_its_storing_not_as_its_message():
    long_ago = [user(1, after_s=-90 * HOUR), calls(2, "a", after_s=-90 * HOUR)]
    state = advance(CutState(), long_ago)
    assert (state.cut_seq, state.open_calls[0].at) == (1, START)
    more: dict[str, Any] = {
        "question_seq": 1,
        "now": START,
        "open_call_max_age_s": HOUR,
        "window_tokens": inf,
        "head_complete": True,
    }
    known, unknown = choose_cut(long_ago, **more, waiting=state.open_calls), choose_cut(long_ago, **more)
    assert known and known.to_seq == 1
    assert unknown and unknown.to_seq == 2


def test_a_chunk_beyond_the_kept_cut_raises_it():
    state = CutState(cut_seq=4, held_tokens=70)
    assert buffered_cut(state, buffered_seq=4, unbuffered_tokens=70) == state
    assert buffered_cut(state, buffered_seq=6, unbuffered_tokens=30) == CutState(cut_seq=6, held_tokens=30)


def test_a_thread_remembers_a_bounded_number_of_unanswered_calls():
    state = advance(CutState(), [calls(seq, f"c{seq}") for seq in range(1, 200)])
    assert len(state.open_calls) == 64
    assert state.open_calls[-1].call_id == "c199"


@st.composite
def histories(draw):
    """Messages of every kind with a few call ids in use, and the seconds between them."""
    kinds = st.sampled_from(["user", "says", "calls", "result", "mixed"])
    ids = st.lists(st.sampled_from("abcd"), min_size=1, max_size=3, unique=True)
    made, clock = [], 0.0
    for seq in range(1, draw(st.integers(1, 14)) + 1):
        kind, clock = draw(kinds), clock + draw(st.sampled_from([0.0, 10.0, 2_000.0]))
        extra = {"tokens": draw(st.integers(0, 30)), "after_s": clock}
        if kind == "mixed":
            parts = [ToolResult(call_id=id) for id in draw(ids)]
            made.append(stored(seq, "user", *parts, Text(text="and?"), **extra))
        elif kind in {"user", "says"}:
            made.append((user if kind == "user" else says)(seq, **extra))
        else:
            made.append((calls if kind == "calls" else result)(seq, *draw(ids), **extra))
    return made


def ids_of(waiting):
    return [(call.call_id, call.seq) for call in waiting]


def incremental(messages, max_age_s):
    state, question = CutState(), 0
    for message in messages:
        question = message.seq if message.is_question else question
        state = advance_cut(state, [message], question_seq=question, now=message.created_at, max_age_s=max_age_s)
    return state, question


@given(histories())
def test_the_kept_cut_is_the_chosen_cut_as_long_as_no_call_grows_old(messages):
    state, question = incremental(messages, 10**9)
    found = choose_cut(
        messages, question_seq=question, now=messages[-1].created_at,
        open_call_max_age_s=10**9, window_tokens=inf, head_complete=True,
    )  # fmt: skip
    assert state.cut_seq == (found.to_seq if found else 0)
    assert ids_of(state.open_calls) == ids_of(open_calls(messages))
    assert state.held_tokens == sum(message.tokens for message in messages if message.seq > state.cut_seq)


@given(histories())
def test_the_kept_cut_never_runs_ahead_of_the_chosen_one_and_in_one_batch_it_is_the_same(messages):
    state, question = incremental(messages, HOUR)
    found = choose_cut(
        messages, question_seq=question, now=messages[-1].created_at,
        open_call_max_age_s=HOUR, window_tokens=inf, head_complete=True,
    )  # fmt: skip
    assert state.cut_seq <= (found.to_seq if found else 0)
    late = messages[-1].created_at + timedelta(seconds=HOUR)
    assert release_cut(state, head_seq=len(messages), question_seq=question, now=late, max_age_s=HOUR).cut_seq == len(
        messages
    )


@pytest.mark.report("D13")
@given(histories(), st.integers(0, 80), st.booleans())
def test_a_range_ends_where_both_sides_are_whole_and_fits_the_window(messages, window, head_complete):
    found = choose_cut(
        messages, question_seq=0, now=messages[-1].created_at,
        open_call_max_age_s=10**9, window_tokens=window, head_complete=head_complete,
    )  # fmt: skip
    if found is None:
        return
    assert found.sliced == (found.tokens > window)
    inside = [message for message in messages if message.seq <= found.to_seq]
    assert found.open_calls == tuple(call.call_id for call in open_calls(inside))
    for call in open_calls(inside):
        later = [m for m in messages if m.seq > call.seq]
        passed_over = any(m.is_question for m in later)
        assert passed_over, "an open call was cut off although nothing passed it over"


# -- slices --------------------------------------------------------------------------------------------------------


def joined(slices):
    return "".join(text_of(message.parts) for piece in slices for message in piece)


def words(text):
    return len(text.split()) or (1 if text else 0)


def test_a_long_text_is_sliced_into_pieces_that_join_to_the_same_text():
    text = " ".join(f"word{index}" for index in range(1_000))
    slices = slice_messages([stored(4, "user", Text(text=text), tokens=1_000)], 90, words)
    assert len(slices) > 10
    assert all(sum(message.tokens for message in piece) <= 90 for piece in slices)
    assert joined(slices) == text
    assert {message.seq for piece in slices for message in piece} == {4}


def test_pieces_of_a_result_keep_its_name_and_say_which_part_they_are():
    whole = ToolResult(call_id="a", name="read", result={"lines": ["x y z"] * 100})
    slices = slice_messages([calls(1, "a"), stored(2, "tool", whole, tokens=300)], 50, words)
    pieces = [message.results[0] for piece in slices for message in piece if message.results]
    assert len(pieces) > 1
    assert {(piece.call_id, piece.name) for piece in pieces} == {("a", "read")}
    assert [piece.visible.splitlines()[0] for piece in pieces] == [
        f"(part {i} of {len(pieces)})" for i in range(1, len(pieces) + 1)
    ]
    assert slices[0][0].calls, "the call comes first"


def test_small_neighbours_share_a_slice_and_unseen_parts_are_left_out():
    image, text = Image(url="https://example.org/a.png"), Text(text="b " * 80)
    big = stored(3, "assistant", Reasoning(text="hm"), text, image, Data(data_type="ui"), tokens=200)
    slices = slice_messages([user(1), says(2), big], 40, words)
    assert [message.seq for message in slices[0]] == [1, 2]
    types = [part.type for piece in slices for message in piece for part in message.parts if message.seq == 3]
    assert set(types) == {"text", "image"}
    assert types[-1] == "image"


@given(st.text(max_size=300), st.integers(1, 20))
def test_slicing_loses_no_character_and_ends_for_any_text(text, window):
    message = stored(1, "user", Text(text=text), tokens=10**6)
    slices = slice_messages([message], window, len)
    assert joined(slices) == text
    assert all(sum(row.tokens for row in piece) <= window for piece in slices)
