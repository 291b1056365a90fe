"""LongMemEval: one question over many dated sessions of one user.

One conversation per question, its sessions in order of time (the file's order may be another). Sessions without
messages are skipped; the session's id stands in each message's metadata.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from om_core.domain.errors import InvalidInputError
from om_core.domain.message import Json, JsonObject, Message
from om_core.formats.canonical import parse_message
from om_core.formats.fields import dump_time
from om_core.transcripts.times import loose_time

if TYPE_CHECKING:
    from collections.abc import Iterator

    from om_core.transcripts.model import Conversation, Tally
    from om_core.transcripts.source import Source

METADATA: Final = "longmemeval"
_LAST: Final = datetime.max.replace(tzinfo=UTC)


def is_question(value: Json) -> bool:
    """Whether it is a question with its sessions, in the plain or in the original shape."""
    if not isinstance(value, dict) or "question" not in value:
        return False
    return isinstance(value.get("sessions"), list) or isinstance(value.get("haystack_sessions"), list)


def read_longmemeval(source: Source, tally: Tally) -> Iterator[Conversation]:
    """One conversation for each question."""
    document = source.document()
    questions = document if isinstance(document, list) else [document]
    for item in questions:
        if tally.is_full:
            return
        if not is_question(item):
            tally.skip("unknown record")
            continue
        name = item["question_id"] if isinstance(item.get("question_id"), str) else source.stem
        conversation = tally.conversation(name, name, _messages(item, tally), timezone="UTC")
        if conversation is not None:
            yield conversation


@dataclass(frozen=True, slots=True)
class _Session:
    name: str
    when: datetime | None
    messages: list[Json]


def _messages(item: JsonObject, tally: Tally) -> list[Message]:
    sessions = [session for session in _sessions(item) if session.messages]
    tally.skip("empty session", len(list(_sessions(item))) - len(sessions))
    sessions.sort(key=lambda session: session.when or _LAST)
    found = [_message(session, index) for session in sessions for index in range(len(session.messages))]
    tally.skip("invalid message", sum(message is None for message in found))
    return [message for message in found if message is not None]


def _sessions(item: JsonObject) -> Iterator[_Session]:
    if isinstance(item.get("sessions"), list):
        for index, raw in enumerate(item["sessions"]):
            messages = raw.get("messages") if isinstance(raw, dict) else None
            messages = messages if isinstance(messages, list) else []
            first = messages[0] if messages and isinstance(messages[0], dict) else {}
            name = raw.get("session_id") if isinstance(raw, dict) else None
            yield _Session(name if isinstance(name, str) else str(index), loose_time(first.get("created_at")), messages)
        return
    names, dates = item.get("haystack_session_ids"), item.get("haystack_dates")
    for index, given in enumerate(item["haystack_sessions"]):
        name, date = _at(names, index), _at(dates, index)
        messages = given if isinstance(given, list) else []
        yield _Session(name if isinstance(name, str) else str(index), loose_time(date), messages)


def _at(values: Json, index: int) -> Json:
    return values[index] if isinstance(values, list) and index < len(values) else None


def _message(session: _Session, index: int) -> Message | None:
    entry = session.messages[index]
    if not isinstance(entry, dict) or entry.get("role") not in {"user", "assistant"}:
        return None
    when = loose_time(entry.get("created_at")) or session.when
    raw: JsonObject = {
        "role": entry["role"],
        "parts": [{"type": "text", "text": entry.get("content")}],
        "id": f"{session.name[:240]}:{index}",
        "created_at": None if when is None else dump_time(when),
        "metadata": {METADATA: {"session_id": session.name}},
    }
    try:
        return parse_message(raw)
    except InvalidInputError:
        return None
