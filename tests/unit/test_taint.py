"""What has to go with a removed message: chunks over it, what repeats it, reflections above (DESIGN 3.3)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

from hypothesis import given
from hypothesis import strategies as st

from om_core.domain.taint import ChunkFact, GenerationFact, Taint, covering, spread

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

SECRET = frozenset({"zebra"})


def chunk(
    number: int,
    *,
    shown: tuple[int, ...] = (),
    generation: int | None = None,
    thread: int | None = None,
    memory: int = 1,
    buffered: bool = False,
) -> ChunkFact:
    """A chunk over one message, of a thread of its own unless one is named."""
    return ChunkFact(
        id=number,
        memory_id=memory,
        thread_id=100 + number if thread is None else thread,
        from_seq=number,
        to_seq=number,
        position=None if buffered else number,
        shown_chunks=shown,
        shown_generation=generation,
    )


def found(
    chunks: Sequence[ChunkFact],
    starts: Collection[int],
    *through: int,
    say: Collection[int] = (),
    own: dict[int, set[str]] | None = None,
) -> Taint:
    """`say`: the chunks that say the word that was removed; the others say something else."""
    generations = [
        GenerationFact(memory_id=1, generation=number, through_position=at) for number, at in enumerate(through, 1)
    ]
    return spread(
        chunks,
        generations,
        covering=starts,
        words=SECRET,
        said=lambda ids: {number: SECRET if number in say else frozenset({"tea"}) for number in ids},
        own_words=lambda one: (own or {}).get(one.id, set()),
    )


def test_chunks_over_a_removed_message_are_found_by_thread_and_range() -> None:
    chunks = [replace(chunk(1, thread=7), to_seq=5), replace(chunk(6, thread=7), to_seq=9), chunk(3, thread=8)]
    assert covering(chunks, {7: (5, 12), 9: (3,)}) == {1}
    assert covering(chunks, {7: (6,), 8: (3,)}) == {6, 3}


def test_a_note_that_repeats_what_it_was_shown_goes_too_and_one_that_does_not_stays() -> None:
    chunks = [chunk(1), chunk(2, shown=(1,)), chunk(3, shown=(1,))]
    assert found(chunks, [1], say=[1, 2]).chunks == {1, 2}


def test_a_word_of_the_chunk_s_own_messages_is_no_sign() -> None:
    chunks = [chunk(1), chunk(2, shown=(1,))]
    assert found(chunks, [1], say=[1, 2], own={2: {"zebra", "today"}}).chunks == {1}


def test_a_note_that_was_not_shown_anything_tainted_stays() -> None:
    assert found([chunk(1), chunk(2)], [1], say=[1, 2]).chunks == {1}


def test_later_chunks_of_the_thread_are_shown_its_task_title_and_values_and_earlier_ones_are_not() -> None:
    chunks = [chunk(1, thread=7), chunk(2, thread=7), chunk(3, thread=7)]
    assert found(chunks, [2], say=[1, 2, 3]).chunks == {2, 3}


def test_it_goes_on_from_note_to_note() -> None:
    chunks = [chunk(1), *(chunk(n, shown=(n - 1,)) for n in range(2, 6))]
    assert found(chunks, [1], say=range(1, 6)).chunks == {1, 2, 3, 4, 5}
    assert found(list(reversed(chunks)), [1], say=range(1, 6)).chunks == {1, 2, 3, 4, 5}


def test_a_chunk_of_another_memory_is_reached_through_what_it_was_shown() -> None:
    chunks = [chunk(1), chunk(2, shown=(1,), memory=2)]
    generations = [GenerationFact(memory_id=memory, generation=1, through_position=5) for memory in (1, 2, 3)]
    taint = spread(
        chunks,
        generations,
        covering=[1],
        words=SECRET,
        said=lambda ids: dict.fromkeys(ids, SECRET),
        own_words=lambda _: (),
    )
    assert taint == Taint(chunks=frozenset({1, 2}), generations=frozenset({(1, 1), (2, 1)}))
    assert taint.generations_of(2) == {1}
    assert taint.generations_of(3) == frozenset()


def test_reflections_above_the_lowest_tainted_position_go_and_those_below_stay() -> None:
    chunks = [chunk(n) for n in range(1, 8)]
    assert found(chunks, [4], 2, 3, 4, 7).generations_of(1) == {3, 4}


def test_a_note_that_was_shown_an_erased_reflection_goes_if_it_repeats_it_and_takes_later_reflections_along() -> None:
    taint = found([chunk(1), chunk(2), chunk(3, generation=1)], [1], 2, 3, say=[3])
    assert taint == Taint(chunks=frozenset({1, 3}), generations=frozenset({(1, 1), (1, 2)}))


def test_a_buffered_chunk_has_no_position_and_taints_no_reflection() -> None:
    assert found([chunk(1), chunk(2, buffered=True)], [2], 1) == Taint(chunks=frozenset({2}))


Words: TypeAlias = dict[int, frozenset[str]]
World: TypeAlias = tuple[list[ChunkFact], list[GenerationFact], Words, Words]
WORDS = st.frozensets(st.sampled_from(["zebra", "tea", "box", "key"]), max_size=3)


@st.composite
def worlds(draw: st.DrawFn) -> World:
    """Chunks in the order in which they were made: each was shown some of the earlier ones, of two memories."""
    chunks: list[ChunkFact] = []
    generations: list[GenerationFact] = []
    said: Words = {}
    own: Words = {}
    for number in range(1, draw(st.integers(1, 9)) + 1):
        memory = draw(st.integers(1, 2))
        made = [one.generation for one in generations if one.memory_id == memory]
        chunks.append(
            ChunkFact(
                id=number,
                memory_id=memory,
                thread_id=memory * 10 + draw(st.integers(0, 1)),
                from_seq=number,
                to_seq=number,
                position=number if draw(st.booleans()) else None,
                shown_chunks=tuple(draw(st.sets(st.integers(1, number - 1), max_size=2))) if number > 1 else (),
                shown_generation=draw(st.sampled_from([None, *made])),
            )
        )
        said[number], own[number] = draw(WORDS), draw(WORDS)
        if draw(st.booleans()):
            generations.append(
                GenerationFact(
                    memory_id=memory, generation=len(made) + 1, through_position=draw(st.integers(0, number))
                )
            )
    return chunks, generations, said, own


def spread_in(
    world: World,
    starts: Collection[int],
    words: frozenset[str],
) -> Taint:
    chunks, generations, said, own = world
    return spread(
        chunks,
        generations,
        covering=starts,
        words=words,
        said=lambda ids: {number: said[number] for number in ids},
        own_words=lambda one: own[one.id],
    )


@given(worlds(), st.sets(st.integers(1, 9)), WORDS)
def test_what_is_tainted_is_exactly_what_the_rules_say(
    world: World,
    wanted: set[int],
    words: frozenset[str],
) -> None:
    chunks, generations, said, own = world
    starts = {one.id for one in chunks} & wanted
    taint = spread_in(world, starts, words)

    def shown(one: ChunkFact) -> bool:
        earlier = any(
            c.thread_id == one.thread_id and c.from_seq < one.from_seq for c in chunks if c.id in taint.chunks
        )
        return earlier or bool(taint.chunks & set(one.shown_chunks)) or key(one) in taint.generations

    def key(one: ChunkFact) -> tuple[int, int | None]:
        return one.memory_id, one.shown_generation

    for one in chunks:
        repeats = bool((said[one.id] & words) - own[one.id])
        assert (one.id in taint.chunks) == (one.id in starts or (shown(one) and repeats))
    for reflection in generations:
        below = [c for c in chunks if c.id in taint.chunks and c.memory_id == reflection.memory_id]
        fallen = any(c.position is not None and c.position <= reflection.through_position for c in below)
        assert (reflection.key in taint.generations) == fallen


@given(worlds(), st.sets(st.integers(1, 9)), st.sets(st.integers(1, 9)), WORDS, WORDS)
def test_removing_more_never_taints_less(
    world: World,
    first: set[int],
    more: set[int],
    words: frozenset[str],
    other: frozenset[str],
) -> None:
    ids = {one.id for one in world[0]}
    small, large = spread_in(world, first & ids, words), spread_in(world, (first | more) & ids, words | other)
    assert small.chunks <= large.chunks
    assert small.generations <= large.generations
