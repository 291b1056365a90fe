"""Words and sentences for the offline model: any language, linear time, standard library."""

from __future__ import annotations

import re
from typing import Final

from om_core.llm.offline_languages import ENGLISH, Language

MAX_SENTENCE: Final = 600
"""Characters; what is longer and has no end is cut here."""

_UNSPACED: Final = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
_WORD: Final = re.compile(rf"[{_UNSPACED}]++|[^\W{_UNSPACED}_]++")
_UNSPACED_RUN: Final = re.compile(rf"[{_UNSPACED}]")
_SENTENCE_END: Final = re.compile(r"(?<=[.!?…؟۔।])[\"'”’)\]]?\s+|(?<=[。！？；])|\n+")
_MARKUP: Final = re.compile(r"</?[A-Za-z][\w.:-]{0,60}+>|\*\*|`{1,3}|^[#>\s]{1,8}+", re.MULTILINE)
_EDGES: Final = '.,;:!?…"“”«»*–—。！；，،؛؟।¡¿'
_PAUSES: Final = ".,;:!?…"
_ELISION: Final = re.compile(r"\b(?:[cdjlmst]|qu)['’](?=\w)", re.IGNORECASE)

_STOP_TEXT: Final = """
but if no not he she they him his her them what which who when where how why all one m s t ve re ll d don doesn didn isn
wasn know think going go good great thing things make time lot much get got getting many more most
"""
STOP: Final = ENGLISH.dropped | frozenset(_STOP_TEXT.split())
"""Not counted as content in what tools and notes say, which is mostly English."""


def words(text: str, stop: frozenset[str] = STOP) -> list[str]:
    """Content words in lower case; runs without spaces (as in Chinese) give their pairs of characters."""
    found: list[str] = []
    for word in _WORD.findall(text.lower()):
        if _UNSPACED_RUN.match(word):
            found.extend(word[start : start + 2] for start in range(max(1, len(word) - 1)))
        elif word not in stop:
            found.append(stem(word))
    return found


def stem(word: str) -> str:
    """The word without the commonest English endings, so that forms of one word count as one."""
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


def is_question(sentence: str) -> bool:
    """Whether a sentence ends with a question mark of any script."""
    return sentence.endswith(("?", "？", "؟"))


def terse(sentence: str, language: Language = ENGLISH) -> str:
    """The sentence without words a reader restores. Negations, conditions and other persons stay."""
    if language.code == "fr":
        sentence = _ELISION.sub("", sentence)
    kept: list[str] = []
    tokens = sentence.split()
    for position, token in enumerate(tokens, 1):
        bare = token.strip(_EDGES)
        lower = bare.lower().replace("’", "'")
        following = tokens[position] if position < len(tokens) and token[-1] not in _PAUSES else ""
        if lower in language.ornaments and following[:1].islower():
            continue
        if bare.strip("-") and lower not in language.dropped:
            kept.append(bare + token[-1] if is_question(token) else bare)
    return " ".join(kept)


_COST: Final = re.compile(rf"[{_UNSPACED}]|[A-Za-z]+|\d{{1,3}}|[^\w\s]|\w")


def estimate_tokens(text: str) -> int:
    """About the tokens of a text, a little too many for prose; quick, for choosing. The real count comes at the end."""
    return sum(1 + (len(match) - 1) // 9 for match in _COST.findall(text))
