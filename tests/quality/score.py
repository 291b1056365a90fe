"""Rows of the report: each method on each dialogue, summed over the dialogues of a dataset."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

from om_core.demo.score import CacheMeter
from om_core.memory import Memory
from tests.quality.baselines import (
    COUNTER,
    METHODS,
    Counted,
    blocks,
    count,
    counted,
    every,
    full,
    log_of,
    notes_of,
    textrank,
)
from tests.quality.dialogues import Dialogue, Turn
from tests.quality.measure import answered, is_kept
from tests.quality.pipeline import Observed, observe


@dataclass
class Row:
    """Sums over dialogues. `compression` is what was asked for, 1 for everything; notes are never larger than that."""

    dataset: str
    method: str
    compression: float
    message_tokens: int = 0
    tokens: int = 0
    answers: int = 0
    answered: int = 0
    ceiling: int = 0
    evidence: int = 0
    evidence_kept: int = 0
    cacheable: list[float] = field(default_factory=list)

    def add(self, other: Row) -> None:
        """Add another dialogue's numbers."""
        for name in ("message_tokens", "tokens", "answers", "answered", "ceiling", "evidence", "evidence_kept"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.cacheable.extend(other.cacheable)

    def to_json(self) -> dict[str, Any]:
        """As the report has it: shares from 0 to 1, `cacheable_share` the mean over dialogues."""
        return {
            "dataset": self.dataset,
            "method": self.method,
            "compression": self.compression,
            "compression_reached": round(self.message_tokens / max(1, self.tokens), 3),
            "message_tokens": self.message_tokens,
            "tokens": self.tokens,
            "answer_share": _share(self.answered, self.answers),
            "answer_vs_ceiling": _share(self.answered, self.ceiling),
            "evidence_share": _share(self.evidence_kept, self.evidence),
            "cacheable_share": _share(sum(self.cacheable), len(self.cacheable)),
            "answers": self.answers,
            "evidence_turns": self.evidence,
        }


def _share(part: float, whole: float) -> float:
    return round(part / whole, 4) if whole else 0.0


@dataclass(frozen=True)
class Judge:
    """Scores what methods keep of one dialogue."""

    dialogue: Dialogue
    counted: Counted
    ceiling: int

    @classmethod
    def of(cls, dialogue: Dialogue) -> Judge:
        return cls(dialogue, counted(dialogue.turns), answered(notes_of(dialogue.turns), dialogue.answers))

    def full(self) -> Row:
        """Everything that was said."""
        return self._turns("full", 1.0, full(self.counted, 1.0), list)

    def baseline(self, name: str, compression: float) -> Row:
        """One of the other methods."""
        kept = METHODS[name](self.counted, compression)
        if name == "textrank":
            return self._row(name, compression, kept, _share_of_prefix(self._textrank_prompts(compression)))
        if name == "uniform":
            distance = len(self.dialogue.turns) / max(1, len(kept))
            return self._turns(name, compression, kept, lambda turns: every(turns, distance))
        return self._turns(name, compression, kept, lambda turns: METHODS[name](counted(turns), compression))

    def offline(self, memory: Memory, compression: float, advance: Callable[[int], None]) -> tuple[Row, Observed]:
        """The offline model in the real pipeline, and its notes."""
        thread = f"{self.dialogue.dataset}-{self.dialogue.name}-{compression:g}"
        observed = observe(memory, self.dialogue, thread=thread, advance=advance)
        places = {turn.id: number for number, turn in enumerate(self.dialogue.turns)}
        evidence = 0
        for first, last, text in observed.chunks:
            covered = self.dialogue.turns[places[first] : places[last] + 1]
            evidence += sum(turn.id in self.dialogue.evidence and is_kept(turn.text, text) for turn in covered)
        row = self._numbers("offline", compression, observed.notes(), observed.tokens, evidence)
        row.cacheable = [observed.cacheable_share]
        return row, observed

    def _turns(
        self, name: str, compression: float, kept: Sequence[Turn], again: Callable[[Sequence[Turn]], list[Turn]]
    ) -> Row:
        """A method whose prompt at each turn of the user is what it keeps of the turns so far."""
        turns = self.dialogue.turns
        ends = [number for number, turn in enumerate(turns, 1) if turn.speaker == turns[0].speaker]
        prompts = ([f"{turn.speaker}: {turn.text}" for turn in again(turns[:end])] for end in ends)
        return self._row(name, compression, kept, _share_of_prefix(prompts))

    def _textrank_prompts(self, compression: float) -> Iterator[list[str]]:
        """Summaries of the finished blocks, then what was said since."""
        done: list[str] = []
        for block in blocks(self.counted):
            said = [f"{turn.speaker}: {turn.text}" for turn in block.turns]
            yield from ([*done, *said[:end]] for end in accumulate([1] * len(said)))
            done.append(log_of(textrank(block, compression)))

    def _row(self, name: str, compression: float, kept: Sequence[Turn], cacheable: float) -> Row:
        sessions: dict[str, list[str]] = {}
        for turn in kept:
            sessions.setdefault(turn.session, []).append(turn.text)
        gold = [turn for turn in self.dialogue.turns if turn.id in self.dialogue.evidence]
        evidence = sum(is_kept(turn.text, " ".join(sessions.get(turn.session, ()))) for turn in gold)
        row = self._numbers(name, compression, notes_of(kept), COUNTER.count_text(log_of(kept)), evidence)
        row.cacheable = [cacheable]
        return row

    def _numbers(self, name: str, compression: float, notes: Sequence[str], tokens: int, evidence: int) -> Row:
        ids = {turn.id for turn in self.dialogue.turns}
        return Row(
            dataset=self.dialogue.dataset,
            method=name,
            compression=compression,
            message_tokens=self.counted.total,
            tokens=tokens,
            answers=len(self.dialogue.answers),
            answered=answered(notes, self.dialogue.answers),
            ceiling=self.ceiling,
            evidence=len(self.dialogue.evidence & ids),
            evidence_kept=evidence,
        )


def _share_of_prefix(prompts: Iterable[list[str]]) -> float:
    meter = CacheMeter(count)
    for prompt in prompts:
        meter.add_pieces(prompt)
    return meter.share
