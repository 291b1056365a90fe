"""What a thread sees of the other threads of its memory beside the shared log (DESIGN 6.9). Pure.

Notes above the thread's `shown_position` belong to the log, but entered it since the last prefix change. What is not in
the log yet (notes that wait for activation, messages without notes) is background: bounded, newest first, and without
the hints of those threads, which are about what goes on there.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2s
from itertools import groupby
from typing import TYPE_CHECKING, Final

from om_core.domain.context import VolatileBlock
from om_core.domain.message import Text
from om_core.domain.tags import is_injected
from om_core.domain.time_gaps import local_time

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from om_core.domain.chunk import Chunk
    from om_core.domain.message import StoredMessage
    from om_core.domain.policy import MemoryPolicy

MOST_THREADS: Final = 8
"""Other threads whose newest words are shown, by their last activity."""
MOST_CHARS: Final = 500
"""Characters of one message that are shown."""
_BACKGROUND: Final = "Background: said in another conversation with the same person, not in this one."
_FRAME: Final = dict.fromkeys(map(ord, "()[]:\r\n"), " ")
"""What stands around the name of a speaker: nobody speaks for somebody else by the name they choose."""
_TITLES: Final = {"user": "User", "assistant": "Assistant"}


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherThread:
    """The newest of another thread that is not in the shared log yet."""

    thread: str
    """The caller's id."""
    timezone: str | None
    notes: tuple[str, ...] = ()
    """Of chunks that wait for activation, oldest first."""
    messages: tuple[StoredMessage, ...] = ()
    """Of the user and the assistant, without notes so far, by seq."""


def conversation_name(thread: str, policy: MemoryPolicy) -> str:
    """What prompts call another thread: its id, or a digest of it where `obscure_thread_ids` is on."""
    return blake2s(thread.encode(), digest_size=6).hexdigest() if policy.obscure_thread_ids else thread


def news_blocks(news: Sequence[Chunk], policy: MemoryPolicy) -> tuple[VolatileBlock, ...]:
    """Notes that wait for the next prefix change, by position; successive ones of one thread together."""
    return tuple(
        VolatileBlock(
            text="\n".join(chunk.text for chunk in together), kind="other_notes", name=conversation_name(thread, policy)
        )
        for thread, together in groupby(news, key=lambda chunk: chunk.thread)
    )


def background_blocks(
    others: Sequence[OtherThread], policy: MemoryPolicy, count: Callable[[str], int]
) -> tuple[VolatileBlock, ...]:
    """The newest lines of each other thread, at most `limits.other_threads_tokens` in all.

    Args:
        others: most recently active first.
        policy: of the memory.
        count: tokens of a text.
    """
    left = policy.limits.other_threads_tokens
    blocks: list[VolatileBlock] = []
    for index, other in enumerate(others):
        share = left // (len(others) - index)  # what one thread does not need goes to those after it
        lines = _newest(_lines(other), share - count(_BACKGROUND), count)
        if not lines:
            continue
        text = "\n".join((_BACKGROUND, *lines))
        blocks.append(VolatileBlock(text=text, kind="other_threads", name=conversation_name(other.thread, policy)))
        left -= count(text)
    return tuple(reversed(blocks))


def _lines(other: OtherThread) -> list[str]:
    lines = [line for text in other.notes for line in text.splitlines() if line.strip()]
    for row in other.messages:
        said = " ".join(" ".join(part.text for part in row.parts if isinstance(part, Text)).split())
        title = _TITLES.get(row.role.value)
        if not said or title is None or is_injected(row.message):
            continue
        author = (row.message.author or "").translate(_FRAME).strip()
        name = f"{title} ({author})" if author else title
        shown = said if len(said) <= MOST_CHARS else f"{said[:MOST_CHARS].rstrip()}…"
        lines.append(f"[{local_time(row.created_at, row.message.timezone or other.timezone)}] {name}: {shown}")
    return lines


def _newest(lines: Sequence[str], most_tokens: int, count: Callable[[str], int]) -> list[str]:
    """The last lines that fit, in their order."""
    kept: list[str] = []
    for line in reversed(lines):
        most_tokens -= count(line) + 1
        if most_tokens < 0:
            break
        kept.append(line)
    return kept[::-1]
