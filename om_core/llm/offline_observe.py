"""The offline Observer: from messages to dated, attributed notes in the form of the prompts' answers (DESIGN 7)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import groupby
from typing import TYPE_CHECKING, Final

from om_core.domain.message import File, Image, Role, Text, ToolCall, ToolResult
from om_core.domain.tags import is_injected
from om_core.llm.offline_languages import Language, language_of
from om_core.llm.offline_prose import Said, prose_units, short_names
from om_core.llm.offline_text import estimate_tokens, is_question
from om_core.llm.offline_tools import call_head, head_unit, line_units, payload_texts
from om_core.llm.offline_units import Unit, choose, rarity_of, worth
from om_core.prompts.notes import Note, format_notes
from om_core.prompts.render import one_line, speaker_name, zone_of

if TYPE_CHECKING:
    from datetime import datetime
    from zoneinfo import ZoneInfo

    from om_core.domain.message import OpenCall, Part, StoredMessage

PROSE_RATIO: Final = 5
"""Tokens of prose per token of notes, where nothing else is asked for."""
WORK_PROSE_RATIO: Final = 3
"""The same where tool payloads are most of the range: there people say little, and what they say matters."""
TOOL_RATIO: Final = 13.5
"""Tokens of tool calls and results per token of notes."""
_LEAST: Final = 30
"""Tokens of notes that even the smallest range may have."""
_NOTE_TOKENS: Final = 100
_NOTE_SPAN: Final = timedelta(hours=1)
_NOTE_CALLS: Final = 6
_NOTE_COST: Final = 3
_TIME_SPAN: Final = timedelta(hours=1)
"""So much later than the last time that was given, a note gives its own."""
_LANGUAGE_MESSAGES: Final = 50
_LANGUAGE_CHARS: Final = 400
_END_CHARS: Final = 200
_MARK_RANK: Final = {"🔴": 3, "✅": 2, "🟡": 1, "🟢": 0}


@dataclass(slots=True)
class Range:
    """What a range of messages offers: units of prose and of tools, and the tokens of what they come from."""

    prose: list[Unit] = field(default_factory=list)
    tools: list[Unit] = field(default_factory=list)
    prose_tokens: int = 0
    tool_tokens: int = 0

    @property
    def is_work(self) -> bool:
        """Whether tool payloads are most of the range."""
        return self.tool_tokens > 2 * self.prose_tokens

    def budgets(self, target_tokens: int | None) -> tuple[int, int]:
        """Tokens for notes from prose and from tools."""
        prose = self.prose_tokens // (WORK_PROSE_RATIO if self.is_work else PROSE_RATIO)
        tools = int(self.tool_tokens / TOOL_RATIO)
        if target_tokens is None:
            return max(prose, _LEAST), max(tools, min(self.tool_tokens, _LEAST))
        share = prose / max(1, prose + tools)
        return round(target_tokens * share), round(target_tokens * (1 - share))


def read_range(
    messages: Iterable[StoredMessage],
    *,
    timezone: str,
    open_calls: Iterable[OpenCall] = (),
    count: Callable[[str], int] = estimate_tokens,
) -> Range:
    """The units of a range, dated in its zone. `count` gives the tokens of what was said."""
    seen = [
        message
        for message in messages
        if not message.removed and message.role is not Role.SYSTEM and not is_injected(message.message)
    ]
    reader = _Reader(
        zone=zone_of(timezone),
        open_ids=frozenset(call.call_id for call in open_calls),
        count=count,
        names=short_names({_label(message) for message in seen if message.message.author}),
        language=language_of("\n".join(_opening_text(message) for message in seen[:_LANGUAGE_MESSAGES])),
    )
    for message in seen:
        for part in message.parts:
            reader.read(message, part)
    reader.finish()
    return reader.found


def _label(message: StoredMessage) -> str:
    return speaker_name((message.message.author or "")[:60]) or message.role.value.capitalize()


def _opening_text(message: StoredMessage) -> str:
    return next((part.text[:_LANGUAGE_CHARS] for part in message.parts if isinstance(part, Text)), "")


@dataclass
class _Reader:
    zone: ZoneInfo
    open_ids: frozenset[str]
    count: Callable[[str], int]
    names: frozenset[str]
    language: Language
    found: Range = field(default_factory=Range)
    calls: dict[str, tuple[int, datetime, ToolCall]] = field(default_factory=dict)
    similar: Counter[str] = field(default_factory=Counter)
    asked_by: str | None = None
    """Who ended their last words with a question."""

    def read(self, message: StoredMessage, part: Part) -> None:
        when = (part.created_at or message.created_at).astimezone(self.zone)
        if isinstance(part, Text):
            self._prose(message, part.text, when)
        elif isinstance(part, Image | File):
            label = (part.filename if isinstance(part, File) else None) or part.mime_type or "attachment"
            self._prose(message, f"sent {type(part).__name__.lower()} {label[:80]} 1", when)
        elif isinstance(part, ToolCall):
            self.calls[part.call_id] = (message.seq, when, part)
        elif isinstance(part, ToolResult):
            _, _, call = self.calls.pop(part.call_id, (0, when, None))
            self._tool(message.seq, when, call, part)

    def _prose(self, message: StoredMessage, text: str, when: datetime) -> None:
        label = _label(message)
        said = Said(
            text,
            order=message.seq,
            when=when,
            label=label,
            is_user=message.role is Role.USER or message.message.author is not None,
            answers=self.asked_by not in {None, label},
            names=self.names,
            default=self.language,
            count=self.count,
        )
        for unit in prose_units(said):
            unit.by_user = message.role is Role.USER
            key = f"{unit.label}\n{unit.text}"
            self.similar[key] += 1
            if self.similar[key] == 1:
                self.found.prose.append(unit)
        self.found.prose_tokens += self.count(text)
        self.asked_by = label if is_question(text[-_END_CHARS:].rstrip()) else None

    def _tool(self, order: int, when: datetime, call: ToolCall | None, result: ToolResult | None) -> None:
        name = one_line((call.name if call else None) or (result.name if result else None) or "") or "tool"
        status = "" if result else " (no result yet)"
        if result is not None and result.status != "ok":
            status = f" ({'failed' if result.status == 'error' else result.status})"
        head = f"{call_head(name, call.args if call else None)}{status}"
        self.found.tools.append(head_unit(head, order=order, when=when, failed=bool(status)))
        self.found.tool_tokens += estimate_tokens(head)
        for text, weight in payload_texts(call, result):
            self.found.tool_tokens += len(text) // 4
            units = line_units(text, weight, order=order, when=when, label=head, similar=self.similar)
            self.found.tools.extend(units)

    def finish(self) -> None:
        """Calls whose result is not in the range."""
        for order, when, call in self.calls.values():
            self._tool(order, when, call, None)


def select(found: Range, prose_budget: int, tool_budget: int, known: Collection[str] = ()) -> list[Unit]:
    """What is worth a note, in order of the messages. What is `known` from earlier notes is worth less."""
    if found.is_work:
        _keep_one_per_user_message(found.prose)
    prose = choose(found.prose, prose_budget, lambda unit: _NOTE_COST, known)
    tools = choose(found.tools, tool_budget, lambda unit: estimate_tokens(unit.label) + _NOTE_COST)
    return sorted([*prose, *tools], key=lambda unit: unit.order)


def _keep_one_per_user_message(units: Sequence[Unit]) -> None:
    """Where people say little, the best sentence of each of their messages is kept."""
    rarity = rarity_of(units)
    best: dict[int, tuple[float, Unit]] = {}
    for unit in units:
        value = worth(unit, rarity)
        if unit.by_user and (unit.order not in best or value > best[unit.order][0]):
            best[unit.order] = (value, unit)
    for _, unit in best.values():
        unit.must = True


def notes_of(units: Sequence[Unit], *, timed: bool = True) -> str:
    """The chosen units as notes: neighbours of one time share a note, calls after the first become details.

    Args:
        units: in order of the messages.
        timed: whether notes give their time of day, once an hour, and not only their day.
    """
    notes: list[Note] = []
    shown: datetime | None = None
    group: list[Unit] = []
    for unit in [*units, None]:
        if group and (unit is None or not _belongs(group, unit)):
            when = group[0].when
            is_timed = timed and (shown is None or shown.date() != when.date() or abs(when - shown) >= _TIME_SPAN)
            shown = when if is_timed else shown
            notes.extend(_group_notes(group, is_timed=is_timed))
            group = []
        if unit is not None:
            group.append(unit)
    return format_notes(notes)


def _belongs(group: Sequence[Unit], unit: Unit) -> bool:
    first, last = group[0], group[-1]
    if unit.tool and last.tool and unit.order == last.order:
        return True
    near = first.when.date() == unit.when.date() and abs(unit.when - first.when) <= _NOTE_SPAN
    if unit.tool:
        return near and len({one.order for one in group}) < _NOTE_CALLS
    return near and not last.tool and sum(one.cost for one in group) + unit.cost <= _NOTE_TOKENS


def _group_notes(group: Sequence[Unit], *, is_timed: bool) -> list[Note]:
    """One note; if it has calls, each but the opening one is a detail."""
    lines: list[str] = []
    for _, members in groupby(group, key=lambda unit: (unit.tool, unit.order if unit.tool else 0)):
        part = list(members)
        lines.extend(_call_lines(part) if part[0].tool else [_said_line(part)])
    if not lines:
        return []
    first, *details = _folded(lines)
    mark = max((unit.mark for unit in group), key=_MARK_RANK.__getitem__)
    day, time = group[0].when.date(), f"{group[0].when:%H:%M}" if is_timed else None
    return [
        Note(date=day, time=time, priority=mark, text=first),
        *(Note(date=day, text=line, depth=1) for line in details),
    ]


def _call_lines(part: Sequence[Unit]) -> list[str]:
    """The call with what its result said; more than fits one line goes into lines of its own."""
    lines: list[list[str]] = [[]]
    size = 0
    for unit in sorted(part, key=lambda unit: not unit.lead):
        if size + unit.cost > _NOTE_TOKENS and lines[-1]:
            lines.append([])
            size = 0
        lines[-1].extend([unit.text] if unit.text else [])
        size += unit.cost
    first, *more = ("; ".join(line) for line in lines)
    return [f"{part[0].label}: {first}" if first else part[0].label, *more]


def _said_line(part: Sequence[Unit]) -> str:
    """What each speaker said, under their name once, in the order in which they began."""
    said: dict[str, list[str]] = {}
    for unit in part:
        said.setdefault(unit.label, []).append(unit.text)
    return ". ".join(f"{label}: {'; '.join(texts)}" for label, texts in said.items())


def _folded(lines: Sequence[str]) -> list[str]:
    """Equal lines in a row become one with their number."""
    counted = ((line, sum(1 for _ in same)) for line, same in groupby(lines))
    return [line if number == 1 else f"{line} (×{number})" for line, number in counted]
