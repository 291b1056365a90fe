"""Tags around everything that memory puts into an actor's prompt, which content cannot forge (DESIGN 7). Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from om_core.domain.message import Message, Role, Text, ToolResult

if TYPE_CHECKING:
    from om_core.domain.message import JsonObject

INJECTED: Final = "om_injected"
"""Metadata key of messages that memory put into a context; ingest does not store them (DESIGN 6.11)."""

PLACEHOLDER: Final = (
    "[No result stands here: none had arrived when the conversation went on, or it is covered by notes. "
    "One that came later is quoted further down.]"
)
"""Stands for the result of a call that has none directly after it (DESIGN 6.2)."""

_NAMES: Final = (
    "log", "reflection", "gap", "start", "time-gap", "late-result", "quoted-call", "current-task",
    "suggested-response", "working-memory", "extracted", "other-notes", "other-threads",
    "date", "speaker",
)  # fmt: skip
UNSEEN: Final = (
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f"
    "\ufeff\uffa0\U000e0000-\U000e0fff"
)
"""Characters that show nothing, for a class of a pattern."""
OPENERS: Final = "<\uff1c\ufe64\u2039\u3008\u2329\u27e8\u276e\u2770\u02c2\u1438"
"""`<` and its look-alikes."""
SLASHES: Final = "/\uff0f\u2215\u2044\u29f8"
# Look-alikes of each character of a tag, and characters that show nothing between them, count as the tag.
_OPENER: Final = re.compile(
    f"[{OPENERS}](?=[\\s{UNSEEN}]{{0,8}}[{SLASHES}]?[\\s{UNSEEN}]{{0,8}}[o0\u043e\u03bf\uff4f\u1d0f]"
    f"[{UNSEEN}]{{0,8}}[m\u043c\uff4d\u1d0d][{UNSEEN}]{{0,8}}[-\u2010-\u2015\u2212\ufe58\ufe63\uff0d])",
    re.IGNORECASE,
)
_TAG: Final = f"om-(?:{'|'.join(_NAMES)})"
BLOCKS: Final = re.compile(rf"(?:<{_TAG}(?: [^<>]*)?>\n(?:(?!</?om-).)*\n</{_TAG}>\s*)+", re.DOTALL)
"""One of our blocks after the other."""


def escape(text: str) -> str:
    """The text with the `<` of anything that looks like one of our tags written as `&lt;`. Idempotent."""
    return _OPENER.sub("&lt;", text)


def wrap(name: str, text: str, /, **attributes: str | None) -> str:
    """The text between `<om-NAME …>` and `</om-NAME>`; neither it nor an attribute can close the block."""
    given = "".join(f' {key}="{_attribute(value)}"' for key, value in attributes.items() if value is not None)
    return f"<om-{name}{given}>\n{escape(text)}\n</om-{name}>"


def _attribute(value: str) -> str:
    plain = " ".join(value.split())[:200]
    return plain.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;").replace(">", "&gt;")


def injected(text: str) -> Message:
    """A user-role message of memory's own, marked as such."""
    metadata: JsonObject = {INJECTED: True}
    return Message(role=Role.USER, parts=(Text(text=text),), metadata=metadata)


def is_injected(message: Message) -> bool:
    """Whether a message was put into a context by memory: by its metadata, or because it is nothing but our blocks."""
    if message.metadata.get(INJECTED) is True:
        return True
    if message.role is Role.USER:
        return bool(message.parts) and all(
            isinstance(part, Text) and BLOCKS.fullmatch(part.text.strip()) for part in message.parts
        )
    return bool(message.parts) and all(
        isinstance(part, ToolResult) and part.result == PLACEHOLDER for part in message.parts
    )
