"""What has to go with a removed message: chunks over it, what repeats it, reflections above (DESIGN 3.3)."""

from __future__ import annotations

import pytest

from om_core.domain.taint import ChunkFact, GenerationFact, Taint, content_words, spread


def chunk(number: int, text: str = "", shown: tuple[int, ...] = (), generation: int | None = None) -> ChunkFact:
    return ChunkFact(
        id=number,
        thread_id=1,
        from_seq=number,
        to_seq=number,
        position=number,
        text=text,
        shown_chunks=shown,
        shown_generation=generation,
    )


def found(
    chunks: list[ChunkFact], covering: list[int], words: str, own: dict[int, str] | None = None, *through: int
) -> Taint:
    generations = [GenerationFact(generation=n, through_position=at) for n, at in enumerate(through, start=1)]
    return spread(
        chunks,
        generations,
        covering=covering,
        words=content_words(words),
        own_words=lambda one: content_words((own or {}).get(one.id, "")),
    )


def test_a_note_that_repeats_what_it_was_shown_goes_too_and_one_that_does_not_stays() -> None:
    chunks = [chunk(1, "likes zebras"), chunk(2, "still likes zebras", (1,)), chunk(3, "likes tea", (1,))]
    assert found(chunks, [1], "I like zebras").chunks == {1, 2}


def test_a_word_of_the_chunk_s_own_messages_is_no_sign() -> None:
    chunks = [chunk(1, "likes zebras"), chunk(2, "saw zebras", (1,))]
    assert found(chunks, [1], "I like zebras", {2: "We saw zebras today"}).chunks == {1}


def test_a_note_that_was_not_shown_anything_tainted_stays() -> None:
    assert found([chunk(1, "zebras"), chunk(2, "zebras")], [1], "zebras").chunks == {1}


def test_it_goes_on_from_note_to_note() -> None:
    chunks = [chunk(1, "zebras"), *(chunk(n, "zebras again", (n - 1,)) for n in range(2, 6))]
    assert found(chunks, [1], "zebras").chunks == {1, 2, 3, 4, 5}


def test_reflections_above_the_lowest_tainted_position_go_and_those_below_stay() -> None:
    chunks = [chunk(n) for n in range(1, 8)]
    assert found(chunks, [4], "", None, 2, 3, 4, 7).generations == {3, 4}


def test_a_note_that_was_shown_an_erased_reflection_goes_if_it_repeats_it_and_takes_later_reflections_along() -> None:
    chunks = [chunk(1), chunk(2), chunk(3, "zebras", (), 1)]
    taint = found(chunks, [1], "zebras", None, 2, 3)
    assert taint == Taint(chunks=frozenset({1, 3}), generations=frozenset({1, 2}))


def test_a_buffered_chunk_has_no_position_and_taints_no_reflection() -> None:
    buffered = ChunkFact(
        id=2, thread_id=1, from_seq=2, to_seq=2, position=None, text="", shown_chunks=(), shown_generation=None
    )
    assert found([chunk(1), buffered], [2], "", None, 1) == Taint(chunks=frozenset({2}))


@pytest.mark.parametrize(
    ("said", "noted", "shared"),
    [
        ("I have diabetes", "needs a diabetic diet", True),
        ("it costs 42 euros", "paid 42", True),
        ("the cat", "a dog and the car", False),
        ("我喜欢斑马", "用户喜欢斑马", True),
        ("我喜欢斑马", "天气很好", False),
        ("שלום ירושלים", "ירושלים", True),
        ("STRASSE", "straße", True),
        ("안녕하세요", "안녕", True),
        ("", "anything", False),
    ],
)
def test_words_are_compared_by_what_carries_content(said: str, noted: str, shared: bool) -> None:
    assert bool(content_words(said) & content_words(noted)) is shared
