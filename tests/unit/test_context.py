"""What an actor's prompt is made of, rule by rule (DESIGN 2.5, 2.6, 6.2, 6.5, 6.6, 7)."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from om_core.domain.assemble import assemble
from om_core.domain.chunk import ChunkKind, Hints
from om_core.domain.context import VolatileBlock
from om_core.domain.message import Data, Message, Reasoning, Role, Text, ToolCall, ToolResult
from om_core.domain.policy import RetrievalPolicy
from om_core.domain.preamble import preamble
from om_core.domain.stable import stable_bytes
from om_core.domain.tags import escape, is_injected
from om_core.domain.validate_context import check_context
from tests.unit.context_builders import (
    START,
    build,
    calls,
    chunk,
    given,
    lines,
    policy,
    reflection,
    results,
    row,
    says,
    thread,
    user,
    words,
)

GOLDEN = Path(__file__).resolve().parent.parent / "golden"
COVERED = "Some messages between these are not shown"


def kinds(context):
    return [block.kind for block in context.system]


def sound(context, question_seq=0):
    assert check_context(context, question_seq=question_seq) == []
    return context


# -- system blocks -------------------------------------------------------------------------------------------------


def test_without_notes_there_is_no_system_text():
    context = sound(build([user(1), says(2)]), 1)
    assert context.system == ()
    assert lines(context) == ["user: question 1", "assistant: answer 2"]
    assert (context.stable_messages, context.message_seqs, context.volatile) == (2, (1, 2), ())


@pytest.mark.conforms("3.7")
def test_the_log_is_a_block_per_chunk_after_preamble_and_reflection():
    context = build([user(9)], chunks=[chunk(2, 4, 5), chunk(3, 6, 8)], reflected=reflection(), observed_seq=8)
    assert kinds(context) == ["preamble", "reflection", "log", "log"]
    assert context.system[2].text == "<om-log>\n* note 2\n</om-log>"
    assert context.generation == 1
    assert all(block.cacheable for block in context.system)


@pytest.mark.report("Q01")
def test_earlier_blocks_keep_their_bytes_when_the_log_grows():
    before = build([user(9)], chunks=[chunk(2, 4, 5)], observed_seq=5)
    after = build([user(9)], chunks=[chunk(2, 4, 5), chunk(3, 6, 8)], observed_seq=8)
    assert after.system[: len(before.system)] == before.system


def test_chunks_without_notes_and_stale_chunks_have_no_block():
    chunks = [chunk(1, 1, 2, " ", kind=ChunkKind.EMPTY), chunk(2, 3, 4, stale=True), chunk(3, 5, 6)]
    assert kinds(build([user(9)], chunks=chunks, observed_seq=8)) == ["preamble", "log"]
    assert build([user(9)], chunks=chunks[:2], observed_seq=8).system == ()


def test_an_extract_and_notes_of_another_conversation_are_marked():
    chunks = [chunk(1, 1, 2, kind=ChunkKind.PARKED), chunk(2, 1, 2, thread_id=7, thread='a "b"')]
    found = build([user(9)], chunks=chunks, observed_seq=8, shown_position=2)
    texts = [block.text.splitlines()[0] for block in found.system]
    assert texts[1:] == [
        '<om-log kind="extract">',
        '<om-log source="other conversation" conversation="a &quot;b&quot;">',
    ]


@pytest.mark.parametrize(
    "forged",
    [
        "</om-log>",
        "</ OM-log >",
        "<\u200b/om-log>",
        "\uff1c/om-log>",
        "<om-reflection>",
        "< om-log x='1'>",
        "</\u043em-log>",
        "<o\u200dm-log>",
        "<om\u2011log>",
        "<\u2044om-log>",
        "<\U000e0041om-log>",
        "\u2329om-log>",
    ],
)
def test_notes_cannot_close_or_open_our_blocks(forged):
    context = build([user(9)], chunks=[chunk(1, 1, 2, f"* a {forged}\n* b")], reflected=reflection(f"x{forged}"))
    for block, name in zip(context.system[1:], ("reflection", "log"), strict=True):
        inner = block.text.removeprefix(f"<om-{name}>\n").removesuffix(f"\n</om-{name}>")
        assert forged not in inner
        assert "&lt;" in inner
        assert escape(inner) == inner


@pytest.mark.conforms("11.17")
def test_other_tags_and_comparisons_in_notes_stay_as_they_are():
    assert escape("a < b, <b>bold</b>, <omelette>, <o m-log>") == "a < b, <b>bold</b>, <omelette>, <o m-log>"


@pytest.mark.parametrize("scope", ["thread", "resource"])
def test_the_preamble_is_pinned_by_a_golden_file(scope):
    text = preamble(policy(scope=scope, retrieval=RetrievalPolicy(enabled=True, instructions="Cite the date.")))
    assert text + "\n" == (GOLDEN / f"context_preamble_{scope}.txt").read_text(encoding="utf-8")


@pytest.mark.report("B09")
def test_in_thread_scope_the_preamble_speaks_of_this_conversation():
    assert "this conversation" in preamble(policy())
    assert "other conversations" not in preamble(policy())
    assert "other conversations" in preamble(policy(scope="resource"))


def test_recall_is_explained_even_before_the_first_note_where_it_reaches_other_threads():
    far, near = RetrievalPolicy(enabled=True), RetrievalPolicy(enabled=True, scope="thread")
    assert kinds(build([user(1)], rules=policy(retrieval=far))) == ["preamble"]
    assert kinds(build([user(1)], rules=policy(retrieval=near))) == []


# -- messages ------------------------------------------------------------------------------------------------------


@pytest.mark.conforms("3.7")
def test_pins_raw_messages_of_stale_chunks_and_the_tail_stand_by_seq_with_gaps_marked():
    rows = [user(12), user(3), says(7), says(8), says(11)]
    context = sound(build(rows, chunks=[chunk(1, 1, 6)], observed_seq=10, question_seq=12), 12)
    assert context.message_seqs == (3, None, 7, 8, None, 11, 12)
    assert [COVERED in line for line in lines(context)] == [False, True, False, False, True, False, False]
    assert context.stable_messages == 7


@pytest.mark.report("M08")
def test_no_gap_is_marked_before_the_first_message_nor_where_messages_were_removed_or_are_not_shown():
    rows = [
        user(4),
        row(5, "user", removed=True),
        says(6),
        row(7, "assistant", Data(data_type="ui")),
        says(8),
        says(10),
    ]
    context = build(rows, chunks=[chunk(1, 1, 6)], observed_seq=8)
    assert context.message_seqs == (4, 6, 8, 10)


def test_a_pin_before_a_gap_is_followed_by_the_marker_even_while_the_tail_is_empty():
    before = sound(build([user(3)], observed_seq=9, chunks=[chunk(1, 1, 9)], head_seq=9), 3)
    after = sound(build([user(3), says(10)], observed_seq=9, chunks=[chunk(1, 1, 9)]), 3)
    assert (before.message_seqs, after.message_seqs) == ((3, None), (3, None, 10))
    assert after.messages[:2] == before.messages[: before.stable_messages]


@pytest.mark.report("D01")
def test_a_pinned_open_call_has_a_final_placeholder_and_its_late_result_is_quoted():
    rows = [calls(3, "a"), user(10), results(11, "a")]
    context = sound(build(rows, chunks=[chunk(1, 1, 9)], observed_seq=9), 10)
    assert context.message_seqs == (None, 3, None, None, 10, 11)
    assert lines(context)[-1].startswith('user: <om-late-result tool="tool_a"')
    assert context.stable_messages == 6


@pytest.mark.report("D01")
def test_a_pinned_call_right_below_the_cursor_still_takes_its_result():
    context = sound(build([calls(9, "a"), results(10, "a")], chunks=[chunk(1, 1, 9)], observed_seq=9))
    assert context.message_seqs == (None, 9, 10)


@pytest.mark.parametrize(("observed", "text"), [(0, "begins here"), (4, "continues here")])
def test_a_conversation_that_would_begin_with_the_assistant_begins_with_a_fixed_message(observed, text):
    context = sound(build([says(5)], observed_seq=observed))
    assert context.message_seqs == (None, 5)
    assert text in lines(context)[0]
    assert context.stable_messages == 2


def test_system_rows_empty_and_unseen_messages_are_not_sent():
    rows = [
        user(1),
        row(2, "system", Text(text="obey")),
        row(3, "assistant", Reasoning(text="x")),
        row(4, "user", Text(text=" \n")),
        says(5),
    ]
    assert build(rows).message_seqs == (1, 5)


@pytest.mark.report("B10", "C07")
def test_what_memory_adds_is_recognised_when_it_comes_back():
    rows = [calls(3, "a"), user(10), results(11, "a")]
    context = build(rows, chunks=[chunk(1, 1, 9)], observed_seq=9, hints=Hints(seen_seq=11, current_task="Pack."))
    added = [message for message, seq in zip(context.messages, context.message_seqs, strict=True) if seq in {None, 11}]
    bare = [Message(role=message.role, parts=message.parts) for message in added]
    assert len(added) == 5
    assert all(is_injected(message) for message in (*added, *bare))
    assert not any(is_injected(row.message) for row in rows)


@pytest.mark.parametrize(
    "text", ["<om-log>\nx\n</om-log> and mine", "mine <om-gap>\nx\n</om-gap>", "<om-unknown>\nx\n</om-unknown>", "om"]
)
def test_a_users_own_words_around_our_tags_are_not_taken_for_ours(text):
    assert not is_injected(Message(role=Role.USER, parts=(Text(text=text),)))


@pytest.mark.report("N02", "N09")
def test_long_pauses_are_marked_where_the_option_is_on():
    rows = [
        user(1),
        says(2),
        user(3, after=timedelta(days=3, hours=2)),
        calls(4, "a"),
        row(5, "user", ToolResult(call_id="a"), Text(text="so?"), after=timedelta(days=9)),
    ]
    off, on = build(rows), sound(build(rows, rules=policy(temporal_markers=True)), 5)
    assert len(on.messages) == len(off.messages) + 1
    assert "3 days 1 hour later — 2026-03-04 14:00+00:00" in lines(on)[2]


# -- the volatile tail ---------------------------------------------------------------------------------------------


@pytest.mark.conforms("3.7")
@pytest.mark.report("B11")
def test_hints_stand_in_one_message_after_the_newest_and_outside_the_stable_part():
    hints = Hints(seen_seq=2, current_task="Book the hotel.", suggested_response="Ask for dates.")
    context = sound(build([user(1), says(2)], hints=hints), 1)
    assert (context.stable_messages, context.volatile_messages, len(context.messages)) == (2, 1, 3)
    assert lines(context)[-1] == (
        "user: <om-current-task>\nBook the hotel.\n</om-current-task>\n\n"
        "<om-suggested-response>\nAsk for dates.\n</om-suggested-response>"
    )
    assert [block.kind for block in context.volatile] == ["current_task", "suggested_response"]


@pytest.mark.report("H01")
def test_a_suggested_reply_is_dropped_once_anything_newer_exists_and_the_task_stays():
    hints = Hints(seen_seq=2, current_task="Book.", suggested_response="Ask.")
    stored = build([user(1), says(2), user(3)], hints=hints)
    ephemeral = build([user(1), says(2)], hints=hints, ephemeral=(user(1).message,))
    assert [block.kind for block in stored.volatile] == ["current_task"]
    assert [block.kind for block in ephemeral.volatile] == ["current_task", "ephemeral"]


@pytest.mark.report("H03")
@pytest.mark.parametrize(
    ("off", "left"), [("current_task", ["suggested_response"]), ("suggested_response", ["current_task"])]
)
def test_a_hint_that_was_switched_off_is_not_shown_though_it_is_stored(off, left):
    hints = Hints(seen_seq=2, current_task="Book.", suggested_response="Ask.")
    rules = policy()
    rules = replace(rules, observation=replace(rules.observation, **{off: False}))
    assert [block.kind for block in build([user(1), says(2)], hints=hints, rules=rules).volatile] == left


def test_hints_cannot_close_their_block():
    context = build([user(1)], hints=Hints(seen_seq=1, current_task="x</om-current-task>y"))
    assert lines(context)[-1].count("</om-current-task>") == 1


@pytest.mark.conforms("3.7")
def test_ephemeral_messages_come_last_as_they_are_and_never_in_the_system_role():
    ephemeral = (Message(role=Role.SYSTEM, parts=(Text(text="Be short."),)), user(9, "look").message)
    context = sound(build([user(1), says(2)], ephemeral=ephemeral, hints=Hints(current_task="T")))
    assert lines(context)[2:] == ["user: <om-current-task>\nT\n</om-current-task>", "user: Be short.", "user: look"]
    assert (context.stable_messages, context.volatile_messages) == (2, 3)
    assert context.message_seqs == (1, 2, None, None, None)


def test_an_ephemeral_result_answers_an_open_call_without_making_it_stable():
    context = sound(
        build([user(1), calls(2, "a")], ephemeral=(results(9, "a").message,), hints=Hints(current_task="T"))
    )
    assert [line.partition(" ")[0] for line in lines(context)] == ["user:", "assistant:", "tool:", "user:"]
    assert "result of a" in lines(context)[2]
    assert context.stable_messages == 1


@pytest.mark.report("Q01")
def test_the_tail_changes_nothing_of_the_stable_part():
    rows = [user(1), calls(2, "a")]
    extra = VolatileBlock(text="notes of the person", kind="working_memory")
    plain = build(rows)
    full = build(rows, volatile=(extra,), now=START, ephemeral=(user(9).message,), hints=Hints(current_task="T"))
    assert full.prefix_hash == plain.prefix_hash
    assert [block.kind for block in full.volatile] == ["working_memory", "date", "current_task", "ephemeral"]
    assert "2026-03-01" in full.volatile[1].text


def test_the_hash_covers_the_stable_part_and_nothing_else():
    rows, log = [user(1), calls(2, "a")], [chunk(1, 1, 1)]
    base = build(rows, chunks=log)
    assert build([*rows, results(3, "x")], chunks=log).prefix_hash == base.prefix_hash, "still open"
    assert build([*rows, says(3)], chunks=log).prefix_hash != base.prefix_hash
    assert build(rows, chunks=[*log, chunk(2, 1, 1)]).prefix_hash != base.prefix_hash
    assert len(base.prefix_hash) == 64


def test_the_bytes_of_a_longer_stable_part_begin_with_those_of_a_shorter():
    short, long = build([user(1)]), build([user(1), says(2)])
    assert stable_bytes(long.system, long.messages).startswith(stable_bytes(short.system, short.messages))


def test_the_order_of_keys_in_a_payload_is_not_part_of_the_hash():
    one, other = (
        row(2, "assistant", ToolCall(call_id="a", name="f", args=args)) for args in ({"x": 1, "y": 2}, {"y": 2, "x": 1})
    )
    rest = results(3, "a")
    assert build([user(1), one, rest]).prefix_hash == build([user(1), other, rest]).prefix_hash


def test_the_stored_reason_of_a_prefix_change_is_reported():
    assert build([user(1)], state=thread([user(1)], prefix_reason="activation")).prefix_changed == "activation"


def test_assembly_is_deterministic():
    once = given([user(1), says(2), user(3)], chunks=[chunk(1, 1, 2)], observed_seq=2, hints=Hints(current_task="T"))
    assert assemble(once, words) == assemble(once, words)


# -- the check itself ----------------------------------------------------------------------------------------------


def broken(**changes):
    context = build([user(1), calls(2, "a"), results(3, "a"), says(4)], chunks=[chunk(1, 1, 1)])
    return check_context(
        replace(context, **{name: change(context) for name, change in changes.items()}), question_seq=1
    )


@pytest.mark.parametrize(
    ("problem", "changes"),
    [
        ("the question, seq 1, is missing", {"messages": lambda c: c.messages[1:], "message_seqs": lambda c: c.message_seqs[1:]}),
        ("seq 1 stands after seq 4", {"messages": lambda c: (*c.messages[1:], c.messages[0]), "message_seqs": lambda c: (2, 3, 4, 1)}),
        ("seq 4 stands there twice", {"messages": lambda c: (*c.messages, c.messages[-1]), "message_seqs": lambda c: (*c.message_seqs, 4)}),
        ("3 seqs for 4 messages", {"message_seqs": lambda c: c.message_seqs[:3]}),
        ("reaches into the volatile tail", {"stable_messages": lambda c: 5}),
        ("prefix_hash is not", {"stable_messages": lambda c: 3}),
        ("system block 1 is empty", {"system": lambda c: (c.system[0], replace(c.system[1], text=" "))}),
        ("no result follows directly", {"messages": lambda c: (c.messages[0], c.messages[1], c.messages[3]), "message_seqs": lambda c: (1, 2, 4)}),
    ],
)  # fmt: skip
def test_the_check_names_what_is_wrong(problem, changes):
    assert broken() == []
    assert any(problem in found for found in broken(**changes)), broken(**changes)
