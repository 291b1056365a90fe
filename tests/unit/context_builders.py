"""Short ways to write threads, rows and contexts for tests of assembly."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from om_core.domain.assemble import assemble
from om_core.domain.chunk import Chunk, ChunkKind, ChunkState, Hints, Reflection, ReflectionState
from om_core.domain.context import Context, ContextInput
from om_core.domain.message import Message, Role, StoredMessage, Text, ToolCall, ToolResult, text_of
from om_core.domain.policy import MemoryPolicy, ObservationPolicy
from om_core.domain.thread import MemoryState, ThreadState

START = datetime(2026, 3, 1, 12, tzinfo=UTC)


def words(text):
    return len(text.split())


def row(seq, role, *parts, tokens=10, turn=1, **more):
    message = Message(role=Role(role), parts=parts, id=f"m{seq}", metadata=more.pop("metadata", {}))
    at = START + more.pop("after", timedelta(seconds=seq))
    return StoredMessage(seq=seq, message=message, tokens=tokens, created_at=at, turn=turn, **more)


def user(seq, text=None, **more):
    return row(seq, "user", Text(text=text or f"question {seq}"), **more)


def says(seq, text=None, **more):
    return row(seq, "assistant", Text(text=text or f"answer {seq}"), **more)


def calls(seq, *ids, **more):
    return row(seq, "assistant", *(ToolCall(call_id=id, name=f"tool_{id}", args={"n": seq}) for id in ids), **more)


def results(seq, *ids, **more):
    return row(seq, "tool", *(ToolResult(call_id=id, result=f"result of {id} at {seq}") for id in ids), **more)


def chunk(position, from_seq, to_seq, text=None, **more):
    values: dict[str, Any] = {
        "id": position, "thread_id": 1, "from_seq": from_seq, "to_seq": to_seq, "kind": ChunkKind.OBSERVED,
        "state": ChunkState.ACTIVE, "text": f"* note {position}" if text is None else text, "tokens": 5,
        "message_tokens": 100, "position": position,
    }  # fmt: skip
    return Chunk(**(values | more))


def reflection(text="* all of it", **more):
    values: dict[str, Any] = {
        "generation": 1,
        "base_generation": 0,
        "through_position": 1,
        "tokens": 7,
        "state": ReflectionState.ACTIVE,
    }
    return Reflection(text=text, **(values | more))


def thread(rows=(), **more):
    """A thread whose counters fit its rows."""
    observed = more.get("observed_seq", 0)
    values: dict[str, Any] = {
        "id": 1, "tenant_id": "t", "external_id": "x", "resource_id": "r", "memory_id": 1,
        "head_seq": max([observed, *(each.seq for each in rows)]),
        "pending_tokens": sum(each.tokens for each in rows if each.seq > observed),
        "question_seq": max([0, *(each.seq for each in rows if each.is_question)]),
    }  # fmt: skip
    return ThreadState(**(values | more))


def policy(threshold=1_000, block=10**9, **more):
    return MemoryPolicy(observation=ObservationPolicy(message_tokens=threshold, block_after_tokens=block), **more)


def given(rows=(), *, chunks=(), state=None, rules=None, reflected=None, **more):
    values: dict[str, Any] = {
        name: more.pop(name) for name in ("ephemeral", "max_tokens", "volatile", "now") if name in more
    }
    return ContextInput(
        thread=state or thread(rows, **more),
        memory=MemoryState(id=1),
        policy=rules or policy(),
        reflection=reflected,
        chunks=tuple(chunks),
        messages=tuple(rows),
        **values,
    )


def build(rows=(), **more) -> Context:
    return assemble(given(rows, **more), words)


def shown(message):
    """A message in a line: role, then texts, calls and results."""
    said = [f"call {part.call_id}" for part in message.parts if isinstance(part, ToolCall)]
    said += [f"{part.call_id}: {part.visible}" for part in message.parts if isinstance(part, ToolResult)]
    return f"{message.role.value}: " + " | ".join(filter(None, [text_of(message.parts), *said]))


def lines(context):
    return [shown(message) for message in context.messages]


def hints(seen_seq, **more):
    return Hints(seen_seq=seen_seq, **more)


def without(state, **more):
    return replace(state, **more)
