"""What a client sends back of a context: memory's own words are no message of anybody (DESIGN 6.11, 7). Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from om_core.domain.message import Role, Text
from om_core.domain.preamble import INTRODUCTIONS, recall_instructions
from om_core.domain.tags import BLOCKS, is_injected

if TYPE_CHECKING:
    from om_core.domain.message import Message


def without_returned(message: Message) -> Message | None:
    """The message without what memory had put beside its words; None where nothing else is in it.

    Clients join messages: markers and hints become parts of the user's next message, the system text stands before
    the first question where a model takes none. A text is ours if it is nothing but our blocks, and where it begins
    with the introduction of the log, that with the blocks after it. Anything else that looks like it is somebody's.
    """
    if message.role is Role.SYSTEM or is_injected(message):
        return None
    if message.role is not Role.USER:
        return message
    parts = []
    for part in message.parts:
        if not isinstance(part, Text) or (rest := _own_words(part.text)) == part.text:
            parts.append(part)
        elif rest:
            parts.append(replace(part, text=rest, provider_metadata=None))
    if tuple(parts) == message.parts:
        return message
    return replace(message, parts=tuple(parts), metadata={}) if parts else None


def _own_words(text: str) -> str:
    """A text without ours; itself where none is in it."""
    bare = text.strip()
    if BLOCKS.fullmatch(bare):
        return ""
    opening = next((known for known in INTRODUCTIONS if bare.startswith(known)), None)
    if opening is None:
        return "" if bare == recall_instructions() else text
    rest = bare[len(opening) :].lstrip().removeprefix(recall_instructions()).lstrip()
    blocks = BLOCKS.match(rest)
    return rest[blocks.end() :] if blocks else rest
