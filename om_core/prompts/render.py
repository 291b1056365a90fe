"""Messages as the Observer reads them: dated in the thread's zone, attributed, bounded (DESIGN 6.10, 7).

Every entry opens at the start of a line with `[m<seq>]`; whatever content follows is indented, so no content can
open an entry of its own.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from om_core.domain.message import File, Image, Role, Text, ToolCall, ToolResult
from om_core.domain.tags import is_injected
from om_core.formats.attachments import LONG, is_picture, split_attachments
from om_core.prompts.outline import RESULT_TOKENS, args_text, cut_middle, drop_blobs, result_text
from om_core.prompts.quoting import clean_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import date, datetime, timedelta

    from om_core.domain.message import Json, OpenCall, Part, StoredMessage
    from om_core.formats.attachments import Attachment
    from om_core.ports import TextTokenizer

MONTHS: Final = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_RESULT_TITLES: Final = {
    "ok": "Tool result",
    "error": "Tool error",
    "denied": "Tool denied",
    "cancelled": "Tool cancelled",
}
_NAME_CHARS: Final = 80
_FRAME: Final = dict.fromkeys(map(ord, "()[]"), " ")
"""What stands around names and labels in an entry."""


def zone_of(name: str) -> ZoneInfo:
    """The zone of an IANA name; UTC for a name this machine does not know."""
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return ZoneInfo("UTC")


def day_text(when: datetime) -> str:
    """The day as in `May 8, 2023`, in English whatever the locale."""
    return f"{MONTHS[when.month - 1]} {when.day}, {when.year}"


def offset_text(when: datetime) -> str:
    """The offset as in `UTC+02:00`."""
    total = int((when.utcoffset() or when - when).total_seconds()) // 60
    sign = "-" if total < 0 else "+"
    return f"UTC{sign}{abs(total) // 60:02d}:{abs(total) % 60:02d}"


def date_header(when: datetime, zone: ZoneInfo) -> str:
    """The line above the entries of a day: `Date: May 8, 2023 (Europe/Paris, UTC+02:00)`."""
    return f"Date: {day_text(when)} ({zone.key}, {offset_text(when)})"


@dataclass(frozen=True, slots=True)
class History:
    """Messages as text, and the attachments that its placeholders stand for: `Image #1`, `File #1` and so on."""

    text: str
    attachments: tuple[tuple[str, Attachment], ...] = ()


def render_messages(
    messages: Iterable[StoredMessage],
    *,
    timezone: str,
    tokenizer: TextTokenizer,
    open_calls: Iterable[OpenCall] = (),
) -> str:
    """The text of `render_history`."""
    return render_history(messages, timezone=timezone, tokenizer=tokenizer, open_calls=open_calls).text


def render_history(
    messages: Iterable[StoredMessage],
    *,
    timezone: str,
    tokenizer: TextTokenizer,
    open_calls: Iterable[OpenCall] = (),
    gaps: Mapping[int, str] | None = None,
) -> History:
    """The messages in order, one entry per part; tombstones, system messages, reasoning and data are left out.

    Args:
        messages: a range of one thread, by seq.
        timezone: IANA name of the zone in which dates and times are shown.
        tokenizer: bounds tool arguments (2,000 tokens) and results (5,000 tokens). Texts are not cut.
        open_calls: calls without a result, marked as such.
        gaps: long pauses in words, by the seq of the message that ended one.
    """
    rendering = _Rendering(
        zone=zone_of(timezone), tokenizer=tokenizer, open_ids=frozenset(call.call_id for call in open_calls)
    )
    for message in messages:
        if not message.removed and message.role is not Role.SYSTEM and not is_injected(message.message):
            rendering.add(message, (gaps or {}).get(message.seq))
    return History("\n".join(rendering.lines), tuple(rendering.attachments))


def plain_words(messages: Iterable[StoredMessage]) -> str:
    """The words of texts and results alone, a part a line: what an answer about the range is compared with."""
    return "\n".join(
        part.text if isinstance(part, Text) else result_text(part.visible)
        for message in messages
        for part in message.parts
        if isinstance(part, Text | ToolResult)
    )


@dataclass
class _Rendering:
    """The lines so far, and what numbering and names depend on."""

    zone: ZoneInfo
    tokenizer: TextTokenizer
    open_ids: frozenset[str]
    lines: list[str] = field(default_factory=list)
    day: tuple[date, timedelta | None] | None = None
    numbers: dict[str, int] = field(default_factory=dict)
    call_names: dict[str, str] = field(default_factory=dict)
    attachments: list[tuple[str, Attachment]] = field(default_factory=list)

    def add(self, message: StoredMessage, gap: str | None) -> None:
        for part in message.parts:
            entry = self._entry(message, part)
            if entry is None:
                continue
            title, body = entry
            if gap:
                self.lines.append(f"[gap] {gap}")
                gap = None
            when = (part.created_at or message.created_at).astimezone(self.zone)
            day = (when.date(), when.utcoffset())
            if day != self.day:
                self.lines.append(date_header(when, self.zone))
                self.day = day
            first, *rest = clean_text(body).split("\n")
            self.lines.append(f"[m{message.seq}] ({when.hour:02d}:{when.minute:02d}) {title}: {first}".rstrip())
            self.lines.extend(f"  {line}".rstrip() for line in rest)

    def _entry(self, message: StoredMessage, part: Part) -> tuple[str, str] | None:
        if isinstance(part, Text):
            return (_speaker(message), self._words(part.text)) if part.text.strip() else None
        if isinstance(part, Image | File):
            return _speaker(message), self._placeholder(part)
        if isinstance(part, ToolCall):
            self.call_names[part.call_id] = part.name
            body = args_text(part.args, self.tokenizer)
            waiting = "\n[no result yet]" if part.call_id in self.open_ids else ""
            return f"Tool call {one_line(part.name)}", f"{body}{waiting}"
        if isinstance(part, ToolResult):
            return self._result(part)
        return None  # reasoning, data, and part types that this version does not know

    def _result(self, part: ToolResult) -> tuple[str, str]:
        name = part.name or self.call_names.get(part.call_id, "")
        text = self._payload(part.visible).strip() or ("(no text)" if part.status == "ok" else "(no reason given)")
        return f"{_RESULT_TITLES[part.status]} {one_line(name)}".rstrip(), cut_middle(
            text, RESULT_TOKENS, self.tokenizer
        )

    def _words(self, text: str) -> str:
        """A text without what only machines read."""
        if len(text) <= LONG:
            return text.strip()
        words, _ = split_attachments(text, self._placeholder)
        return drop_blobs(str(words)).strip()

    def _payload(self, value: Json) -> str:
        """A result with placeholders for the pictures and files in it."""
        words, found = split_attachments(value, self._placeholder)
        if found and isinstance(words, list) and all(isinstance(item, str) for item in words):
            return drop_blobs("\n".join(words))
        return result_text(words)

    def _placeholder(self, part: Attachment) -> str:
        """`[Image #1: label]`, numbered by kind; the label is a file name, the URL's last part, or the MIME type."""
        kind = "Image" if is_picture(part) else "File"
        self.numbers[kind] = self.numbers.get(kind, 0) + 1
        name = f"{kind} #{self.numbers[kind]}"
        self.attachments.append((name, part))
        label = attachment_label(part)
        return f"[{name}{f': {label}' if label else ''}]"


def attachment_label(part: Attachment) -> str:
    """What an attachment is called: its file name, the last part of its URL, or its MIME type; on one line."""
    filename = part.filename if isinstance(part, File) else None
    mime_type = None if part.mime_type in {"image/*", "audio/*"} else part.mime_type
    return one_line(filename or _base_name(part.url) or mime_type or "").translate(_FRAME)


def _speaker(message: StoredMessage) -> str:
    title = message.role.value.capitalize()
    author = message.message.author
    name = speaker_name(author) if author else ""
    return f"{title} ({name})" if name else title


def speaker_name(author: str) -> str:
    """The name without what would end it: nobody speaks for somebody else by the name they choose."""
    return " ".join(one_line(author).translate(_FRAME | {ord(":"): " "}).split())


def one_line(name: str) -> str:
    """A name that stays on its line and within bounds."""
    return drop_blobs(" ".join(clean_text(name[:1_000]).split()))[:_NAME_CHARS]


def _base_name(url: str | None) -> str:
    if not url or url.startswith("data:"):
        return ""
    path = url[:2_000].split("#")[0].split("?")[0]
    return unquote(path.rstrip("/").rsplit("/", 1)[-1])


def first_day(messages: Iterable[StoredMessage], timezone: str) -> datetime | None:
    """When the range begins, in its zone; the day of notes that name none. None for an empty range."""
    zone = zone_of(timezone)
    return next((message.created_at.astimezone(zone) for message in messages if not message.removed), None)
