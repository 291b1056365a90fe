"""What OpenAI's and Anthropic's APIs refuse, for rendered prompts (DESIGN 2.6). Pure; used by tests and debug mode."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

    from om_core.domain.message import Json, JsonObject

MOST_BREAKPOINTS: Final = 4
"""Cache breakpoints that Anthropic accepts in one request."""


def check_openai(messages: Sequence[JsonObject]) -> list[str]:
    """Problems of a list in the form of OpenAI's chat completions."""
    problems: list[str] = []
    waiting: list[str] = []
    for index, message in enumerate(messages):
        role = message.get("role")
        if role == "system" and index:
            problems.append(f"message {index}: role system after the first message")
        if role == "tool":
            call_id = message.get("tool_call_id", "")
            if call_id in waiting:
                waiting.remove(call_id)
            else:
                problems.append(f"message {index}: tool_call_id {call_id!r} answers no call before it")
            continue
        if waiting:
            problems.append(f"message {index}: tool_calls without a tool message: {', '.join(waiting)}")
        calls = message.get("tool_calls") or []
        waiting = [call["id"] for call in calls]
        if calls and role != "assistant":
            problems.append(f"message {index}: tool_calls of role {role}")
        if not calls and _is_blank(message.get("content")):
            problems.append(f"message {index}: no content")
    if waiting:
        problems.append(f"tool_calls without a tool message at the end: {', '.join(waiting)}")
    return problems


def check_anthropic(payload: JsonObject) -> list[str]:
    """Problems of `system` and `messages` in the form of Anthropic's Messages API."""
    messages: list[JsonObject] = payload.get("messages", [])
    problems: list[str] = []
    if messages and messages[0].get("role") != "user":
        problems.append("the first message is not the user's")
    waiting: list[str] = []
    for index, message in enumerate(messages):
        blocks = _blocks(message.get("content"))
        if message.get("role") not in {"user", "assistant"}:
            problems.append(f"message {index}: role {message.get('role')}")
        problems += [f"message {index}: {problem}" for problem in _check_blocks(blocks)]
        answered = [block["tool_use_id"] for block in blocks if block.get("type") == "tool_result"]
        if sorted(answered) != sorted(waiting):
            problems.append(f"message {index}: answers {answered}, but the calls before it are {waiting}")
        waiting = [block["id"] for block in blocks if block.get("type") == "tool_use"]
    if waiting:
        problems.append(f"tool_use without tool_result at the end: {', '.join(waiting)}")
    marked = _count_breakpoints(payload)
    if marked > MOST_BREAKPOINTS:
        problems.append(f"{marked} cache breakpoints, at most {MOST_BREAKPOINTS} are allowed")
    return problems


def _check_blocks(blocks: Sequence[JsonObject]) -> list[str]:
    problems: list[str] = []
    if all(block.get("type") in {"thinking", "redacted_thinking"} for block in blocks):
        problems.append("no content")
    if any(block.get("type") == "text" and not block["text"].strip() for block in blocks):
        problems.append("a blank text block")
    if any("cache_control" in block and "thinking" in str(block.get("type")) for block in blocks):
        problems.append("a cache breakpoint on a thinking block")
    results = [block.get("type") == "tool_result" for block in blocks]
    if results != sorted(results, reverse=True):
        problems.append("tool_result after other content")
    return problems


def _blocks(content: Json) -> list[JsonObject]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else list(content or [])


def _count_breakpoints(payload: JsonObject) -> int:
    blocks = [*_blocks(payload.get("system"))]
    for message in payload.get("messages", []):
        blocks += _blocks(message.get("content"))
    return sum("cache_control" in block for block in blocks)


def _is_blank(content: Json) -> bool:
    if isinstance(content, str):
        return not content.strip()
    return not content
