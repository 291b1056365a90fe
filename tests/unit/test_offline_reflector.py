"""The offline Reflector: smaller than its target at every level, in order of date, and what matters stays."""

import time
from datetime import date, timedelta

import pytest

from om_core.domain.policy import OFFLINE_MODEL
from om_core.llm.offline import OfflineModel
from om_core.llm.offline_pieces import joined, pieces_of
from om_core.ports import ModelRequest, ReflectorMaterial
from om_core.prompts.notes import Note, format_notes, note_lines
from om_core.prompts.parse import parse_reflector
from tests.unit.prompt_samples import count

MODEL = OfflineModel(count_tokens=count)
DAY = date(2023, 5, 8)


def reflect(log, *, level=0, target=100_000):
    material = ReflectorMaterial(log=log, level=level, target_tokens=target)
    request = ModelRequest(phase="reflect", model=OFFLINE_MODEL, prompt=(), material=material)
    output = parse_reflector(MODEL.complete(request, timeout_s=1).text)
    assert output.outcome == "valid", output.reason
    return output.notes


def long_log(days=40):
    notes = []
    for day in range(days):
        when = DAY + timedelta(days=day)
        notes += [
            Note(
                date=when,
                time="09:00",
                priority="🔴",
                text=f"User{day} decided to rent flat number {day * 13} in Porto.",
            ),
            Note(
                date=when,
                time="10:00",
                priority="🟡",
                text=f"Read src/module_{day}.py and its {day + 3} helpers again:",
            ),
            Note(date=when, text=f"helper_{day} calls parse_{day * 7} with a cache of {day} entries", depth=1),
            Note(
                date=when, time="11:00", priority="🟢", text=f"Perhaps colour {day} of the banner looks odd on phones."
            ),
            Note(date=when, time="12:00", priority="✅", text=f"Release 1.{day}.0 shipped with {day * 3 + 1} fixes."),
        ]
    return format_notes(notes)


def marks(notes):
    return [note.priority for note in note_lines(notes) if not note.depth]


@pytest.mark.parametrize("level", range(5))
@pytest.mark.parametrize("target", [100, 500, 1_500, 100_000])
def test_the_result_is_below_its_target_at_every_level(level, target):
    assert 0 < count(reflect(long_log(), level=level, target=target)) < target


@pytest.mark.report("F06")
def test_a_higher_level_keeps_less():
    sizes = [count(reflect(long_log(), level=level)) for level in range(5)]

    assert sizes == sorted(sizes, reverse=True) and len(set(sizes)) == 5


@pytest.mark.parametrize("target", [700, 1_000])
def test_facts_and_results_outlive_details_and_guesses(target):
    kept = marks(reflect(long_log(), target=target))

    assert kept.count("🔴") > kept.count("🟡") >= kept.count("🟢")
    assert kept.count("✅") > kept.count("🟢")


def test_old_details_go_before_new_ones():
    kept = note_lines(reflect(long_log(), target=1_500))
    ages = [(note.date - DAY).days for note in kept if note.priority == "🟡" and note.date]

    assert sum(ages) > 20 * len(ages) > 0


def test_the_same_log_gives_the_same_result():
    assert reflect(long_log(), target=900) == reflect(long_log(), target=900)


def test_a_log_that_fits_is_kept_whole():
    log = long_log(3)

    assert reflect(log) == log


def test_notes_are_sorted_by_date_and_time():
    log = (
        "Date: May 9, 2023\n* 🔴 (08:00) User likes figs.\nDate: May 8, 2023\n* 🔴 (20:00) User has a cat.\n"
        "* 🔴 (07:00) User has a dog.\n  * -> it is called Rex"
    )

    assert reflect(log) == (
        "Date: May 8, 2023\n* 🔴 (07:00) User has a dog.\n  * -> it is called Rex\n* 🔴 (20:00) User has a cat.\n"
        "Date: May 9, 2023\n* 🔴 (08:00) User likes figs."
    )


@pytest.mark.report("E17")
def test_notes_that_say_the_same_become_the_newest_of_them():
    log = "Date: May 8, 2023\n* 🔴 (08:00) User likes figs.\nDate: May 9, 2023\n* 🔴 (09:00) The user likes figs"

    assert reflect(log) == "Date: May 9, 2023\n* 🔴 (09:00) The user likes figs"


def test_notes_that_differ_in_a_number_or_a_negation_are_kept_apart():
    log = "Date: May 8, 2023\n* 🔴 (08:00) User has 2 cats\n* 🔴 (08:01) User has 3 cats\n* 🔴 (08:02) User has not 3 cats"

    assert len(note_lines(reflect(log))) == 3


def test_runs_of_one_command_become_the_last_with_their_number():
    log = "Date: May 8, 2023\n" + "\n".join(f"* 🟡 (08:0{4 - n}) Bash pytest tests/unit: {n} failed" for n in (3, 2, 1))

    assert reflect(log) == "Date: May 8, 2023\n* 🟡 (08:03) Bash pytest tests/unit: 1 failed (×3)"
    assert reflect(reflect(log)) == reflect(log)


def test_a_detail_is_never_kept_without_its_note():
    for target in range(60, 400, 20):
        for line, following in zip(
            ["", *(lines := reflect(long_log(4), target=target).split("\n"))], lines, strict=False
        ):
            assert not following.startswith("  * ->") or not line.startswith("Date:")


def test_prose_that_is_no_list_is_condensed_too():
    log = "The user lives in Porto.\nThey met Ann there."

    assert "Porto" in reflect(log)


def diary(days=30):
    """A note a day with five pieces of two speakers, no word twice but their names."""
    return format_notes(
        Note(
            date=DAY + timedelta(days=day),
            time="09:00",
            priority="🔴",
            text=f"Ann: bought lamp{day}a; sold chair{day}b at fair{day}c; met cousin{day}d. Bob: sailed boat{day}e; lost {day + 100} ropes",
        )
        for day in range(days)
    )


def test_notes_are_shortened_before_they_are_dropped_and_old_ones_more_than_new_ones():
    kept = note_lines(reflect(diary(), target=count(diary()) * 2 // 3))
    pieces = [note.text.count(";") + note.text.count(". ") + 1 for note in kept]

    assert len(kept) == 30
    assert sum(pieces[:15]) < sum(pieces[15:])
    assert {note.text.split(":")[0] for note in kept} <= {"Ann", "Bob"}


def test_what_a_speaker_says_again_stands_where_it_was_said_last():
    log = (
        "Date: May 8, 2023\n* 🔴 (08:00) Ann: likes ripe figs; has a cat. Bob: likes ripe figs\n"
        "Date: May 9, 2023\n* 🔴 (09:00) Ann: sold the car; likes ripe figs"
    )

    assert reflect(log) == (
        "Date: May 8, 2023\n* 🔴 (08:00) Ann: has a cat. Bob: likes ripe figs\n"
        "Date: May 9, 2023\n* 🔴 (09:00) Ann: sold the car; likes ripe figs"
    )


def test_short_notes_of_a_day_and_its_speakers_become_one_where_room_is_needed():
    short = [
        ("08:00", "Ann: paid 12 lamps"),
        ("12:00", "Bob: sank 4 boats. Ann: fed 7 geese"),
        ("15:00", "Run make/all: ok"),
    ]
    log = "Date: May 7, 2023\n* 🟢 (10:00) " + "Perhaps the weather was good and nice. " * 9 + "\nDate: May 8, 2023\n"
    log += "\n".join(f"* 🔴 ({time}) {text}" for time, text in short)

    assert reflect(log, target=count(log) // 2).endswith(
        "* 🔴 (08:00) Ann: paid 12 lamps; fed 7 geese. Bob: sank 4 boats\n* 🔴 (15:00) Run make/all: ok"
    )


def test_a_note_without_a_time_stays_behind_the_note_before_it():
    log = (
        "Date: May 8, 2023\n* 🔴 (20:00) Ann has a cat.\n* 🔴 Ann has a dog.\n* 🔴 (07:00) Ann has 2 geese.\n"
        "Date: May 9, 2023\n* 🔴 Ann has a horse."
    )

    assert [note.text.split()[-1] for note in note_lines(reflect(log))] == ["geese.", "cat.", "dog.", "horse."]


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("Ann: likes figs; has 2 cats. Bob: sails", [("Ann", "likes figs"), ("Ann", "has 2 cats"), ("Bob", "sails")]),
        ("User likes figs.", [("", "User likes figs.")]),
        (
            "Bash pytest -q: 3 failed; see e.g. a.py: line 4",
            [("Bash pytest -q", "3 failed"), ("Bash pytest -q", "see e.g. a.py: line 4")],
        ),
        ("see https://example.org/a; b", [("", "see https://example.org/a"), ("", "b")]),
        ("李雷: 喜欢无花果; 有两只猫", [("李雷", "喜欢无花果"), ("李雷", "有两只猫")]),
        ("; ", [("", ""), ("", "")]),
        ("A: ", [("", "A: ")]),
    ],
)
def test_a_note_is_its_pieces(text, pieces):
    found = pieces_of(text)

    assert [(piece.label, piece.text) for piece in found] == pieces
    assert joined(found, range(len(found))) == text


HOSTILE = {
    "openers": "<" * 300_000,
    "bullets": "* " * 150_000,
    "one note many times": "* 🟡 (10:00) Bash make x/y: ok\n" * 10_000,
    "brackets": "* 🔴 [" * 50_000,
    "semicolons": "* 🔴 Ann: " + "a; " * 100_000,
    "speakers": "* 🔴 " + ". ".join(f"Ann{n}: says {n}" for n in range(15_000)),
    "short notes of one speaker": "* 🔴 Ann: buys figs\n* 🔴 Ann: has 2 cats\n" * 8_000,
    "details only": "  * -> a b c\n" * 20_000,
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_logs_take_no_longer_than_plain_ones(name):
    def seconds(log):
        material = ReflectorMaterial(log=log, level=0, target_tokens=2_000)
        request = ModelRequest(phase="reflect", model=OFFLINE_MODEL, prompt=(), material=material)
        start = time.thread_time()
        MODEL.complete(request, timeout_s=1)
        return time.thread_time() - start

    assert seconds(HOSTILE[name]) < 10 * seconds(long_log(1_000)) + 0.2
