"""Other ways to shorten a dialogue, at the same size: the newest messages, every k-th, TextRank's sentences, all."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import date
from functools import lru_cache
from itertools import groupby
from math import ceil
from typing import Any, Final, TypeAlias

from om_core.llm.offline_text import sentences
from om_core.prompts.notes import day_line
from om_core.tokens import TiktokenCounter
from tests.quality.dialogues import Turn
from tests.quality.measure import spoken_date

COUNTER: Final = TiktokenCounter()
count: Final = lru_cache(200_000)(COUNTER.count_text)
BLOCK_TOKENS: Final = 6_000
"""TextRank ranks the sentences of so many tokens of messages at a time: as much as one observation reads by default."""

_MORE: Final = 1.6
"""So many times its share of the messages is tried at most: they may be short ones."""

Method: TypeAlias = Callable[["Counted", float], list[Turn]]


@dataclass(frozen=True)
class Counted:
    """A dialogue's turns with the tokens of each."""

    turns: tuple[Turn, ...]
    tokens: tuple[int, ...]

    @property
    def total(self) -> int:
        return sum(self.tokens)


def counted(turns: Sequence[Turn]) -> Counted:
    return Counted(tuple(turns), tuple(count(turn.text) for turn in turns))


def log_of(turns: Sequence[Turn]) -> str:
    """The kept turns written as a log is: a header for each day, a line with the speaker for each turn."""
    lines: list[str] = []
    for day, said in groupby(turns, key=lambda turn: turn.began.date()):
        lines.append(day_line(day))
        lines.extend(_line(turn) for turn in said)
    return "\n".join(lines)


def notes_of(turns: Sequence[Turn]) -> list[str]:
    """The kept turns as the measure reads them, each with its date."""
    return [f"{spoken_date(turn.began)} {turn.speaker} {turn.text}" for turn in turns]


def _line(turn: Turn) -> str:
    return f"* {turn.speaker}: {turn.text}"


def _cost(before: Turn | None, turn: Turn) -> int:
    """Tokens that a turn adds to the log behind another one."""
    header = before is None or before.began.date() != turn.began.date()
    return count(f"{_line(turn)}\n") + (count(f"{day_line(turn.began.date())}\n") if header else 0)


def _size(turns: Sequence[Turn]) -> int:
    """Tokens of the log of these turns, line by line: a few more than counted at once, and much quicker."""
    return sum(_cost(before, turn) for before, turn in zip((None, *turns), turns, strict=False))


def full(dialogue: Counted, compression: float) -> list[Turn]:
    """Everything; the ceiling."""
    return list(dialogue.turns)


def last_n(dialogue: Counted, compression: float) -> list[Turn]:
    """The newest messages that fit."""
    room = dialogue.total / compression
    kept: list[Turn] = []
    for turn in reversed(dialogue.turns):
        # Counted from the end, a header is paid by the first turn of its day that was taken.
        room -= _cost(kept[-1] if kept else None, turn)
        if room < 0:
            break
        kept.append(turn)
    return kept[::-1]


def uniform(dialogue: Counted, compression: float) -> list[Turn]:
    """Messages at equal distances, as many as fill the room best."""
    room = dialogue.total / compression
    likely = len(dialogue.turns) / compression
    numbers = range(1, min(len(dialogue.turns), int(likely * _MORE)) + 1)
    kept = [every(dialogue.turns, len(dialogue.turns) / number) for number in numbers]
    return max((turns for turns in kept if _size(turns) <= room), key=_size, default=[])


def every(turns: Sequence[Turn], distance: float) -> list[Turn]:
    """Every k-th turn from the first on; the distance may be broken."""
    places = (int(index * distance) for index in range(ceil(len(turns) / distance)))
    return [turns[place] for place in places if place < len(turns)]


def textrank(dialogue: Counted, compression: float) -> list[Turn]:
    """The sentences that TextRank puts first, in their order."""
    kept: list[Turn] = []
    for block in blocks(dialogue):
        kept.extend(_best_of(block, compression))
    return kept


def blocks(dialogue: Counted) -> list[Counted]:
    """The turns in parts of `BLOCK_TOKENS`."""
    found: list[Counted] = []
    start = size = 0
    for index, tokens in enumerate(dialogue.tokens, 1):
        size += tokens
        if size >= BLOCK_TOKENS or index == len(dialogue.tokens):
            found.append(Counted(dialogue.turns[start:index], dialogue.tokens[start:index]))
            start, size = index, 0
    return found


def _best_of(block: Counted, compression: float) -> list[Turn]:
    """The best sentences of one block that fit its share, as turns that hold nothing else."""
    said = [(index, sentence) for index, turn in enumerate(block.turns) for sentence in sentences(turn.text)]
    room = block.total / compression
    taken: list[int] = []
    turns: set[int] = set()
    days: set[date] = set()
    for number in ranked(tuple(sentence for _, sentence in said)):
        index, sentence = said[number]
        turn = block.turns[index]
        day = turn.began.date()
        cost = count(f" {sentence}")
        cost += 0 if index in turns else count(f"* {turn.speaker}:\n")
        cost += 0 if day in days else count(f"{day_line(day)}\n")
        if cost <= room:
            room -= cost
            taken.append(number)
            turns.add(index)
            days.add(day)
    return _only(block.turns, said, sorted(taken))


def _only(turns: Sequence[Turn], said: Sequence[tuple[int, str]], taken: Sequence[int]) -> list[Turn]:
    """The turns of the taken sentences, with these alone as text."""
    chosen = groupby(taken, key=lambda number: said[number][0])
    return [replace(turns[index], text=" ".join(said[number][1] for number in numbers)) for index, numbers in chosen]


class _Words:
    """What sumy asks of a tokenizer; its own needs a model that is downloaded."""

    def to_words(self, sentence: str) -> tuple[str, ...]:
        return tuple(re.findall(r"\w+", sentence))


@lru_cache(500)
def ranked(said: tuple[str, ...]) -> list[int]:
    """The numbers of the sentences, the best first, as sumy's TextRank rates them."""
    from sumy.models.dom import ObjectDocumentModel, Paragraph, Sentence
    from sumy.summarizers.text_rank import TextRankSummarizer

    parsed: list[Any] = [Sentence(sentence, _Words()) for sentence in said]
    numbers = {id(sentence): number for number, sentence in enumerate(parsed)}
    document = ObjectDocumentModel([Paragraph(parsed)])
    ratings = TextRankSummarizer().rate_sentences(document)
    best = {numbers[id(sentence)]: float(rating) for sentence, rating in ratings.items()}
    return sorted(best, key=lambda number: (-best[number], number))


METHODS: Final[dict[str, Method]] = {"last_n": last_n, "uniform": uniform, "textrank": textrank}
