"""What each method asks for: path, parameters, body. Both clients share it; nothing here waits for anything."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote
from uuid import uuid4

from om_core.domain.errors import InvalidInputError
from om_core.formats.canonical import dump_message
from om_core.turn import parse_messages

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from om_core.domain.message import JsonObject, Message


CONTEXT_WAIT_S: Final = 120.0
"""Longest that a context call may wait for notes, in seconds: the most that `block_timeout` allows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One request; `wait_s` is what the server may take of its own accord."""

    method: str
    path: str
    query: dict[str, Any] = field(default_factory=dict)
    body: JsonObject | None = None
    wait_s: float = 0.0
    key: str | None = None
    """`Idempotency-Key`: the same at every attempt."""


def get(path: str, **query: Any) -> Call:
    """A reading request; parameters without a value are left out."""
    return Call(method="GET", path=path, query=_given(query))


def post(path: str, body: JsonObject | None = None, *, wait_s: float = 0.0, **query: Any) -> Call:
    """A request with a body; fields without a value are left out."""
    return Call(method="POST", path=path, query=_given(query), body=_given(body or {}), wait_s=wait_s)


def post_to(path: str, **query: Any) -> Call:
    """A request without a body."""
    return Call(method="POST", path=path, query=_given(query))


def quoted(value: str) -> str:
    """An id as a part of a path."""
    return quote(value, safe="")


def delete(path: str, **query: Any) -> Call:
    """A removal."""
    return Call(method="DELETE", path=path, query=_given(query))


def _given(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def thread_path(thread: str, rest: str = "") -> str:
    """The path of a thread, or of what is below it."""
    return f"/v1/threads/{quote(thread, safe='')}{rest}"


def put_thread(thread: str, resource: str, changes: JsonObject) -> Call:
    """Unlike elsewhere None is sent: it clears."""
    return Call(method="PUT", path=thread_path(thread), body={"resource_id": resource, **changes})


def append(
    thread: str,
    messages: Sequence[JsonObject | Message],
    *,
    resource: str | None,
    format: str,
    model: str | None,
    end_of_turn: bool,
    on_divergence: str = "report",
    context: JsonObject | None = None,
) -> Call:
    """Store a step, with the context in the same answer where `context` asks for one.

    Raises:
        InvalidInputError: a message is not of the format.
    """
    body = {
        "resource_id": resource,
        "format": "om",
        "messages": [dump_message(message) for message in parse_messages(messages, format)],
        "model": model,
        "end_of_turn": end_of_turn or None,
        "on_divergence": None if on_divergence == "report" else on_divergence,
        "context": context,
    }
    return replace(post(thread_path(thread, "/messages"), body), key=uuid4().hex)


def context_options(
    *,
    model: str | None = None,
    max_tokens: int | None = None,
    read_only: bool = False,
    ephemeral: Sequence[JsonObject | Message] = (),
    now: datetime | None = None,
) -> JsonObject:
    """Which context; it comes in the canonical form and is rendered here."""
    shown = [dump_message(message) for message in parse_messages(ephemeral, "om")] if ephemeral else None
    return _given(
        {
            "format": "om",
            "model": model,
            "max_tokens": max_tokens,
            "read_only": read_only or None,
            "ephemeral": shown,
            "now": now.isoformat() if now else None,
        }
    )


def context(thread: str, resource: str | None, options: JsonObject) -> Call:
    """The prompt for the next model call; the server may wait for notes as its policy allows."""
    return post(thread_path(thread, "/context"), {"resource_id": resource, **options}, wait_s=CONTEXT_WAIT_S)


def asked(thread: str, what: str, resource: str | None, wait_s: float | None, **more: Any) -> Call:
    """Work asked for by hand."""
    body = {"resource_id": resource, "wait_s": wait_s, **more}
    return post(thread_path(thread, f"/{what}"), body, wait_s=wait_s or 0.0)


def working_memory(thread: str | None, resource: str | None) -> Call:
    """The document of a thread, or of a resource.

    Raises:
        InvalidInputError: neither is named.
    """
    if thread is not None:
        return get(thread_path(thread, "/working-memory"), resource_id=resource)
    if resource is None:
        raise InvalidInputError("name a thread or a resource", path="thread")
    return get(f"/v1/resources/{quote(resource, safe='')}/working-memory")


def set_working_memory(
    thread: str | None, resource: str | None, content: str | JsonObject, *, format: str | None, version: int | None
) -> Call:
    """A whole document; raises as `working_memory`."""
    body: JsonObject = {"content": content, "format": format, "version": version}
    if thread is not None:
        body["resource_id"] = resource
    place = working_memory(thread, resource)
    return Call(method="PUT", path=place.path, body=_given(body))
