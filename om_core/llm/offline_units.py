"""Units: what the offline model chooses from. One sentence, one line of a result, or one condensed tool call."""

from __future__ import annotations

import heapq
import math
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence
    from datetime import datetime

Mark: TypeAlias = Literal["🔴", "🟡", "🟢", "✅"]

FAINT: Final = 0.2
"""What a common word is worth beside one of the same rarity."""
STRONG: Final = 1.3
"""The same for a number or a name."""
_AGAIN: Final = 0.55
"""What a word is still worth each time after a unit that holds it was chosen, or when earlier notes hold it."""
_FIXED: Final = 1
"""Added to a unit's length: many short units are worth less than one that says it all."""
_EPSILON: Final = 1e-9
_LOOKS: Final = 6
"""How often a unit's worth is looked at again while words around it are chosen."""
_SMALLEST: Final = 3
"""With no more tokens than this left, nothing fits any more."""


@dataclass(slots=True)
class Unit:
    """A candidate. `order` is the message it comes from; `label` who says it; `must`: chosen whatever it costs.

    `terms` are its content words; of these `faint` ones are common everywhere, `strong` ones are numbers and names.
    `length` is what these words take, for how dense they stand; `cost` the tokens it adds to the notes.
    """

    order: int
    when: datetime
    label: str
    text: str
    weight: float
    mark: Mark
    terms: tuple[str, ...]
    length: int
    cost: int
    faint: frozenset[str] = frozenset()
    strong: frozenset[str] = frozenset()
    must: bool = False
    tool: bool = False
    by_user: bool = False
    lead: bool = False
    index: int = 0


def choose(
    units: Sequence[Unit], budget: int, opening: Callable[[Unit], int], known: Collection[str] = ()
) -> list[Unit]:
    """The best units that fit the budget, in their order. Words chosen before count less each time.

    Args:
        units: candidates.
        budget: estimated tokens.
        opening: what the first unit of a message adds, for its note.
        known: words that earlier notes hold.
    """
    rarity = rarity_of(units)
    for term in known:
        if term in rarity:
            rarity[term] *= _AGAIN
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
            rarity[term] *= _AGAIN
    return [units[number] for number in sorted(chosen)]


def rarity_of(units: Sequence[Unit]) -> dict[str, float]:
    """What each word is worth: more the fewer units hold it."""
    seen = Counter(term for unit in units for term in unit.terms)
    total = len(units) + 1
    rarity = {term: math.log(total / count) for term, count in seen.items()}
    for factor, terms in (
        (FAINT, {term for unit in units for term in unit.faint}),
        (STRONG, {term for unit in units for term in unit.strong}),
    ):
        for term in terms:
            rarity[term] *= factor
    return rarity


def worth(unit: Unit, rarity: dict[str, float]) -> float:
    """How rare the unit's words are, how dense they stand, and its weight."""
    return unit.weight * sum(map(rarity.__getitem__, unit.terms)) / (unit.length + _FIXED)
