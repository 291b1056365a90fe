"""What SmolLM2-135M really wrote when it was asked for notes (`make local-model`), and small answers of that kind.

The model talks English about the instructions instead of French about the conversation; whatever of it became notes
would be believed.
"""

import json
from itertools import pairwise
from pathlib import Path

import pytest

from om_core.prompts.parse import parse_observer, parse_reflector
from om_core.prompts.templating import load_parts

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
    ],
)
def test_the_form_of_an_answer_is_no_answer(answer):
    for output in (parse_observer(answer), parse_reflector(answer)):
        assert output.outcome == "unusable" and "repeats its instructions" in str(output.reason)


def test_a_line_of_the_form_is_dropped_from_real_notes():
    real = "* 🔴 (09:10) User wants dates written as Mon D, YYYY in every note of the report."
    output = parse_observer(f"<observations>\nDate: Mar 2, 2026\n* 🔴 (09:00) note\n{real}\n</observations>")

    assert output.notes == f"Date: Mar 2, 2026\n{real}"


SHORT_LOOPS = {
    "one line": "* What can be done:\n" * 12,
    "a numbered line": "".join(f"{n}. What can be done:\n" for n in range(1, 13)),
    "two lines in turn": "* The user is asked.\n* The assistant answers.\n" * 6,
    "one real note before": "* 🔴 (10:00) User moved to Paris in May.\n" + "* What can be done:\n" * 12,
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
