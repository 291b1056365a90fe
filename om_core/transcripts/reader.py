"""Finds out what a transcript file is, and reads it."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final

from om_core.domain.errors import InvalidInputError
from om_core.transcripts.chats import chat_format, read_chats
from om_core.transcripts.claude_code import is_record, read_claude_code
from om_core.transcripts.locomo import is_sample, read_locomo
from om_core.transcripts.longmemeval import is_question, read_longmemeval
from om_core.transcripts.model import Tally, Transcript
from om_core.transcripts.source import Source

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from om_core.domain.message import Json
    from om_core.transcripts.model import Conversation

FORMATS: Final = ("claude-code", "openai", "anthropic", "om", "locomo", "longmemeval")
_SAMPLE: Final = 100
"""Lines that are looked at before a file counts as unknown."""


def detect(path: Path | str) -> str:
    """The format of a file, one of `FORMATS`.

    Raises:
        InvalidInputError: naming the formats tried.
        OSError: when the file cannot be opened.
    """
    source = Source(path)
    found = _of_lines(source) if source.is_lines() else _of_document(source.document())
    found = found or _of_lines(source)
    if found is None:
        raise InvalidInputError(
            f"{source.path.name} is no transcript in a known format (tried {', '.join(FORMATS)})", path="file"
        )
    return found


def read(path: Path | str, format: str = "auto", *, limit: int | None = None) -> Transcript:
    """The conversations of a file, with at most `limit` messages in all.

    Records that cannot be used are skipped and counted by reason.

    Raises:
        InvalidInputError: for an unknown format, or a file that holds no conversation of that format.
        OSError: when the file cannot be opened.
    """
    if format not in {"auto", *FORMATS}:
        raise InvalidInputError(f"{format[:40]!r} is unknown; known are auto, {', '.join(FORMATS)}", path="format")
    source, tally = Source(path), Tally(limit)
    known = detect(path) if format == "auto" else format
    conversations = tuple(_conversations(source, known, tally))
    if not conversations and format != "auto":
        raise InvalidInputError(f"{source.path.name} holds no conversation in the format {known}", path="file")
    return Transcript(format=known, conversations=conversations, skipped=+tally.skipped)


def _conversations(source: Source, format: str, tally: Tally) -> Iterator[Conversation]:
    if format == "claude-code":
        return read_claude_code(source, tally)
    if format == "locomo":
        return read_locomo(source, tally)
    if format == "longmemeval":
        return read_longmemeval(source, tally)
    return read_chats(source, format, tally)


def _of_lines(source: Source) -> str | None:
    found: list[str] = []
    for record in islice(source.records(), _SAMPLE):
        name = "claude-code" if is_record(record) else _of_document(record)
        if name is not None:
            found.append(name)
    return "anthropic" if set(found) == {"openai", "anthropic"} else next(iter(found), None)


def _of_document(value: Json) -> str | None:
    first = value[0] if isinstance(value, list) and value else value
    if is_sample(first):
        return "locomo"
    if is_question(first):
        return "longmemeval"
    return chat_format(value)
