"""Lists of chat messages: OpenAI (also tau-bench), Anthropic, and the canonical form."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final, cast

from om_core.domain.errors import InvalidInputError
from om_core.formats import guess_format, parse_messages
from om_core.transcripts.model import is_storable
from om_core.transcripts.source import NOT_JSON
from om_core.transcripts.times import loose_time

if TYPE_CHECKING:
    from collections.abc import Iterator

    from om_core.domain.message import Json, JsonObject, Message
    from om_core.transcripts.model import Conversation, Tally
    from om_core.transcripts.source import Source


_LISTS: Final = ("messages", "traj", "history")
"""Where objects keep the messages of one conversation: the APIs and exports, tau-bench, SWE-agent."""


def is_chat_message(value: Json) -> bool:
    return (
        isinstance(value, dict)
        and isinstance(value.get("role"), str)
        and ("content" in value or "parts" in value or "tool_calls" in value)
    )


def messages_in(value: Json) -> list[Json] | None:
    """The messages of one conversation: a list of them, or an object that holds one."""
    if isinstance(value, dict):
        value = next((value[name] for name in _LISTS if isinstance(value.get(name), list)), None)
    if isinstance(value, list) and any(map(is_chat_message, value[:20])):
        return value
    return None


def chat_format(value: Json) -> str | None:
    """`om`, `openai` or `anthropic` for a chat message, a conversation, or a list of conversations; else None."""
    if is_chat_message(value):
        return guess_format([value])
    found = messages_in(value)
    if found is None and isinstance(value, list):
        found = next((inner for item in value[:20] if (inner := messages_in(item)) is not None), None)
    return None if found is None else guess_format(found)


def read_chats(source: Source, format: str, tally: Tally) -> Iterator[Conversation]:
    """Every conversation of a file; lines that are single messages make one conversation."""
    if not source.is_lines():
        value = source.document()
        found = messages_in(value)
        several = value if found is None and isinstance(value, list) else [value]
        for index, item in enumerate(several):
            yield from _conversation(item, source, index if len(several) > 1 else None, format, tally)
        return
    loose: list[Message] = []
    storable = 0
    for index, record in enumerate(source.records()):
        if tally.limit is not None and tally.taken + storable >= tally.limit:
            break
        if is_chat_message(record):
            found = _messages([record], format, tally)
            storable += sum(map(is_storable, found))
            loose.extend(found)
        elif record is NOT_JSON:
            tally.skip("not JSON")
        else:
            yield from _conversation(record, source, index, format, tally)
    single = tally.conversation(source.stem, source.stem, loose)
    if single is not None:
        yield single


def _conversation(item: Json, source: Source, index: int | None, format: str, tally: Tally) -> Iterator[Conversation]:
    found = messages_in(item)
    if found is None:
        tally.skip("no messages")
        return
    head: JsonObject = item if isinstance(item, dict) else {}
    thread = _named(head, ("thread", "thread_id", "conversation_id", "id"))
    if thread is None:
        thread = source.stem if index is None else f"{source.stem}-{_number(head, index)}"
    resource = _named(head, ("resource", "resource_id", "user_id")) or thread
    conversation = tally.conversation(thread, resource, _messages(found, format, tally))
    if conversation is not None:
        yield conversation


def _named(head: JsonObject, names: tuple[str, ...]) -> str | None:
    return next((cast("str", head[name]) for name in names if isinstance(head.get(name), str) and head[name]), None)


def _number(head: JsonObject, index: int) -> str:
    """tau-bench numbers its runs by task and trial."""
    if isinstance(head.get("task_id"), int):
        return f"{head['task_id']}-{head.get('trial', 0)}"
    return str(index)


def _messages(found: list[Json], format: str, tally: Tally) -> list[Message]:
    messages: list[Message] = []
    for raw in found:
        try:
            message = parse_messages([raw], format)[0]
        except InvalidInputError:
            tally.skip("invalid message")
            continue
        if message.created_at is None and isinstance(raw, dict):
            when = loose_time(raw.get("created_at", raw.get("timestamp")))
            message = replace(message, created_at=when)
        messages.append(message)
    return messages
