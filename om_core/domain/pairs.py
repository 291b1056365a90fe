"""Calls and results for sending: never a call without a result directly after it, nor a result without its call
(DESIGN 2.5, 2.6, 6.2). Pure, and stable: what stands before the open group is never rendered differently later.

A stored row becomes *pieces*: messages in the strict form that every provider takes. A *group* is an assistant piece
with calls and the results that follow it directly, possibly in several rows and in any order.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal, TypeAlias

from om_core.domain.message import Data, Message, Part, Reasoning, Role, Text, ToolCall, ToolResult
from om_core.domain.slices import as_text
from om_core.domain.tags import INJECTED, PLACEHOLDER, injected, is_injected, wrap

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from om_core.domain.message import StoredMessage

PieceKind: TypeAlias = Literal["message", "late", "placeholder", "marker"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """One message to send. `seq` is its row (None: a marker or placeholder), `unit` the first row of its group."""

    message: Message
    seq: int | None
    unit: int
    kind: PieceKind = "message"


@dataclass(frozen=True, slots=True, kw_only=True)
class Normalised:
    """Pieces in order; the first `stable` of them stand before the open group."""

    pieces: tuple[Piece, ...]
    stable: int


def normalise(rows: Iterable[StoredMessage], markers: Mapping[int, Sequence[Message]] | None = None) -> Normalised:
    """Turn rows into pieces.

    Args:
        rows: by seq; tombstones, system rows, what memory itself added, and rows without anything visible are passed
            over.
        markers: messages of memory's own that stand right before the row with this seq (beyond the last row: at the
            end). A marker ends an open group: what was left out there may hold its results.
    """
    builder, ahead = _Builder(), sorted((markers or {}).items())
    for row in rows:
        while ahead and ahead[0][0] <= row.seq:
            builder.add_markers(*ahead.pop(0))
        if not row.removed and row.role is not Role.SYSTEM and not is_injected(row.message):
            builder.add_row(row)
    for seq, messages in ahead:
        builder.add_markers(seq, messages)
    return builder.finish()


def is_visible(part: Part) -> bool:
    """Whether a provider is sent this part on its own account: not data, not reasoning, no blank text."""
    return not isinstance(part, Data | Reasoning) and not is_blank(part)


def is_blank(part: Part) -> bool:
    """A text of white space only, which providers refuse. Data parts stay: a format may know how to send its own."""
    return isinstance(part, Text) and not part.text.strip()


@dataclass(slots=True)
class _Group:
    """An assistant piece whose calls wait: where it begins, what is missing, and what has to stand after it."""

    start: int
    unit: int
    waiting: dict[str, ToolCall]
    deferred: list[Piece] = field(default_factory=list)


class _Builder:
    def __init__(self) -> None:
        self.pieces: list[Piece] = []
        self.group: _Group | None = None
        self.names: dict[str, str] = {}

    def add_markers(self, seq: int, messages: Sequence[Message]) -> None:
        self.close()
        self.pieces.extend(Piece(message=message, seq=None, unit=seq, kind="marker") for message in messages)

    def add_row(self, row: StoredMessage) -> None:
        for parts in _segments(row.message):
            if isinstance(parts[0], ToolResult):
                self._add_results(row, [part for part in parts if isinstance(part, ToolResult)])
            else:
                self._add_content(row, parts)

    def _add_content(self, row: StoredMessage, parts: tuple[Part, ...]) -> None:
        self.close()
        role = Role.ASSISTANT if row.role is Role.ASSISTANT else Role.USER
        same = (role, parts) == (row.role, row.parts)
        message = row.message if same else replace(row.message, role=role, parts=parts)
        self.pieces.append(Piece(message=message, seq=row.seq, unit=row.seq))
        waiting = {part.call_id: part for part in parts if isinstance(part, ToolCall)}
        self.names.update({call_id: call.name for call_id, call in waiting.items()})
        if waiting:
            self.group = _Group(start=len(self.pieces) - 1, unit=row.seq, waiting=waiting)

    def _add_results(self, row: StoredMessage, results: list[ToolResult]) -> None:
        direct: list[ToolResult] = []
        late: list[ToolResult] = []
        for result in results:
            answers = self.group is not None and self.group.waiting.pop(result.call_id, None) is not None
            (direct if answers else late).append(result)
        if direct and self.group:
            parts = tuple(direct)
            same = (row.role, row.parts) == (Role.TOOL, parts)
            message = row.message if same else replace(row.message, role=Role.TOOL, parts=parts)
            self.pieces.append(Piece(message=message, seq=row.seq, unit=self.group.unit))
        if late:
            unit = self.group.unit if self.group else row.seq
            message = injected("\n\n".join(self._quote(result) for result in late))
            piece = Piece(message=message, seq=row.seq, unit=unit, kind="late")
            (self.group.deferred if self.group else self.pieces).append(piece)
        if self.group and not self.group.waiting:
            self.close()

    def _quote(self, result: ToolResult) -> str:
        tool = result.name or self.names.get(result.call_id)
        status = None if result.status == "ok" else result.status
        return wrap("late-result", as_text(result.visible), tool=tool, call_id=result.call_id, status=status)

    def close(self) -> None:
        """End the open group: placeholders for what is missing, then what had to wait for it."""
        if self.group is None:
            return
        if self.group.waiting:
            parts = tuple(
                ToolResult(call_id=call_id, name=call.name, result=PLACEHOLDER)
                for call_id, call in self.group.waiting.items()
            )
            message = Message(role=Role.TOOL, parts=parts, metadata={INJECTED: True})
            self.pieces.append(Piece(message=message, seq=None, unit=self.group.unit, kind="placeholder"))
        self.pieces.extend(self.group.deferred)
        self.group = None

    def finish(self) -> Normalised:
        stable = len(self.pieces) if self.group is None else self.group.start
        self.close()
        return Normalised(pieces=tuple(self.pieces), stable=stable)


def _segments(message: Message) -> Iterator[tuple[Part, ...]]:
    """Runs of content and runs of results. Of a user's or a tool's message the results come first, as providers ask."""
    if message.role is not Role.ASSISTANT:
        results = tuple(part for part in message.parts if isinstance(part, ToolResult))
        rest = (part for part in message.parts if not isinstance(part, ToolResult | Reasoning))
        content = tuple(_quoted_call(part) for part in rest if not is_blank(part))
        yield from (run for run in (results, content) if any(map(is_visible, run)))
        return
    run: list[Part] = []
    for part in message.parts:
        if run and isinstance(part, ToolResult) != isinstance(run[0], ToolResult):
            yield from _checked_run(run)
            run = []
        if not is_blank(part):
            run.append(part)
    yield from _checked_run(run)


def _checked_run(run: list[Part]) -> Iterator[tuple[Part, ...]]:
    """A run of an assistant's message, unless nothing but reasoning is in it; a call id counts once.

    Reasoning belongs to exactly the parts it came with: providers refuse it beside others.
    """
    seen: set[str] = set()
    parts: list[Part] = []
    for part in run:
        repeated = isinstance(part, ToolCall) and part.call_id in seen
        if isinstance(part, ToolCall):
            seen.add(part.call_id)
        parts.append(_quoted_call(part) if repeated else part)
    if parts != run:
        parts = [part for part in parts if not isinstance(part, Reasoning)]
    if any(map(is_visible, parts)):
        yield tuple(parts)


def _quoted_call(part: Part) -> Part:
    """A call that cannot be sent as one, as text; any other part as it is."""
    if not isinstance(part, ToolCall):
        return part
    return Text(text=wrap("quoted-call", as_text(part.args), tool=part.name, call_id=part.call_id))
