"""How the offline Observer condenses what people say: by speaker, dated, new things and answers first."""

from datetime import UTC, datetime

from om_core.domain.policy import OFFLINE_MODEL
from om_core.llm.offline import OfflineModel
from om_core.llm.offline_text import terse
from om_core.ports import ModelRequest, ObserverMaterial
from om_core.prompts.notes import note_lines
from om_core.prompts.parse import parse_observer
from tests.unit.prompt_samples import assistant, count, user

MODEL = OfflineModel(count_tokens=count)


def observe(*messages, **more):
    material = ObserverMaterial(messages=messages, **more)
    request = ModelRequest(phase="observe", model=OFFLINE_MODEL, prompt=(), material=material)
    output = parse_observer(MODEL.complete(request, timeout_s=1).text)
    assert output.outcome == "valid", output.reason
    return output


def test_a_relative_day_ends_up_in_the_note():
    notes = observe(user(1, "My sister Eleanor moved from Lisbon to Porto last Friday.")).notes

    assert "Porto Friday May 5" in notes and "last" not in notes


def test_each_speaker_s_words_stand_under_their_name_once():
    said = [
        ("Ann", "My cat Tom eats 3 fish."),
        ("Bob", "My dog Rex eats 4 bones."),
        ("Ann", "My car is a red Fiat 500."),
    ]
    notes = observe(*(user(n, text, author=name) for n, (name, text) in enumerate(said, 1)), target_tokens=200).notes

    assert notes.endswith("Ann: cat Tom eats 3 fish; car red Fiat 500. Bob: dog Rex eats 4 bones")


def test_the_names_of_those_who_are_addressed_are_left_out_and_other_names_stay():
    said = [
        user(1, "Hey Robert, I met Ann and Robert Smith in Lyon, Rob!", author="Ann"),
        user(2, "I gave Ann my 2 books.", author="Robert"),
    ]

    assert "Ann: met Ann Robert Smith Lyon. Robert: gave Ann 2 books" in observe(*said, target_tokens=200).notes


def test_what_answers_a_question_is_kept_before_what_answers_none():
    texts = ["The harbour lay quiet and grey.", "Where do they plan to sail?", "The brothers sail north to Bergen."]
    said = [user(n, text, author="Ann" if n % 2 else "Bob") for n, text in enumerate([*texts, texts[0] + " Cold."], 1)]

    notes = observe(*said, target_tokens=18).notes

    assert "Bergen" in notes and "harbour" not in notes


def test_the_caption_of_a_picture_is_kept_without_what_every_caption_says():
    assert "image: dog red scarf" in observe(user(1, "[image: a photo of a dog with a red scarf]")).notes


def test_praise_is_dropped_where_a_word_follows_and_kept_where_it_says_it_all():
    assert terse("The amazing film was great") == "film great"


def test_what_earlier_notes_hold_gives_way_to_what_is_new():
    said = [user(1, "My sister Eleanor lives in Porto."), user(2, "My brother Edward lives in Leeds.")]
    first = observe(*said, target_tokens=19).notes
    known, new = ("Eleanor", "Edward") if "Eleanor" in first else ("Edward", "Eleanor")
    notes = observe(*said, target_tokens=19, prior_notes=first).notes

    assert new not in first
    assert new in notes and known not in notes


def test_a_day_s_time_is_given_once_an_hour():
    at = [datetime(2023, 5, 8, hour, minute, tzinfo=UTC) for hour, minute in ((9, 0), (9, 30), (12, 0))]
    said = [user(n, f"I bought {n}0 red apples in town {n}. " * 6 + "x" * 300, at=when) for n, when in enumerate(at, 1)]
    notes = note_lines(observe(*said, target_tokens=400).notes)

    assert [note.time for note in notes if note.time] == ["09:00", "12:00"]


def test_very_short_notes_give_their_day_alone():
    texts = [f"I bought {n}0 red apples in town {n} for my sister Eleanor in Porto." for n in range(1, 60)]
    said = [user(n, text) for n, text in enumerate(texts, 1)]
    size = sum(map(count, texts))

    assert "(" in observe(*said, target_tokens=size // 5).notes
    assert "(" not in observe(*said, target_tokens=size // 9).notes


def test_numbers_of_a_list_are_no_notes():
    listed = "Pack these:\n1. The tent\n2. Four wool blankets\n3. Your brother's compass"
    notes = observe(user(1, listed), target_tokens=100).notes

    assert "wool blankets" in notes
    assert not {"1", "2", "3"} & {piece.strip() for piece in notes.partition("User:")[2].split(";")}


def test_what_a_user_says_comes_before_what_a_model_explains():
    said = [
        assistant(1, "Linen curtains keep warmth out of southern rooms and need little care in summer."),
        user(2, "We paint northern rooms green and hang woollen curtains every winter."),
    ]
    notes = observe(*said, target_tokens=25).notes

    assert "woollen" in notes and "Linen" not in notes
