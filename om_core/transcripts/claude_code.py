"""Claude Code session files: one record a line.

The records of one reply (they share `message.id`) become one message, as the model sent it; results that were written
between them follow it. Its id is the uuid of its first record; all of them stand in its metadata. A compaction's
summary is skipped, because the messages that it sums up are in the file; so are records that the user did not write
(`isMeta`).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import PurePath
from typing import TYPE_CHECKING, Final

from om_core.domain.errors import InvalidInputError
from om_core.domain.message import Json, JsonObject, Message, Role
from om_core.formats.anthropic import parse_anthropic
from om_core.formats.fields import check_id
from om_core.transcripts.source import NOT_JSON
from om_core.transcripts.times import loose_time

if TYPE_CHECKING:
    from collections.abc import Iterator

    from om_core.transcripts.model import Conversation, Tally
    from om_core.transcripts.source import Source

METADATA: Final = "claude_code"
_MARKS: Final = ("uuid", "sessionId", "leafUuid", "messageId")
_FLAGS: Final = {
    "isCompactSummary": "compact summary",
    "isVisibleInTranscriptOnly": "transcript only",
    "isMeta": "meta",
    "isApiErrorMessage": "API error",
}


def is_record(value: Json) -> bool:
    """Whether a line is a record of Claude Code."""
    return isinstance(value, dict) and isinstance(value.get("type"), str) and any(mark in value for mark in _MARKS)


def read_claude_code(source: Source, tally: Tally) -> Iterator[Conversation]:
    """One conversation for each session of the file; a subagent's file is its own conversation."""
    sessions: dict[str, _Session] = {}
    seen: set[str] = set()
    sidechain: bool | None = None
    for record in source.records():
        reason = _reason_to_skip(record, seen)
        if reason is None:
            sidechain = bool(record.get("isSidechain")) if sidechain is None else sidechain
            reason = "sidechain" if bool(record.get("isSidechain")) != sidechain else None
        if reason is not None:
            tally.skip(reason)
            continue
        name = _session_name(record, source)
        session = sessions.setdefault(name, _Session(tally, _project(record)))
        session.add(record)
        if tally.limit is not None and len(session.messages) > tally.limit:
            break
    for name, session in sessions.items():
        session.close()
        conversation = tally.conversation(name, session.project, session.messages)
        if conversation is not None:
            yield conversation


def _reason_to_skip(record: Json, seen: set[str]) -> str | None:
    if record is NOT_JSON:
        return "not JSON"
    if not is_record(record):
        return "unknown record"
    kind = record["type"]
    if kind not in {"user", "assistant"}:
        return f"{kind} record"[:60]
    for flag, reason in _FLAGS.items():
        if record.get(flag):
            return reason
    if not isinstance(record.get("message"), dict):
        return "invalid message"
    uuid = record.get("uuid")
    if isinstance(uuid, str):
        if uuid in seen:
            return "duplicate record"
        seen.add(uuid)
    return None


def _session_name(record: JsonObject, source: Source) -> str:
    name = record.get("sessionId")
    name = name if isinstance(name, str) and name else source.stem
    agent = record.get("agentId")
    return f"{name}-{agent}" if record.get("isSidechain") and isinstance(agent, str) else name


def _project(record: JsonObject) -> str:
    folder = record.get("cwd")
    return (PurePath(folder).name if isinstance(folder, str) else "") or "claude-code"


@dataclass(slots=True)
class _Session:
    """Puts records together to messages."""

    tally: Tally
    project: str
    messages: list[Message] = field(default_factory=list)
    reply: list[JsonObject] = field(default_factory=list)
    """The records of the reply that is not complete yet."""
    results: list[Message] = field(default_factory=list)
    """Results that were written while the reply went on."""

    def add(self, record: JsonObject) -> None:
        if record["type"] == "assistant":
            if self.reply and not _same_reply(self.reply[0], record):
                self.close()
            self.reply.append(record)
            return
        message = self._message([record])
        if message is None:
            return
        if message.role is Role.TOOL and self.reply:
            self.results.append(message)
            return
        self.close()
        self.messages.append(message)

    def close(self) -> None:
        """The reply is complete."""
        message = self._message(self.reply) if self.reply else None
        if message is not None:
            self.messages.append(message)
        self.messages.extend(self.results)
        self.reply, self.results = [], []

    def _message(self, records: list[JsonObject]) -> Message | None:
        blocks: list[Json] = []
        times: list[Json] = []
        for record in records:
            content = record["message"].get("content")
            added = [{"type": "text", "text": content}] if isinstance(content, str) else content
            if not isinstance(added, list):
                self.tally.skip("invalid message")
                continue
            blocks.extend(added)
            times.extend([record.get("timestamp")] * len(added))
        try:
            message = parse_anthropic([{"role": records[0]["type"], "content": blocks}])[0]
        except InvalidInputError:
            self.tally.skip("invalid message", len(records))
            return None
        return _dated(message, records, times)


def _same_reply(first: JsonObject, record: JsonObject) -> bool:
    name = first["message"].get("id")
    return name is not None and name == record["message"].get("id")


def _dated(message: Message, records: list[JsonObject], times: list[Json]) -> Message:
    """With the first record's uuid and time, and each part's own time where it is another."""
    uuids = [record["uuid"] for record in records if isinstance(record.get("uuid"), str)]
    when = loose_time(records[0].get("timestamp"))
    parts = message.parts
    if len(set(map(str, times))) > 1:
        dated = [loose_time(time) for time in times]
        parts = tuple(replace(part, created_at=time) for part, time in zip(parts, dated, strict=True))
    details: JsonObject = {"uuids": uuids} if len(uuids) > 1 else {}
    if isinstance(records[0]["message"].get("id"), str):
        details["message_id"] = records[0]["message"]["id"]
    metadata = {METADATA: details} if details else {}
    return replace(message, id=_usable(uuids), created_at=when, parts=parts, metadata=metadata)


def _usable(uuids: list[str]) -> str | None:
    try:
        return check_id(uuids[0], "uuid") if uuids else None
    except InvalidInputError:
        return None
