"""Units: what the offline model chooses from. One sentence, or one condensed tool call."""

from __future__ import annotations

import heapq
import math
import re
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from om_core.llm.offline_dates import meaning
from om_core.llm.offline_text import estimate_tokens, sentences, terse, words

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime

Mark: TypeAlias = Literal["🔴", "🟡", "🟢", "✅"]

_FIRST_PERSON: Final = re.compile(
    r"\b(?:I|I'm|I’m|I've|I’ve|I'd|I’d|I'll|my|My|mine|we|We|our|Our|me)\b|[我私僕俺吾]|저는|나는|우리"
)
_DIGIT: Final = re.compile(r"\d")
_WHEN: Final = re.compile(
    r"\b(?:yesterday|today|tomorrow|last|next|weeks?|months?|years?|weekend|since|ago|birthday|monday|tuesday|wednesday|"
    r"thursday|friday|saturday|sunday)\b",
    re.IGNORECASE,
)
_OPENING: Final = re.compile(
    r"(?:(?:well|oh|ah|yes|yeah|haha),? )?(?:wow|thanks|thank|that's|that (?:is|sounds)|"
    r"that’s|sounds|great|awesome|glad|hey|hi|cool|yeah|totally|absolutely|congrats|okay|ok|"
    r"good (?:luck|point)|no problem|let me|feel free|"
    r"you're welcome|you’re welcome|is there anything|if you (?:have|need) (?:any|further|more|other))\b",
    re.IGNORECASE,
)
DECISION: Final = re.compile(
    r"\b(?:prefer|want|need|must|should|shall|decid\w{1,5}|choose|chose|always|never|don't|do not|instead|because|"
    r"rather than|required?|favou?rite|allerg\w{1,4}|plan to|rule|constraint)\b",
    re.IGNORECASE,
)
OUTCOME: Final = re.compile(
    r"\b(?:error|fail(?:ed|s|ure|ures)?|exception|traceback|denied|refused|not found|fixed|passed|succe\w{2,8}|"
    r"complet\w{2,3}|committed|merged|closed|blocked|broken|root cause)\b",
    re.IGNORECASE,
)
_NAMED: Final = re.compile(r"(?<=[a-z,;] )[A-Z][\w'’-]+|\"[^\"]{2,80}\"|`[^`]{2,80}`|\w[./_]\w")
_BOOSTS: Final = (
    (_FIRST_PERSON, 1.35),
    (_DIGIT, 1.3),
    (_WHEN, 1.35),
    (DECISION, 1.25),
    (OUTCOME, 1.25),
    (_NAMED, 1.2),
)
_SMALL_TALK: Final = 0.9
"""Short sentences that weigh less than this say nothing."""
_EPSILON: Final = 1e-9
_LOOKS: Final = 4
"""How often a unit's worth is looked at again while words around it are chosen."""
_SMALLEST: Final = 3
"""With no more tokens than this left, nothing fits any more."""
_COMMON_TEXT: Final = """
feel look see say said tell talk want need try use come take give find work day way year people life new first last lot
keep help love nice happy best better sound hope enjoy long more most other been back here there then now
"""
_COMMON: Final = frozenset(_COMMON_TEXT.split())


@dataclass(slots=True)
class Unit:
    """A candidate. `order` is the message it comes from; `label` who says it; `must`: chosen whatever it costs."""

    order: int
    when: datetime
    label: str
    text: str
    weight: float
    mark: Mark
    terms: tuple[str, ...]
    length: int
    cost: int
    must: bool = False
    tool: bool = False
    by_user: bool = False
    lead: bool = False
    index: int = 0


def prose_units(text: str, *, order: int, when: datetime, label: str, is_user: bool) -> list[Unit]:
    """The sentences of a message as units, each with the day it speaks of."""
    return [
        unit
        for sentence in sentences(text)
        if (unit := _prose_unit(sentence, order=order, when=when, label=label, is_user=is_user)) is not None
    ]


def _prose_unit(sentence: str, *, order: int, when: datetime, label: str, is_user: bool) -> Unit | None:
    said = words(sentence)
    if len(said) < 2 and not _DIGIT.search(sentence):
        return None
    short = terse(sentence)
    if not short:
        return None
    weight, mark = _weigh(sentence, is_user=is_user)
    if weight < _SMALL_TALK and len(said) < 4:
        return None
    day = meaning(sentence, when.date())
    text = f"{short} ({day})" if day else short
    return Unit(
        order=order,
        when=when,
        label=label,
        text=text,
        weight=weight,
        mark=mark,
        terms=tuple(sorted(set(said))),
        length=len(said),
        cost=estimate_tokens(text) + 1,
    )


def _weigh(sentence: str, *, is_user: bool) -> tuple[float, Mark]:
    weight = 1.3 if is_user else 1.0
    for pattern, factor in _BOOSTS:
        if pattern.search(sentence):
            weight *= factor
    if sentence.endswith(("?", "？")):
        return weight * 0.45, "🟡"
    if _OPENING.match(sentence):
        weight *= 0.6
    personal = is_user and (_FIRST_PERSON.search(sentence) or DECISION.search(sentence))
    return weight, "🔴" if personal else "🟡"


def choose(units: Sequence[Unit], budget: int, opening: Callable[[Unit], int]) -> list[Unit]:
    """The best units that fit the budget, in their order. Words chosen before count half as much each time.

    Args:
        units: candidates.
        budget: estimated tokens.
        opening: what the first unit of a message adds, for its note.
    """
    rarity = rarity_of(units)
    heap = [(-math.inf if unit.must else -worth(unit, rarity), number, 0) for number, unit in enumerate(units)]
    heapq.heapify(heap)
    chosen: set[int] = set()
    opened: set[int] = set()
    spent = 0
    while heap and (budget - spent > _SMALLEST or heap[0][0] == -math.inf):
        value, number, looks = heapq.heappop(heap)
        unit = units[number]
        if looks < _LOOKS and not unit.must and (now := -worth(unit, rarity)) > value + _EPSILON:
            heapq.heappush(heap, (now, number, looks + 1))
            continue
        cost = unit.cost + (0 if unit.order in opened else opening(unit))
        if spent + cost > budget and not unit.must:
            continue
        spent += cost
        chosen.add(number)
        opened.add(unit.order)
        for term in unit.terms:
            rarity[term] *= 0.5
    return [units[number] for number in sorted(chosen)]


def rarity_of(units: Sequence[Unit]) -> dict[str, float]:
    """What each word is worth: more the fewer units hold it."""
    seen = Counter(term for unit in units for term in unit.terms)
    total = len(units) + 1
    return {term: math.log(total / count) * (0.4 if term in _COMMON else 1.0) for term, count in seen.items()}


def worth(unit: Unit, rarity: dict[str, float]) -> float:
    """How rare the unit's words are, how dense they stand, and its weight."""
    return unit.weight * sum(map(rarity.__getitem__, unit.terms)) / (unit.length + 3)
