"""What the pages show, read through `Memory`, and what their buttons do."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from om_core.domain.errors import InvalidInputError
from om_core.domain.generations import line_diff
from om_core.domain.job import WORKER_SEEN_S
from om_core.domain.message import Data, Reasoning, Text, ToolCall, ToolResult
from om_core.formats.table import csv_lines
from om_core.memory_usage import DEFAULT_BY, usage_columns
from om_core.services.coverage import examine
from om_core.services.event_text import event_line

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from om_core.domain.message import JsonObject, Message, Part
    from om_core.memory import Memory
    from om_core.ports import EventRow

EVENTS: Final = 30
CHUNKS: Final = 100
MESSAGES: Final = 200
CHECKED: Final = 20
"""Threads per page of invariants: checking one reads all of it."""
MARKS: Final = {"added": "+", "removed": "-", "same": " ", "gap": "@"}
"""What stands before a line of a comparison."""
PART_CHARS: Final = 4_000
"""Longer parts of messages are cut for display."""


def head(memory: Memory, thread: str, resource: str) -> JsonObject:
    """What every page of a thread begins with."""
    return {"thread": memory.get_thread(thread, resource=resource)}


def now(memory: Memory, thread: str, resource: str) -> JsonObject:
    """Bars, reasons, running work, and the newest events."""
    status = memory.status(thread, resource=resource)
    live = memory.jobs(thread=thread, resource=resource, limit=20).items
    return {
        "status": status,
        "bars": _bars(status),
        "running": [job for job in live if job["state"] in {"available", "running", "retryable"}],
        "events": newest_events(memory, thread, resource),
        "discarded": [job for job in live if job["state"] == "discarded"],
    }


def _bars(status: JsonObject) -> list[JsonObject]:
    active, buffered = status["windows"]["active"], status["windows"]["buffered"]
    waiting = buffered["observations"]
    return [
        {
            "name": "Raw messages",
            "tokens": active["messages"]["tokens"],
            "threshold": active["messages"]["threshold"],
            "hint": "tokens not yet replaced by notes; at the threshold ready chunks enter the log",
            "limits": True,
        },
        {
            "name": "Notes",
            "tokens": active["observations"]["tokens"],
            "threshold": active["observations"]["threshold"],
            "hint": "tokens of the log; at the threshold it is condensed into a new generation",
            "limits": True,
        },
        {
            "name": f"Buffered in {waiting['chunks']} chunk{'' if waiting['chunks'] == 1 else 's'}",
            "tokens": waiting["messageTokens"],
            "threshold": max(active["messages"]["tokens"], 1),
            "hint": "of the raw tokens, those whose notes are ready",
            "limits": False,
        },
    ]


@dataclass(frozen=True, slots=True)
class EventLine:
    """An event in words."""

    id: str
    type: str
    line: str
    details: str


def newest_events(memory: Memory, thread: str, resource: str) -> list[EventLine]:
    """The newest events, newest first."""
    rows = memory.events(thread, resource=resource, limit=EVENTS)
    return [_event(row) for row in reversed(rows)]


def _event(row: EventRow) -> EventLine:
    return EventLine(row.id, row.type, event_line(row), json.dumps(row.payload, indent=1, ensure_ascii=False))


def context(memory: Memory, thread: str, resource: str) -> JsonObject:
    """The prompt in the order of sending, and how much of it a provider can keep cached."""
    found = memory.context(thread, resource=resource, read_only=True, wait=False).context
    count = memory.services.counter.count_text
    shown: list[JsonObject] = [
        {
            "role": f"system · {block.kind}",
            "parts": [{"label": "", "text": block.text}],
            "state": "stable" if block.cacheable else "volatile",
            "tokens": count(block.text),
        }
        for block in found.system
    ]
    tail = len(found.messages) - found.volatile_messages
    for index, message in enumerate(found.messages):
        parts = list(parts_of(message))
        state = "stable" if index < found.stable_messages else "open" if index < tail else "volatile"
        tokens = sum(count(part["text"]) for part in parts)
        shown.append({"role": message.role.value, "parts": parts, "state": state, "tokens": tokens})
    total = sum(item["tokens"] for item in shown)
    stable = sum(item["tokens"] for item in shown if item["state"] == "stable")
    return {"context": found, "messages": shown, "share": round(100 * stable / total) if total else 0}


def parts_of(message: Message) -> Iterator[JsonObject]:
    """The parts of a message as texts with a label."""
    for part in message.parts:
        label, text = _part(part)
        cut = len(text) - PART_CHARS
        yield {"label": label, "text": f"{text[:PART_CHARS]} … ({cut:,} more characters)" if cut > 0 else text}


def _part(part: Part) -> tuple[str, str]:
    match part:
        case Text():
            return "", part.text
        case ToolCall():
            return f"call {part.name}", _json(part.args)
        case ToolResult():
            return f"result {part.name or part.call_id}", _json(part.result)
        case Reasoning():
            return "reasoning", part.text or ""
        case Data():
            return part.type, _json(part.data)
        case _:
            named = getattr(part, "filename", None) or getattr(part, "mime_type", None)
            return type(part).__name__.lower(), named or ""


def _json(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, indent=1, ensure_ascii=False)


def log(memory: Memory, thread: str, resource: str, cursor: str) -> JsonObject:
    """The active generation, the chunks after it, and the chunks that wait."""
    page = memory.observations(thread, resource=resource, state="all", cursor=cursor or None, limit=CHUNKS)
    known = memory.reflections(thread, resource=resource, limit=20).items
    active = next((item for item in known if item["state"] == "active"), None)
    through = active["through_position"] if active else 0
    return {
        "reflection": active,
        "condensed": [chunk for chunk in page.items if chunk["state"] == "active" and chunk["position"] <= through],
        "chunks": [chunk for chunk in page.items if chunk["state"] == "active" and chunk["position"] > through],
        "buffered": [chunk for chunk in page.items if chunk["state"] == "buffered"],
        "next_cursor": page.next_cursor,
    }


def generations(memory: Memory, thread: str, resource: str, cursor: str) -> JsonObject:
    """Generations, newest first, each with the lines that its base did not have, and the other way round."""
    page = memory.reflections(thread, resource=resource, cursor=cursor or None, limit=20)
    texts = {0: "", **{item["generation"]: item["text"] for item in page.items}}
    shown = []
    for item in page.items:
        base = item["base_generation"]
        if base not in texts:  # on the next page
            texts[base] = memory.reflection(thread, base, resource=resource)["text"]
        lines = line_diff(texts[base], item["text"])
        changes = [(MARKS[line.op], "…" if line.op == "gap" else line.text) for line in lines]
        shown.append({**item, "diff": changes})
    return {"generations": shown, "next_cursor": page.next_cursor}


def messages(memory: Memory, thread: str, resource: str, first: int, last: int | None) -> JsonObject:
    """Stored messages in order, at most `MESSAGES` of them."""
    rows = memory.messages(
        thread,
        resource=resource,
        after_seq=first - 1,
        before_seq=None if last is None else last + 1,
        limit=MESSAGES,
    )
    shown = [
        {
            "seq": row.seq,
            "role": row.message.role.value,
            "author": row.message.author,
            "created_at": row.created_at,
            "tokens": row.tokens,
            "parts": list(parts_of(row.message)),
        }
        for row in rows
    ]
    reached = rows[-1].seq if rows else first
    head_seq = memory.get_thread(thread, resource=resource).head_seq
    return {
        "messages": shown,
        "first": first,
        "last": last,
        "next_seq": reached + 1 if reached < min(head_seq, last or head_seq) else None,
    }


def workers(memory: Memory) -> JsonObject:
    """The installation: who works, what waits where and since when, which models are not called."""
    system = memory.services.store.system
    return {
        "workers": system.workers(max_age_s=20 * WORKER_SEEN_S),
        "seen_s": WORKER_SEEN_S,
        "gauges": system.gauges(),
        "breakers": system.breakers(),
    }


def usage(memory: Memory, cursor: str) -> JsonObject:
    """Model calls by day, kind and model, and the sum of all days."""
    found = memory.usage(cursor=cursor or None, limit=MESSAGES)
    return {"found": found, "total": next(iter(memory.usage(by=()).items), None)}


def usage_csv(memory: Memory) -> str:
    """Every row of the same, with a head line."""
    page = memory.usage(limit=MESSAGES)
    lines = csv_lines(usage_columns(DEFAULT_BY), page.items)
    while page.next_cursor is not None:
        page = memory.usage(cursor=page.next_cursor, limit=MESSAGES)
        lines += csv_lines(usage_columns(DEFAULT_BY), page.items, header=False)
    return lines


def invariants(memory: Memory, cursor: str) -> JsonObject:
    """Each thread of a page with what contradicts the promises, checked now."""
    found = memory.threads(cursor=cursor or None, limit=CHECKED)
    checked = [(thread, examine(memory.services, memory.tenant, thread.id)[0]) for thread in found.items]
    return {"checked": checked, "next_cursor": found.next_cursor, "broken": sum(bool(bad) for _, bad in checked)}


def act(memory: Memory, thread: str, resource: str, action: str, form: Mapping[str, str]) -> None:
    """What a button of a thread's page asks for.

    Raises:
        InvalidInputError: there is no such button.
    """
    match action:
        case "observe":
            memory.observe(thread, resource=resource)
        case "reflect":
            memory.reflect(thread, resource=resource)
        case "activate":
            memory.activate(thread, resource=resource)
        case "restore":
            memory.restore(thread, _number(form.get("generation", "")), resource=resource)
        case _:
            raise InvalidInputError(f"{action!r} is not something this page can do", path="action")


def _number(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        raise InvalidInputError(f"{text[:40]!r} is not the number of a generation", path="generation")
    return int(text)


def act_on_job(memory: Memory, job_id: int, action: str) -> None:
    """Retry or cancel.

    Raises:
        InvalidInputError: there is no such button. ConflictError: the job is not in a state for it.
    """
    if action == "retry":
        memory.retry_job(job_id)
    elif action == "cancel":
        memory.cancel_job(job_id)
    else:
        raise InvalidInputError(f"{action!r} is not something this page can do", path="action")
