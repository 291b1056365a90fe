"""Canonical messages: what a conversation is made of (API 3, `format: "om"`).

All values are immutable. JSON payloads (tool arguments, results, metadata) are plain JSON values: whoever builds a
message hands them over and does not change them afterwards.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

Json: TypeAlias = Any
"""None, bool, int, float, str, or lists and dicts (str keys) of these."""

JsonObject: TypeAlias = dict[str, Any]


class Role(StrEnum):
    """Who speaks. `system` input is never stored (DESIGN 6.11)."""

    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"
    SYSTEM = "system"


ResultStatus: TypeAlias = Literal["ok", "error", "denied", "cancelled"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PartBase:
    """What every part may carry: its own time, and an opaque provider payload that comes back byte for byte."""

    created_at: datetime | None = None
    provider_metadata: JsonObject | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Text(PartBase):
    """Words."""

    type: ClassVar[str] = "text"
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall(PartBase):
    """The assistant asks for a tool; open until a `ToolResult` with the same `call_id` is stored."""

    type: ClassVar[str] = "tool_call"
    call_id: str
    name: str
    args: Json = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolResult(PartBase):
    """What a tool returned. `model_result`, where given, is what is rendered, observed and counted."""

    type: ClassVar[str] = "tool_result"
    call_id: str
    name: str | None = None
    result: Json = None
    model_result: Json = None
    status: ResultStatus = "ok"

    @property
    def visible(self) -> Json:
        """The result as the actor's model sees it."""
        return self.result if self.model_result is None else self.model_result


@dataclass(frozen=True, slots=True, kw_only=True)
class Reasoning(PartBase):
    """A model's own thinking: given back to its provider, never observed and never counted."""

    type: ClassVar[str] = "reasoning"
    text: str | None = None
    provider: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Image(PartBase):
    """A picture by URL or as base64 `data`; sizes in pixels; `token_estimate` is the caller's own count and wins."""

    type: ClassVar[str] = "image"
    url: str | None = None
    data: str | None = None
    mime_type: str | None = None
    width: int | None = None
    height: int | None = None
    detail: str | None = None
    token_estimate: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class File(PartBase):
    """A document by URL or as base64 `data`; `token_estimate` is the caller's own count and wins."""

    type: ClassVar[str] = "file"
    url: str | None = None
    data: str | None = None
    mime_type: str | None = None
    filename: str | None = None
    token_estimate: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Data(PartBase):
    """Something for user interfaces, outside the conversation: stored, never rendered, observed or counted."""

    type: ClassVar[str] = "data"
    data_type: str
    data: Json = None


Part: TypeAlias = Text | ToolCall | ToolResult | Reasoning | Image | File | Data
UNSEEN_PARTS = (Reasoning, Data)
"""Part types that neither the Observer nor a token count sees (DESIGN 6.1)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One message as a client sends it. `id` is the client's own; `timezone` an IANA name for rendering its times."""

    role: Role
    parts: tuple[Part, ...]
    id: str | None = None
    author: str | None = None
    created_at: datetime | None = None
    timezone: str | None = None
    metadata: JsonObject = field(default_factory=dict)

    @property
    def has_content(self) -> bool:
        """Whether it holds more than data and white space; a message without content is ignored (DESIGN 6.11)."""
        return any(is_content(part) for part in self.parts)


def is_content(part: Part) -> bool:
    """Whether a part is content: not data, and no text that is only white space."""
    if isinstance(part, Text):
        return bool(part.text.strip())
    return not isinstance(part, Data)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredMessage:
    """One row of a thread. `seq` orders the thread; `tokens` is what the actor sees of it.

    `created_at` is the client's time (or the time of storing), always aware. `continues` is the seq of the first row
    of the same message when a client later saved it with more parts. A `removed` row is a tombstone without parts.
    """

    seq: int
    message: Message
    tokens: int
    created_at: datetime
    turn: int
    continues: int | None = None
    removed: bool = False

    @property
    def role(self) -> Role:
        return self.message.role

    @property
    def parts(self) -> tuple[Part, ...]:
        return self.message.parts

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        return tuple(part for part in self.parts if isinstance(part, ToolCall))

    @property
    def results(self) -> tuple[ToolResult, ...]:
        return tuple(part for part in self.parts if isinstance(part, ToolResult))

    @property
    def is_question(self) -> bool:
        """Whether it is a user's message with words, an image or a file (results alone are no question)."""
        return self.role is Role.USER and any(isinstance(part, Text | Image | File) for part in self.parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenCall:
    """A tool call without a stored result: where it stands and since when."""

    call_id: str
    seq: int
    name: str
    at: datetime


def text_of(parts: Iterable[Part]) -> str:
    """The text parts joined by newlines."""
    return "\n".join(part.text for part in parts if isinstance(part, Text))
