"""Events in words, for people who watch (`om watch`, the dashboard)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from om_core.ports import EventRow

_SIZES: Final = (
    ("tokensToBuffer", "{:,} tokens to read"),
    ("tokensToObserve", "{:,} tokens to read"),
    ("tokensBuffered", "{:,} tokens read"),
    ("tokensObserved", "{:,} tokens read"),
    ("bufferedTokens", "{:,} tokens of notes"),
    ("tokensActivated", "{:,} tokens"),
    ("observationTokens", "{:,} tokens of notes"),
    ("tokensAttempted", "{:,} tokens"),
)


def event_line(row: EventRow) -> str:
    """One event in words: time, kind, sizes."""
    data = row.payload
    sizes = [form.format(data[name]) for name, form in _SIZES if isinstance(data.get(name), int)]
    extra = [str(data[name]) for name in ("triggeredBy", "newTitle", "error") if data.get(name)]
    what = f"{data['operationType']} " if data.get("operationType") else ""
    kind = row.type.removeprefix("data-om-")
    return f"{row.created_at:%H:%M:%S}  {kind:<18} {what}{', '.join([*extra, *sizes])}"
