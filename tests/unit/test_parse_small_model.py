"""What SmolLM2-135M really wrote when it was asked for notes (`make local-model`), and small answers of that kind.

The model talks English about the instructions instead of French about the conversation; whatever of it became notes
would be believed.
"""

import json
from datetime import date
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from om_core.ports import AskedValue, ExtractMaterial, ObserverMaterial, ReflectorMaterial
from om_core.prompts.extract import build_extract_request
from om_core.prompts.notes import EXTRACT_MARK, note_lines
from om_core.prompts.observer import build_observer_request
from om_core.prompts.parse import parse_observer, parse_reflector
from om_core.prompts.reflector import build_reflector_request
from om_core.prompts.templating import load_parts
from om_core.tokens import TiktokenCounter

ANSWERS = json.loads((Path(__file__).parents[1] / "golden" / "small_model_answers.json").read_text(encoding="utf-8"))
SOURCE = "\n".join(
    f"{word} said that {other} went to {word[::-1]}."
    for word, other in pairwise(sorted(load_parts("observer_v1")["main"].split()))
)
"""Messages that are not alike."""
FORM = "Date: Mon D, YYYY\n* 🔴 (HH:MM) note\n* 🟡 (HH:MM) note with details\n  * -> detail"
"""What the instructions show as the form of an answer."""


@pytest.mark.report("E01", "E04")
@pytest.mark.parametrize("answer", ANSWERS, ids=lambda answer: answer["name"])
def test_no_recorded_answer_becomes_notes(answer):
    parse = parse_observer if answer["phase"] == "observe" else parse_reflector
    output = parse(answer["text"], finish_reason=answer["finish_reason"], source=SOURCE)

    assert (output.outcome, output.notes) == ("unusable", "")
    assert output.reason


@pytest.mark.parametrize(
    "answer",
    [
        FORM,
        f"<observations>\n{FORM}\n</observations>",
        "<observations>\nDate: Mar 2, 2026\n* 🔴 (09:00) note\n  * -> detail\n</observations>",
        "* Date: Mon D, YYYY\n* 🟡 (HH:MM) note with details",
        f"{FORM}\n* tea",
        "In the order you are given:\n* Observations\n* Notes\n* History\n* Current task:\n* What to keep",
    ],
)
def test_the_form_of_an_answer_is_no_answer(answer):
    for output in (parse_observer(answer), parse_reflector(answer)):
        assert output.outcome == "unusable" and "repeats its instructions" in str(output.reason)


def test_a_line_of_the_form_is_dropped_from_real_notes():
    real = "* 🔴 (09:10) User wants dates written as Mon D, YYYY in every note of the report."
    output = parse_observer(f"<observations>\nDate: Mar 2, 2026\n* 🔴 (09:00) note\n{real}\n</observations>")

    assert output.notes == f"Date: Mar 2, 2026\n{real}"


@pytest.mark.parametrize(
    "header", ["Date: Mon Tue, 2023", "**Date:** unknown", "* Date: 8. Mai 2023", "Date: Feb 30, 2023"]
)
def test_a_header_whose_day_cannot_be_read_is_no_note(header):
    note = "* 🔴 (09:10) User moved to Lyon."
    output = parse_observer(f"<observations>\n{header}\n{note}\n</observations>", default_day=date(2026, 3, 2))

    assert output.notes == f"Date: Mar 2, 2026\n{note}"
    assert parse_observer(f"<observations>\n{header}\n{header}\n</observations>").outcome == "unusable"


def test_a_note_that_speaks_of_a_date_is_one():
    note = "* Date: User wants to meet Maria for the first time on Friday"

    assert parse_observer(f"<observations>\n{note}\n</observations>").notes == note


@pytest.mark.report("E05")
def test_times_without_words_are_no_notes_and_replace_none():
    bare = "Date: Jun 9, 2023\n* 🔴 (13:38\n* 🟡 (13:39\n* 🔴 (13:40\n* 🟢 ...\n"
    note = "* 🔴 (09:10) User moved to Lyon and lives in a small house by the river:\n  * -> 134"

    for answer in (bare, "Date: Jun 9, 2023\n* 🔴 (13:25)\n* 🟡\n"):
        assert parse_reflector(answer).outcome == parse_observer(answer).outcome == "unusable"
    assert parse_observer(f"{bare}{note}").notes == f"Date: Jun 9, 2023\n{note}"


@pytest.mark.parametrize(
    "label", ["[m14] (14:09) ", "(14:09) [m14] ", "🟡 [m14]: (14:09) ", "[m14-m17] (14:09) ", "[m14, m17] (14:09) "]
)
def test_the_numbers_of_entries_are_not_taken_over(label):
    output = parse_observer(f"* {label}Melanie painted a lake [m2].\n")

    assert [(note.time, note.text) for note in note_lines(output.notes)] == [("14:09", "Melanie painted a lake [m2].")]


def test_a_model_cannot_call_its_notes_an_extract():
    mark = f"* 🟢 {EXTRACT_MARK}"
    note = "* 🔴 (09:10) User moved to Lyon and lives in a small house by the river with two dogs and a cat."

    assert parse_observer(f"{mark}\n{note}").notes == note
    assert parse_reflector(f"{mark}\n" * 3).outcome == "unusable"


def test_no_model_is_shown_that_notes_are_an_extract():
    log = f"Date: March 2, 2026\n* 🟢 {EXTRACT_MARK}\n* 🟡 (09:10) User said: moved to Lyon."
    asked = AskedValue(slug="city", name="City", instructions="Where the user lives.")
    settings: dict[str, Any] = {"model": "openai/x", "settings": {}, "provider_options": {}}
    requests = (
        build_observer_request(
            ObserverMaterial(messages=(), prior_notes=log), **settings, instruction=None, tokenizer=TiktokenCounter()
        ),
        build_reflector_request(ReflectorMaterial(log=log, level=0, target_tokens=100), **settings, instruction=None),
        build_extract_request(ExtractMaterial(values=(asked,), notes=log), **settings, tokenizer=TiktokenCounter()),
    )

    for request in requests:
        prompt = str(request.prompt)
        assert "moved to Lyon" in prompt and EXTRACT_MARK not in prompt


@pytest.mark.parametrize("word", ["text", "Text", "title", "TITLE"])
def test_a_placeholder_is_no_hint(word):
    output = parse_observer(
        f"<observations>\n</observations>\n<current-task>\n{word}\n</current-task>\n<thread-title>\n{word}\n</thread-title>"
    )

    assert (output.outcome, output.current_task, output.thread_title) == ("valid", None, None)


SHORT_LOOPS = {
    "one line": "* What can be done:\n" * 12,
    "a numbered line": "".join(f"{n}. What can be done:\n" for n in range(1, 13)),
    "six lines": "* User is well.\n" + "* What can be done:\n" * 5,
    "one short word": "* User is well.\n" + "* Remarks\n" * 12,
    "two lines in turn": "* The user is asked.\n* The assistant answers.\n" * 6,
    "one real note before": "* 🔴 (10:00) User moved to Paris in May.\n" + "* What can be done:\n" * 12,
    "repeated after lines of the instructions": "* These instructions are not part of the conversation: do not note them.\n"
    * 4
    + "* A request to know.\n" * 8
    + "* User is well.\n",
    "words on one line": "* " + "the user said that " * 40,
}


@pytest.mark.report("E01")
@pytest.mark.parametrize("name", SHORT_LOOPS)
def test_a_short_loop_is_unusable(name):
    output = parse_observer(f"<observations>\n{SHORT_LOOPS[name]}</observations>", source=SOURCE)

    assert output.outcome == "unusable" and "degenerate" in str(output.reason)


HONEST = {
    "a day above each note": "".join(
        f"Date: Mar 2, 2026\n* 🟡 (09:{n:02d}) User visited house number {n}.\n" for n in range(15)
    ),
    "an equal result below each note": "".join(
        f"* 🟡 (09:{n:02d}) Ran the tests of part {n}:\n  * -> all 214 tests passed\n" for n in range(15)
    ),
    "the same thing three times": "* 🟢 (09:00) User said hello.\n" * 3,
    "the same thing at other times": "".join(f"* 🟢 (09:{n:02d}) Heartbeat received.\n" for n in range(10)),
    "short facts alike": "".join(f"* 🔴 (09:{n:02d}) {name} is vegan.\n" for n, name in enumerate("ABCDEFGHIJKL")),
}


@pytest.mark.parametrize("name", HONEST)
def test_short_notes_that_are_alike_are_no_loop(name):
    assert parse_observer(f"<observations>\n{HONEST[name]}</observations>", source=SOURCE).outcome == "valid"


@pytest.mark.report("E03")
def test_a_short_monotonous_answer_about_monotonous_messages_is_accepted():
    polls = "waiting for the build to end: nothing new to report\n" * 60

    assert parse_observer("* Nothing new to report.\n" * 10, source=polls).outcome == "valid"
