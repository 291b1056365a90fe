"""The last check of a prompt before it is sent: what a strict provider would refuse (DESIGN 2.6). Pure.

Tests run it on every context, the service in debug mode. Each check answers with the problems it found, as sentences.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from om_core.domain.message import Message, Role, ToolCall, ToolResult
from om_core.domain.pairs import is_visible
from om_core.domain.stable import prefix_hash, stable_bytes
from om_core.domain.tags import is_injected

if TYPE_CHECKING:
    from collections.abc import Sequence

    from om_core.domain.context import Context


def check_context(context: Context, *, question_seq: int = 0) -> list[str]:
    """Problems of an assembled context; empty when it is sound.

    Args:
        context: as `assemble` returned it.
        question_seq: seq of the newest user message, 0 if there is none.
    """
    problems = check_messages(context.messages)
    problems += _check_order(context)
    if question_seq and question_seq not in context.message_seqs:
        problems.append(f"the question, seq {question_seq}, is missing")
    if not 0 <= context.stable_messages <= len(context.messages) - context.volatile_messages:
        problems.append(f"stable_messages = {context.stable_messages} reaches into the volatile tail")
    if context.prefix_hash != prefix_hash(context.system, context.messages[: context.stable_messages]):
        problems.append("prefix_hash is not the hash of the stable part")
    problems += [
        f"system block {index} is empty" for index, block in enumerate(context.system) if not block.text.strip()
    ]
    return problems


def check_messages(messages: Sequence[Message]) -> list[str]:
    """Problems of a list of messages in the strict form: a run of tool messages right after its calls, and so on."""
    problems: list[str] = []
    if messages and messages[0].role is not Role.USER:
        problems.append(f"message 0 is the {messages[0].role.value}'s; a conversation begins with the user")
    waiting: list[str] = []
    answering = False
    for index, message in enumerate(messages):
        problems += [f"message {index}: {problem}" for problem in _check_alone(message)]
        results = [part.call_id for part in message.parts if isinstance(part, ToolResult)]
        if waiting and not results:
            problems.append(f"message {index - 1}: no result follows directly for {', '.join(waiting)}")
            waiting = []
        answering = bool(results) and answering
        for call_id in results:
            if not answering or call_id not in waiting:
                problems.append(f"message {index}: the result of {call_id} follows no call of it directly")
            else:
                waiting.remove(call_id)
        calls = [part.call_id for part in message.parts if isinstance(part, ToolCall)]
        if calls:
            waiting, answering = calls, True
    if waiting:
        problems.append(f"no result follows directly for {', '.join(waiting)}")
    return problems


def _check_alone(message: Message) -> list[str]:
    problems: list[str] = []
    if message.role is Role.SYSTEM:
        problems.append("role system among the messages")
    if not any(is_visible(part) for part in message.parts):
        problems.append("empty")
    calls = [part.call_id for part in message.parts if isinstance(part, ToolCall)]
    results = sum(isinstance(part, ToolResult) for part in message.parts)
    if calls and message.role is not Role.ASSISTANT:
        problems.append("a call that is not the assistant's")
    if len(set(calls)) < len(calls):
        problems.append("two calls with one id")
    if (message.role is Role.TOOL) != bool(results) or (results and results != len(message.parts)):
        problems.append("results belong into tool messages, and nothing else does")
    return problems


def _check_order(context: Context) -> list[str]:
    """Rows stand by seq, each part of one once. A late result may wait for the group that it fell into."""
    if len(context.message_seqs) != len(context.messages):
        return [f"{len(context.message_seqs)} seqs for {len(context.messages)} messages"]
    problems: list[str] = []
    seen: set[bytes] = set()
    newest = 0
    for seq, message in zip(context.message_seqs, context.messages, strict=True):
        if seq is None:
            continue
        content = f"{seq}:".encode() + stable_bytes((), (message,))
        if content in seen:
            problems.append(f"seq {seq} stands there twice")
        seen.add(content)
        if seq < newest and not is_injected(message):
            problems.append(f"seq {seq} stands after seq {newest}")
        newest = max(newest, seq)
    return problems
