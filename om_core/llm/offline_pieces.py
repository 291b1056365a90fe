"""A note as its pieces, `Ann: likes figs; has 2 cats. Bob: sails`, so that a part of it can be left out."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final

_LABEL: Final = re.compile(r"([^:;]{1,140}?): (?=\S)")
_NEXT_LABEL: Final = re.compile(r"\. (?=[^\s.:;(][^.:;]{0,59}: \S)")
_BETWEEN: Final = "; "
_MOST: Final = 200
"""Cuts in what one speaker says in a note; the rest stays together."""


@dataclass(frozen=True, slots=True)
class Piece:
    """What stands between two marks of a note, and whose words, or which command's result, it is."""

    label: str
    text: str


def pieces_of(text: str) -> list[Piece]:
    """The pieces of a note in order; joined again they are the note."""
    found: list[Piece] = []
    for said in _NEXT_LABEL.split(text):
        match = _LABEL.match(said)
        label, rest = (match[1], said[match.end() :]) if match else ("", said)
        found.extend(Piece(label, piece) for piece in rest.split(_BETWEEN, _MOST))
    return found


def joined(pieces: Sequence[Piece], kept: Collection[int]) -> str:
    """The note with those of its pieces whose numbers are kept, each speaker named once."""
    chosen = [piece for number, piece in enumerate(pieces) if number in kept]
    return ". ".join(
        f"{label}: {words}" if label else words
        for label, words in (
            (label, _BETWEEN.join(piece.text for piece in said))
            for label, said in groupby(chosen, key=lambda piece: piece.label)
        )
    )
