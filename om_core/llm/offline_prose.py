"""What people and models say, as units: each sentence weighed by what it is about, its days worked out."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from om_core.llm.offline_dates import has_day, with_days
from om_core.llm.offline_languages import ENGLISH, UNSPACED, Language, language_of
from om_core.llm.offline_text import estimate_tokens, is_question, sentences, stem, terse, words
from om_core.llm.offline_units import Mark, Unit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from datetime import datetime

OUTCOME: Final = re.compile(
    r"\b(?:error|fail(?:ed|s|ure|ures)?|exception|traceback|denied|refused|not found|fixed|passed|succe\w{2,8}|"
    r"complet\w{2,3}|committed|merged|closed|blocked|broken|root cause)\b",
    re.IGNORECASE,
)
_DIGIT: Final = re.compile(r"\d")
_QUOTED: Final = re.compile(r"[\"“”«»「『][^\W_]|`[^`]{2,80}`|\w[./_]\w")
_NAMED: Final = re.compile(r"(?<=[a-z,;] )[A-Z][\w'’-]+")
_ORDINAL: Final = re.compile(r"\W{0,3}\d{1,2}[.)]")
"""Of a list, which a line break has parted from its item."""
_CAPTION: Final = re.compile(r"\[(?:image|photo|picture|video|audio|file): (.{1,600})\]", re.IGNORECASE)
_SHOWS: Final = re.compile(
    r"(?:an? )?(?:photo|photography|picture|image|close up|view|screenshot)s? (?:of|showing) (?:an? |the )?",
    re.IGNORECASE,
)
_POINTS: Final = re.compile(
    r"\b(?:here(?:'s|’s| is| are)|check (?:it |this |them )?out|look at|this is|pic|pics|photo|picture|snapshot|"
    r"(?:i|we) (?:made|painted|took|drew|built|wrote|got|found|bought))\b",
    re.IGNORECASE,
)

_USER: Final = 2.0
"""Somebody, and not the model that answers them: what memory is for."""
_QUESTION: Final = 0.2
_LISTENER: Final = 0.35
"""About the listener, or polite, and not about the speaker."""
_PRAISE: Final = 0.5
_OWN: Final = 1.2
_EVENT: Final = 1.3
_DATED: Final = 1.2
_NUMBER: Final = 1.4
_QUOTE: Final = 1.4
_NAME: Final = 1.4
_FIRM: Final = 1.15
_RESULT: Final = 1.25
_ANSWER: Final = 1.5
"""The first two sentences after a question of somebody else."""
_ANSWER_SENTENCES: Final = 2
_PICTURE: Final = 0.7
_SHOWN: Final = 1.5
"""A picture that the message speaks of."""
_SHORT_NAME: Final = 3
_GREETINGS: Final = frozenset({"hey", "hi", "hello", "thanks", "wow", "bye", "yeah", "oh"})
_SMALL_TALK: Final = 0.46
"""Sentences of a few words that weigh less than this say nothing."""
_FEW_WORDS: Final = 4
_FEW_PAIRS: Final = 8
"""The same in pairs of characters, where words stand without blanks."""


@dataclass(frozen=True, slots=True)
class Said:
    """A text and its circumstances.

    `answers`: somebody else asked a question just before. `names`: of the speakers, also shortened, in lower case.
    `default`: the language of a text that does not tell. `count`: tokens of a text.
    """

    text: str
    order: int
    when: datetime
    label: str
    is_user: bool
    answers: bool = False
    names: frozenset[str] = frozenset()
    default: Language = ENGLISH
    count: Callable[[str], int] = estimate_tokens


def prose_units(said: Said) -> list[Unit]:
    """The sentences of a text as units; what says nothing is left out."""
    language = language_of(said.text, said.default)
    points = _POINTS.search(said.text[:2_000]) is not None
    found: list[Unit] = []
    for number, sentence in enumerate(sentences(said.text)):
        caption = _CAPTION.search(sentence)
        unit = (
            _caption_unit(caption[1], said, points=points)
            if caption
            else _sentence_unit(sentence, said, language, answers=said.answers and number < _ANSWER_SENTENCES)
        )
        if unit is not None:
            found.append(unit)
    return found


def _caption_unit(caption: str, said: Said, *, points: bool) -> Unit | None:
    text = terse(_SHOWS.sub("", caption.strip()))
    weight = _PICTURE * (_SHOWN if points else 1.0)
    return _unit(f"image: {text}", said, ENGLISH, set(words(text)), weight=weight, mark="🟡") if text else None


def _sentence_unit(sentence: str, said: Said, language: Language, *, answers: bool) -> Unit | None:
    if _ORDINAL.fullmatch(sentence) and not answers:
        return None
    addressed = _without_names(sentence, said.names)
    text = terse(with_days(addressed, said.when.date(), language.code), language)
    weight, mark = weigh(addressed, language, is_user=said.is_user, dated=has_day(addressed, language.code))
    weight *= _ANSWER if answers and not is_question(sentence) else 1.0
    terms = set(words(text, language.dropped))
    content = terms - _stems(language)
    if not text or not (content or _DIGIT.search(text)):
        return None
    few = _FEW_PAIRS if language in UNSPACED else _FEW_WORDS
    if weight < _SMALL_TALK * (_USER if said.is_user else 1.0) and len(content) < few:
        return None
    return _unit(text, said, language, terms, weight=weight, mark=mark)


def _unit(shown: str, said: Said, language: Language, terms: set[str], *, weight: float, mark: Mark) -> Unit:
    cost = said.count(f" {shown}") + 1
    faint, strong = word_classes(terms, shown, language)
    return Unit(
        order=said.order,
        when=said.when,
        label=said.label,
        text=shown,
        weight=weight,
        mark=mark,
        terms=tuple(sorted(terms)),
        length=cost,
        cost=cost,
        faint=faint,
        strong=strong,
    )


def word_classes(terms: set[str], text: str, language: Language) -> tuple[frozenset[str], frozenset[str]]:
    """Which of a text's content words are common everywhere, and which are numbers or names."""
    names = {stem(name.lower()) for name in _NAMED.findall(text)} if language.capitals_are_names else set()
    strong = frozenset(term for term in terms if _DIGIT.search(term) or term in names)
    return frozenset(terms & _stems(language)), strong


@lru_cache
def _stems(language: Language) -> frozenset[str]:
    """The common words of a language as `words` gives them."""
    return frozenset(map(stem, language.common))


def _without_names(sentence: str, names: frozenset[str]) -> str:
    """The sentence without the names of those who are addressed: at its start or end, set apart by a comma."""
    if not names:
        return sentence
    tokens = sentence.split()
    kept: list[str] = []
    for position, token in enumerate(tokens):
        before, last = (tokens[position - 1] if position else ""), position == len(tokens) - 1
        opens = position == 0 or before.endswith(",") or (position == 1 and before.lower() in _GREETINGS)
        if not (opens and (last or token.endswith((",", "!"))) and _is_name(token, names)):
            kept.append(token)
    return " ".join(kept)


def _is_name(token: str, names: frozenset[str]) -> bool:
    return token.strip(",.!?…").lower() in names


def short_names(names: Iterable[str]) -> frozenset[str]:
    """The names in lower case, and as people shorten them: from three letters on."""
    lower = {name.lower() for name in names}
    return frozenset(name[:end] for name in lower for end in range(min(_SHORT_NAME, len(name)), len(name) + 1))


def weigh(sentence: str, language: Language, *, is_user: bool, dated: bool) -> tuple[float, Mark]:
    """How much a sentence tells, and its mark: what people say of themselves is what memory is for."""
    weight = _USER if is_user else 1.0
    own = language.own.search(sentence) is not None
    firm = language.firm.search(sentence) is not None
    for factor, holds in (
        (_OWN, own),
        (_EVENT, language.event.search(sentence)),
        (_DATED, dated),
        (_NUMBER, _DIGIT.search(sentence)),
        (_QUOTE, _QUOTED.search(sentence)),
        (_NAME, language.capitals_are_names and _NAMED.search(sentence)),
        (_FIRM, firm),
        (_RESULT, OUTCOME.search(sentence)),
        (_LISTENER, not own and (language.addressed.search(sentence) or language.polite.match(sentence))),
        (_PRAISE, language.praise.search(sentence)),
        (_QUESTION, is_question(sentence)),
    ):
        weight *= factor if holds else 1.0
    return weight, "🔴" if is_user and (own or firm) and not is_question(sentence) else "🟡"
