"""What the scripted model server says: answers that a test can check, in our output format and in OpenAI's form.

Messages of a test carry tokens such as `TRACE-17`. The observer's answer has one note for each token in the messages
to note (not in earlier notes), the reflector's keeps every token of the log, so a test sees by the tokens which
messages are covered, and how often.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

    from om_core.domain.message import JsonObject
    from om_core.testing.scripted_server import Reply

TRACE: Final = re.compile(r"\bTRACE-[A-Za-z0-9_]+(?:-[A-Za-z0-9_]+)*")
"""The token by which a test follows a message."""

_BLOCK: Final = re.compile(
    r"<(?P<kind>history|notes)-(?P<code>[0-9a-f]{12})>\n(?P<body>.*?)\n</(?P=kind)-(?P=code)>", re.DOTALL
)
_DATE: Final = re.compile(r"\b(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]* \d{1,2},? \d{4}\b")
_DAY: Final = "Jan 1, 2026"
_PER_LINE: Final = 12


def traces(text: str) -> list[str]:
    """The trace tokens of a text, each once, in order."""
    return list(dict.fromkeys(TRACE.findall(text)))


def answer_reply(request: JsonObject) -> str:
    """An observer's or a reflector's answer, whichever the request asks for; else a plain sentence."""
    kind, _ = _material(request)
    if "JSON object" in prompt_text(request).rpartition("\n")[2]:
        return "{}"  # values are asked for: there are none
    if kind == "history":
        return observer_reply(request)
    if kind == "notes":
        return reflector_reply(request)
    return f"Understood: {' '.join(traces(prompt_text(request))) or 'nothing to trace'}."


def observer_reply(request: JsonObject) -> str:
    """Notes for the messages of an observer's request: one line per trace token, or one general line."""
    _, body = _material(request)
    found = traces(body)
    lines = [
        f"* {'🔴' if index % 5 == 0 else '🟡'} ({9 + index // 60 % 12:02}:{index % 60:02}) Noted {token}"
        for index, token in enumerate(found)
    ]
    return _observations(body, lines or [f"* 🟢 (09:00) The conversation went on for {len(body)} characters."])


def reflector_reply(request: JsonObject) -> str:
    """A shorter log that keeps every trace token of the notes."""
    _, body = _material(request)
    found = traces(body)
    rows = [found[start : start + _PER_LINE] for start in range(0, len(found), _PER_LINE)]
    lines = [f"* 🔴 ({9 + index % 12:02}:00) Kept {' '.join(row)}" for index, row in enumerate(rows)]
    return _observations(body, lines or ["* 🟡 (09:00) Nothing that has to be traced was noted."])


def prompt_text(request: JsonObject) -> str:
    """The text of all messages but the instructions."""
    messages: list[JsonObject] = request.get("messages") or []
    return "\n".join(_text(message.get("content")) for message in messages if message.get("role") != "system")


def _text(content: Any) -> str:
    if isinstance(content, list):
        return "\n".join(block["text"] for block in content if isinstance(block, dict) and "text" in block)
    return content if isinstance(content, str) else ""


def _material(request: JsonObject) -> tuple[str | None, str]:
    """Kind and content of the quoted block to work on; without one, the whole prompt."""
    text = prompt_text(request)
    block = _BLOCK.search(text)
    return (None, text) if block is None else (block["kind"], block["body"])


def _observations(body: str, lines: list[str]) -> str:
    date = _DATE.search(body)
    return "\n".join(["<observations>", f"Date: {date.group() if date else _DAY}", *lines, "</observations>"])


def completion_body(request: JsonObject, reply: Reply, number: int) -> JsonObject:
    """A `chat.completion` object."""
    message: JsonObject = {"role": "assistant", "content": reply.text}
    if reply.tool_calls:
        message["tool_calls"] = list(reply.tool_calls)
    choice = {"index": 0, "message": message, "finish_reason": _finish(reply)}
    return {
        **_head(request, number, "chat.completion"),
        "choices": [choice] if reply.choices else [],
        "usage": _usage(request, reply),
    }


def completion_events(request: JsonObject, reply: Reply, number: int) -> Iterator[JsonObject]:
    """`chat.completion.chunk` objects: role, text in pieces, tool calls, the end, and usage where it is asked for."""
    head = _head(request, number, "chat.completion.chunk")

    def chunk(delta: JsonObject, finish: str | None = None) -> JsonObject:
        return {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}

    yield chunk({"role": "assistant", "content": ""})
    for piece in re.findall(r".{1,12}", reply.text or "", re.DOTALL):
        yield chunk({"content": piece})
    if reply.tool_calls:
        yield chunk({"tool_calls": [{"index": index, **call} for index, call in enumerate(reply.tool_calls)]})
    yield chunk({}, _finish(reply))
    if (request.get("stream_options") or {}).get("include_usage"):
        yield {**head, "choices": [], "usage": _usage(request, reply)}


def _head(request: JsonObject, number: int, kind: str) -> JsonObject:
    return {"id": f"chatcmpl-{number}", "object": kind, "created": 0, "model": request.get("model", "scripted")}


def _finish(reply: Reply) -> str:
    return "tool_calls" if reply.tool_calls and reply.finish_reason == "stop" else reply.finish_reason


def _usage(request: JsonObject, reply: Reply) -> JsonObject:
    """Counts as scripted, else a quarter of the characters."""
    given = len(str(request.get("messages"))) // 4 if reply.input_tokens is None else reply.input_tokens
    made = len(reply.text or "") // 4 if reply.output_tokens is None else reply.output_tokens
    return {
        "prompt_tokens": given,
        "completion_tokens": made,
        "total_tokens": given + made,
        "prompt_tokens_details": {"cached_tokens": reply.cached_tokens},
    }
