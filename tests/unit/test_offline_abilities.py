"""What the offline Observer keeps, ability by ability: each row is a talk, what its notes must hold, what they must not."""

import pytest

from om_core.domain.policy import OFFLINE_MODEL
from om_core.llm.offline import OfflineModel
from om_core.ports import ModelRequest, ObserverMaterial
from om_core.prompts.parse import parse_observer
from tests.unit.prompt_samples import assistant, call, count, result, user

MODEL = OfflineModel(count_tokens=count)
FILLER = [
    "Okay, thank you so much, that sounds really great!",
    "Wow, that is so cool!",
    "You are doing such a good job.",
    "What do you think about it?",
]


def observe(messages, target=None):
    material = ObserverMaterial(messages=tuple(messages), target_tokens=target)
    request = ModelRequest(phase="observe", model=OFFLINE_MODEL, prompt=(), material=material)
    output = parse_observer(MODEL.complete(request, timeout_s=1).text)
    assert output.outcome == "valid", output.reason
    return output.notes


SAID = {
    "preference": ("I prefer window seats and never fly at night.", ["prefer window seats", "never fly", "night"], []),
    "decision": (
        "We decided to use Postgres 16 instead of MongoDB.",
        ["decided", "Postgres 16", "instead", "MongoDB"],
        [],
    ),
    "number": ("The flat costs 1,250 euros for 64 square metres.", ["1,250 euros", "64 square metres"], []),
    "name": ("My neighbour Zdenka Horáková teaches the cello.", ["neighbour Zdenka Horáková", "cello"], []),
    "day": ("I sold the boat last Friday.", ["sold boat Friday May 5"], ["last"]),
    "negation": ("I do not eat shellfish.", ["not eat shellfish"], []),
    "quoted title": ('We read "The Left Hand of Darkness" aloud.', ["Left Hand", "Darkness"], []),
    "reason": ("I moved to Bergen because my daughter studies there.", ["Bergen", "because", "daughter studies"], []),
    "direction": ("We moved from Lisbon to Porto.", ["from Lisbon to Porto"], []),
    "address": ("The office is at 12 Mill Street, floor 3.", ["12 Mill Street", "floor 3"], []),
}


@pytest.mark.parametrize("ability", SAID)
def test_of_a_talk_full_of_filler_what_was_said_is_kept(ability):
    sentence, kept, dropped = SAID[ability]
    talk = [user(n, text) if n % 2 else assistant(n, text) for n, text in enumerate([*FILLER, sentence, *FILLER], 1)]
    notes = observe(talk, target=40)

    assert [words for words in kept if words not in notes] == []
    assert [words for words in [*dropped, "sounds", "cool", "think", "job"] if words in notes] == []


LINES = "\n".join(f"compiling unit_{n}.o" for n in range(200))
RUN = {
    "error": (
        f"{LINES}\nValueError: unknown colour 'mauve' in palette.py",
        "error",
        ["(failed)", "unknown colour 'mauve'"],
    ),
    "denial": ("The user refused to run this", "denied", ["(denied)", "refused"]),
    "passed tests": (f"{LINES}\n134 passed in 2.31s", "ok", ["✅", "134 passed"]),
    "failed tests": (f"{LINES}\n3 failed, 131 passed", "ok", ["🟡", "3 failed"]),
    "merge": (f"{LINES}\nPull request 88 was merged", "ok", ["✅", "request 88", "merged"]),
    "first and last": ("Deploying shop-7\n" + LINES + "\nListening on port 8443", "ok", ["shop-7", "port 8443"]),
}


@pytest.mark.parametrize("outcome", RUN)
def test_of_a_tool_s_output_the_outcome_is_kept(outcome):
    text, status, kept = RUN[outcome]
    notes = observe([call(1, "bash", {"command": "make all"}, "c"), result(2, "c", text, status=status)])

    assert "bash make all" in notes
    assert [words for words in kept if words not in notes] == []
    assert notes.count("compiling") < 20


def test_a_failed_action_is_not_stated_as_done():
    notes = observe(
        [
            call(1, "book_flight", {"title": "HAT136 to Oslo"}, "c"),
            result(2, "c", "Error: payment amount does not add up", status="error"),
        ]
    )

    assert "HAT136 to Oslo (failed): Error: payment amount not add" in notes.replace("does ", "")


def test_repetition_is_folded():
    words = [f"I water the {flower} on the north balcony." for flower in ("roses", "roses", "tulips", "roses", "roses")]
    notes = observe([user(n, text) for n, text in enumerate(words, 1)], target=100)

    assert notes.count("roses") == 1 and notes.count("tulips") == 1
