"""The measure of `make quality`, its data, and what it compares the offline notes with: on made-up dialogues."""

import json
from datetime import UTC, datetime

import pytest

from tests.quality.baselines import METHODS, blocks, count, counted, full, log_of, notes_of
from tests.quality.dialogues import load
from tests.quality.measure import answered, content_words, is_kept, spoken_date
from tests.quality.score import Judge, Row

NOTES = [
    "8 May, 2023 Ann: adopted a grey cat",
    "8 May, 2023 Ann: its name is Oscar",
    "9 May, 2023 Bob: sailed to Bergen",
    "9 May, 2023 Bob: lost 2 ropes",
]


@pytest.mark.parametrize(
    ("answer", "counts"),
    [
        ("a grey cat named Oscar", False),  # 3 of 4 words
        ("the grey cats", True),
        ("Oscar, grey cat, Bergen", True),  # three notes in a row
        ("grey ropes", False),  # words of four notes
        ("Bob lost two of the ropes in Bergen", True),  # 4 of 5 words
        ("8 May 2023", True),
        (2023, True),
        ("the", False),
        ("", False),
    ],
)
def test_an_answer_counts_when_most_of_its_words_stand_in_three_notes_in_a_row(answer, counts):
    assert answered(NOTES, [answer]) == counts


def test_no_notes_answer_nothing():
    assert answered([], ["cat"]) == 0


def test_content_words_are_stemmed_and_hold_no_function_words():
    assert content_words("She's been sailing the boats; Ann's parties tried 12 of it") == {
        "sail", "boat", "ann", "part", "tri", "12",
    }  # fmt: skip


def test_a_turn_is_kept_when_half_of_its_words_are():
    assert is_kept("Oscar is grey and small", "cat Oscar grey")
    assert not is_kept("Oscar is grey, small, shy", "Oscar")
    assert not is_kept("", "Oscar")


@pytest.mark.parametrize(
    ("hour", "expected"),
    [(0, "12:05 am on 8 May, 2023"), (12, "12:05 pm on 8 May, 2023"), (13, "1:05 pm on 8 May, 2023")],
)
def test_times_are_written_as_the_dialogues_do(hour, expected):
    assert spoken_date(datetime(2023, 5, 8, hour, 5, tzinfo=UTC)) == expected


FACTS = [
    "I adopted a grey cat named Oscar from the shelter in Leeds.",
    "My brother sailed from Bergen to Aberdeen in a wooden boat.",
    "We ordered {n} kilos of cherries for the village fair.",
    "The library on Mill Street opens a room for model railways.",
]


@pytest.fixture(scope="module")
def dialogues(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    sessions = {
        f"session_{s}": [
            {
                "speaker": "Ann" if t % 2 else "Bob",
                "dia_id": f"D{s}:{t}",
                "text": FACTS[(s + t) % 4].format(n=10 * s + t),
            }
            for t in range(1, 13)
        ]
        for s in range(1, 7)
    }
    dates = {f"{name}_date_time": f"1:5{n} pm on {n + 1} May, 2023" for n, name in enumerate(sessions)}
    questions = [
        {"answer": "a grey cat", "category": 4, "evidence": ["D1:3"]},
        {"answer": 2023, "category": 2, "evidence": ["D8:6; D2:2"]},
        {"answer": "never counted", "category": 3, "evidence": []},
        {"adversarial_answer": "no", "category": 5, "evidence": ["D1:1"]},
        {"answer": "a purple zeppelin", "category": 1, "evidence": ["D"]},
    ]
    sample = {
        "sample_id": "s1", "conversation": {"speaker_a": "Ann", "speaker_b": "Bob", **sessions, **dates}, "qa": questions,
    }  # fmt: skip
    (folder / "locomo").mkdir()
    (folder / "locomo" / "any name.json").write_text(json.dumps([sample]))
    chats = [
        {
            "session_id": name,
            "messages": [
                {"role": role, "content": text, "created_at": "2023-05-08T10:00:00"}
                for role, text in (("user", "I paid with a voucher at Target."), ("assistant", "Noted."))
            ],
        }
        for name in ("chat_1", "answer_7")
    ]
    asked = {"question": "Where?", "question_date": "2023/05/09", "answer": "Target", "sessions": chats}
    (folder / "locomo" / "other.json").write_text('{"notes": ["no dialogue"]}')
    (folder / "longmemeval").mkdir()
    (folder / "longmemeval" / "shop.json").write_text(json.dumps(asked))
    return list(load(folder))


def test_dialogues_are_found_with_their_answers_and_evidence(dialogues):
    locomo, longmemeval = dialogues

    assert (locomo.dataset, locomo.name, len(locomo.turns)) == ("locomo", "s1", 72)
    assert locomo.answers == ("a grey cat", 2023, "never counted", "a purple zeppelin")
    assert locomo.evidence == {"D1:3", "D8:6", "D2:2"}
    assert (longmemeval.dataset, longmemeval.name, longmemeval.answers) == ("longmemeval", "shop", ("Target",))
    assert longmemeval.evidence == {"answer_7:0"}


def test_turns_have_the_date_of_their_session(dialogues):
    notes = notes_of(dialogues[0].turns)

    assert notes[0] == f"1:50 pm on 1 May, 2023 Ann {dialogues[0].turns[0].text}"
    assert {note.split(" 2023 ")[0] for note in notes[:12]} == {"1:50 pm on 1 May,"}


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("compression", [3.0, 5.0, 10.0])
def test_a_method_fills_its_size_and_never_exceeds_it(dialogues, name, compression):
    dialogue = counted(dialogues[0].turns)
    size = count(log_of(METHODS[name](dialogue, compression)))

    assert 0.6 * dialogue.total / compression <= size <= dialogue.total / compression


def test_blocks_are_the_whole_dialogue(dialogues):
    dialogue = counted(dialogues[0].turns)

    assert [turn for block in blocks(dialogue) for turn in block.turns] == full(dialogue, 1.0)


def test_everything_is_its_own_ceiling(dialogues):
    row = Judge.of(dialogues[0]).full().to_json()

    assert row["answer_vs_ceiling"] == 1.0 and row["answer_share"] == 0.5
    assert row["evidence_share"] == 1.0 and row["evidence_turns"] == 2
    assert row["cacheable_share"] > 0.9


def test_the_newest_messages_lose_their_prefix_at_every_turn(dialogues):
    row = Judge.of(dialogues[0]).baseline("last_n", 5.0).to_json()

    assert row["cacheable_share"] < 0.5


def test_rows_add_up_over_dialogues():
    row = Row("locomo", "full", 1.0)
    row.add(
        Row("locomo", "full", 1.0, message_tokens=100, tokens=50, answers=4, answered=2, ceiling=3, cacheable=[0.5])
    )
    row.add(
        Row("locomo", "full", 1.0, message_tokens=100, tokens=50, answers=4, answered=1, ceiling=1, cacheable=[1.0])
    )
    shown = row.to_json()

    assert (shown["answer_share"], shown["answer_vs_ceiling"], shown["cacheable_share"]) == (0.375, 0.75, 0.75)
    assert shown["compression_reached"] == 2.0
