"""What may differ from one context to the next: it stands after the newest message (DESIGN 2.5, 6.6). Pure."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from om_core.domain.context import VolatileBlock
from om_core.domain.message import Data, Message, Reasoning, Role, StoredMessage, Text, ToolCall, ToolResult
from om_core.domain.slices import as_text
from om_core.domain.tags import injected, wrap
from om_core.domain.time_gaps import local_time
from om_core.domain.working_memory import DEFAULT_TEMPLATE

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from om_core.domain.context import ContextInput
    from om_core.domain.extraction import Extraction
    from om_core.domain.message import Part
    from om_core.domain.pairs import Piece
    from om_core.domain.policy import MemoryPolicy
    from om_core.domain.working_memory import WorkingMemory

_LONG_AGO: Final = datetime(1970, 1, 1, tzinfo=UTC)
_TAGS: Final = {
    "current_task": "current-task",
    "suggested_response": "suggested-response",
    "working_memory": "working-memory",
    "extracted": "extracted",
    "other_notes": "other-notes",
    "other_threads": "other-threads",
    "date": "date",
}


def volatile_blocks(given: ContextInput, news: Sequence[VolatileBlock] = ()) -> tuple[VolatileBlock, ...]:
    """The tail's blocks in the order in which they are sent; texts without their tags. `news` are notes that belong to
    the log, but came from other threads since the last prefix change.

    A suggested reply is dropped once anything newer exists, be it stored or ephemeral; a hint that was switched off is
    not shown, though it may be stored.
    """
    thread, hints = given.thread, given.thread.hints
    blocks = [block for block in (*news, *given.volatile) if block.text.strip()]
    if given.now is not None:
        blocks.append(VolatileBlock(text=f"Now: {local_time(given.now, thread.timezone)}", kind="date"))
    shown = given.policy.observation
    if shown.current_task and hints.current_task:
        blocks.append(VolatileBlock(text=hints.current_task, kind="current_task"))
    newest = thread.head_seq <= hints.seen_seq and not given.ephemeral
    if shown.suggested_response and hints.suggested_response and newest:
        blocks.append(VolatileBlock(text=hints.suggested_response, kind="suggested_response"))
    blocks.extend(
        VolatileBlock(text="\n".join(map(_words, message.parts)), kind="ephemeral") for message in given.ephemeral
    )
    return tuple(blocks)


def kept_blocks(
    policy: MemoryPolicy, documents: Sequence[WorkingMemory], found: Sequence[Extraction]
) -> tuple[VolatileBlock, ...]:
    """Working memory, and the values of configured extractors. An empty document is shown as its template to an agent
    that keeps it.
    """
    options = policy.working_memory
    blocks = [
        VolatileBlock(text=document.content, kind="working_memory", name=document.scope)
        for document in documents
        if not document.is_blank
    ]
    if not blocks and options.enabled and options.agent_managed and options.schema is None:
        template = options.template or DEFAULT_TEMPLATE
        blocks.append(VolatileBlock(text=template, kind="working_memory", name=options.scope))
    wanted = [*policy.observation.extract, *policy.reflection.extract]
    slugs = {spec.slug for spec in wanted if spec.include_previous_extraction and spec.metadata_key_path}
    blocks += [
        VolatileBlock(text=extraction.shown, kind="extracted", name=extraction.slug)
        for extraction in found
        if extraction.slug in slugs
    ]
    return tuple(blocks)


def tail_message(blocks: Sequence[VolatileBlock]) -> Message | None:
    """One message with all blocks but the caller's own, which are sent as they are."""
    texts = [wrap(_TAGS[block.kind], block.text, name=block.name) for block in blocks if block.kind in _TAGS]
    return injected("\n\n".join(texts)) if texts else None


def ephemeral_rows(given: ContextInput) -> tuple[StoredMessage, ...]:
    """The caller's messages for this one call as rows after the head. A system message is sent as the user's: only
    memory's own text stands in the system role.
    """
    return tuple(
        StoredMessage(
            seq=given.thread.head_seq + number,
            message=_as_user(message),
            tokens=0,
            created_at=message.created_at or _LONG_AGO,
            turn=given.thread.turn,
        )
        for number, message in enumerate(given.ephemeral, start=1)
    )


def _as_user(message: Message) -> Message:
    if message.role is not Role.SYSTEM:
        return message
    return Message(role=Role.USER, parts=message.parts, author=message.author, created_at=message.created_at)


def ephemeral_tokens(given: ContextInput, count: Callable[[str], int]) -> int:
    """Tokens of the caller's messages by their words."""
    return sum(count(_words(part)) for message in given.ephemeral for part in message.parts)


def after_newest(pieces: Sequence[Piece], head_seq: int) -> int:
    """Index at which the volatile tail begins: after the newest row, and after results that answer it."""
    for index, piece in enumerate(pieces):
        if piece.seq is not None and piece.seq > head_seq and piece.message.role is not Role.TOOL:
            return index
    return len(pieces)


def _words(part: Part) -> str:
    match part:
        case Text():
            return part.text
        case ToolCall():
            return f"{part.name} {as_text(part.args)}"
        case ToolResult():
            return as_text(part.visible)
        case Data() | Reasoning():
            return ""
        case _:
            return f"[{part.type}]"
