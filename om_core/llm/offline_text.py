"""Words and sentences for the offline model: any language, linear time, standard library."""

from __future__ import annotations

import re
from typing import Final

MAX_SENTENCE: Final = 600
"""Characters; what is longer and has no end is cut here."""

_UNSPACED: Final = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
_WORD: Final = re.compile(rf"[{_UNSPACED}]++|[^\W{_UNSPACED}_]++")
_UNSPACED_RUN: Final = re.compile(rf"[{_UNSPACED}]")
_SENTENCE_END: Final = re.compile(r"(?<=[.!?…])[\"'”’)\]]?\s+|(?<=[。！？；])|\n+")
_MARKUP: Final = re.compile(r"</?[A-Za-z][\w.:-]{0,60}+>|\*\*|`{1,3}|^[#>\s]{1,8}+", re.MULTILINE)
_EDGES: Final = '.,;:!?…"“”*–—。！；，'

_FUNCTION: Final = """
a an the of is was are were be been being am i'm i it it's its that's that this these those so and or have has
had do does did i've i'd will would can could there there's here as than then you'll we'll they'll he'll she'll i'll
it'll that'll who's what's you're we're they're he's she's we've you've let's in at on for by with about into up
out my your our
"""
_FILLER: Final = """
really just very super quite pretty totally absolutely definitely actually basically literally simply like also too even
well oh wow hey hi hello yeah yep okay ok sure please thanks thank glad haha lol hmm ah gonna gotta kinda sorta much
some any get got getting
"""
_COMMON: Final = """
but if no not me we us he she they them him his her their what which who when where how why all one i m s t ve re ll
d don doesn didn isn wasn know think going go good great thing things make time lot you your
"""
DROPPED: Final = frozenset((*_FUNCTION.split(), *_FILLER.split()))
"""Left out of notes: a reader restores them. Negations, conditions and persons stay, they carry meaning."""
STOP: Final = DROPPED | frozenset(_COMMON.split())
"""Not counted as content."""


def words(text: str) -> list[str]:
    """Content words in lower case; runs without spaces (as in Chinese) give their pairs of characters."""
    found: list[str] = []
    for word in _WORD.findall(text.lower()):
        if _UNSPACED_RUN.match(word):
            found.extend(word[start : start + 2] for start in range(max(1, len(word) - 1)))
        elif word not in STOP:
            found.append(_stem(word))
    return found


def _stem(word: str) -> str:
    for suffix in ("ing", "ies", "ed", "es", "s"):
        if word.endswith(suffix) and len(word) - len(suffix) >= 3:
            return word[: -len(suffix)]
    return word


def sentences(text: str) -> list[str]:
    """The sentences of a text, without markup, each of bounded length."""
    found: list[str] = []
    for piece in _SENTENCE_END.split(_MARKUP.sub("", text)):
        sentence = piece.strip()
        while len(sentence) > MAX_SENTENCE:
            space = sentence.rfind(" ", MAX_SENTENCE // 2, MAX_SENTENCE)
            end = space if space > 0 else MAX_SENTENCE
            found.append(sentence[:end])
            sentence = sentence[end:].lstrip()
        if sentence:
            found.append(sentence)
    return found


def terse(sentence: str) -> str:
    """The sentence without words a reader restores."""
    kept: list[str] = []
    for token in sentence.split():
        bare = token.strip(_EDGES)
        lower = bare.lower().replace("’", "'")
        if bare.strip("-") and lower not in DROPPED:
            kept.append(bare + "?" if token.endswith("?") else bare)
    return " ".join(kept)


_COST: Final = re.compile(rf"[{_UNSPACED}]|[A-Za-z]+|\d{{1,3}}|[^\w\s]|\w")


def estimate_tokens(text: str) -> int:
    """About the tokens of a text, a little too many for prose; quick, for choosing. The real count comes at the end."""
    return sum(1 + (len(match) - 1) // 9 for match in _COST.findall(text))
