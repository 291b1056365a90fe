"""A context in the form of a provider: canonical (`om`), OpenAI chat completions, Anthropic Messages (API 3).

Every form is made message by message, so that the rendered stable part only grows as well (DESIGN 2.5). Only the
results of one assistant message become one message for Anthropic; they are on one side of the stable part together.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from itertools import groupby
from typing import TYPE_CHECKING, Final

from om_core.domain.errors import InvalidInputError
from om_core.domain.message import Data, Message, Role, Text
from om_core.domain.tags import escape, is_injected, wrap
from om_core.formats import FORMATS, dump_messages
from om_core.prompts.render import speaker_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from om_core.domain.context import Context, VolatileBlock
    from om_core.domain.message import Json, JsonObject

_CACHE: Final = {"type": "ephemeral"}
_UNCACHED_BLOCKS: Final = frozenset({"thinking", "redacted_thinking"})


@dataclass(frozen=True, slots=True)
class Rendered:
    """Messages of one form; the first `stable` of them are the stable part."""

    messages: list[JsonObject]
    stable: int


def to_om(context: Context) -> list[JsonObject]:
    """Canonical messages; what memory added carries `om_injected` in its metadata."""
    return render(context, "om").messages


def to_openai(context: Context) -> list[JsonObject]:
    """The complete list for chat completions: one system message first, if memory has something to say there."""
    text = "\n\n".join(block.text for block in context.system)
    first: list[JsonObject] = [{"role": "system", "content": text}] if text else []
    return first + render(context, "openai").messages


def to_anthropic(context: Context) -> JsonObject:
    """`system` and `messages` of a Messages request, with cache breakpoints after the log and after the stable part."""
    system: list[JsonObject] = [{"type": "text", "text": block.text} for block in context.system]
    cacheable = [index for index, block in enumerate(context.system) if block.cacheable]
    if cacheable:
        system[cacheable[-1]]["cache_control"] = dict(_CACHE)
    rendered = render(context, "anthropic")
    if rendered.stable:
        rendered.messages[rendered.stable - 1] = _with_breakpoint(rendered.messages[rendered.stable - 1])
    return {"system": system, "messages": rendered.messages}


def render(context: Context, format: str = "om") -> Rendered:
    """The messages of a context, without its system blocks.

    Raises:
        InvalidInputError: for an unknown format.
    """
    if format not in FORMATS:
        raise InvalidInputError(f"{format[:40]!r} is unknown; known are {', '.join(FORMATS)}", path="format")
    stable, rest = context.messages[: context.stable_messages], context.messages[context.stable_messages :]
    first = _dumped(stable, format)
    return Rendered([*first, *_dumped(rest, format)], len(first))


def context_to_json(context: Context, format: str = "om") -> JsonObject:
    """The answer of `POST …/context` (API 3).

    Raises:
        InvalidInputError: for an unknown format.
    """
    rendered = render(context, format)
    return {
        "system": [asdict(block) for block in context.system],
        "messages": rendered.messages,
        "stable_messages": rendered.stable,
        "volatile": [_volatile_json(block) for block in context.volatile],
        "tokens": asdict(context.tokens),
        "generation": context.generation,
        "observed_seq": context.observed_seq,
        "head_seq": context.head_seq,
        "prefix_hash": context.prefix_hash,
        "prefix_changed": context.prefix_changed,
        "activated": asdict(context.activated) | {"cycle_ids": list(context.activated.cycle_ids)}
        if context.activated
        else None,
        "trimmed": context.trimmed,
        "over_budget": context.over_budget,
        "waited_s": context.waited_s,
    }


def _volatile_json(block: VolatileBlock) -> JsonObject:
    view: JsonObject = {"kind": block.kind, "text": block.text}
    return view if block.name is None else {**view, "name": block.name}


def _dumped(messages: Iterable[Message], format: str) -> list[JsonObject]:
    if format == "om":
        return dump_messages([_without_data(message) for message in messages], format)
    if format == "anthropic":
        joined = _joined_results(map(_with_speaker, messages))
        return [_without_breakpoints(raw) for message in joined for raw in dump_messages([message], format)]
    return [raw for message in messages for raw in dump_messages([message], format)]


def _with_speaker(message: Message) -> Message:
    """A user's message with its author's name in a block before the words: Anthropic's form has no field for it.

    Nobody's words can look like such a block, with or without a name of their own.
    """
    if message.role is not Role.USER or is_injected(message):
        return message
    parts = tuple(replace(part, text=escape(part.text)) if isinstance(part, Text) else part for part in message.parts)
    name = speaker_name(message.author or "")
    if name:
        parts = (Text(text=wrap("speaker", name)), *parts)
    return message if parts == message.parts else replace(message, parts=parts)


def _without_data(message: Message) -> Message:
    """Data parts are for user interfaces; only the format that they came in may send them to a model."""
    parts = tuple(part for part in message.parts if not isinstance(part, Data))
    return replace(message, parts=parts)


def _joined_results(messages: Iterable[Message]) -> Iterator[Message]:
    """Successive tool messages as one: they answer one assistant message, and Anthropic wants them together."""
    for is_tool, run in groupby(messages, key=lambda message: message.role is Role.TOOL):
        together = list(run)
        if is_tool and len(together) > 1:
            yield Message(role=Role.TOOL, parts=tuple(part for message in together for part in message.parts))
        else:
            yield from together


def _without_breakpoints(message: JsonObject) -> JsonObject:
    """Breakpoints that clients set on stored messages are gone: with each turn's, a request would have too many."""
    content: Json = message["content"]
    if isinstance(content, str) or not any("cache_control" in block for block in content):
        return message
    blocks = [{key: value for key, value in block.items() if key != "cache_control"} for block in content]
    return {**message, "content": blocks}


def _with_breakpoint(message: JsonObject) -> JsonObject:
    """The message with a cache breakpoint on its last block that can carry one."""
    content: Json = message["content"]
    blocks: list[JsonObject] = [{"type": "text", "text": content}] if isinstance(content, str) else list(content)
    for index in range(len(blocks) - 1, -1, -1):
        if blocks[index].get("type") not in _UNCACHED_BLOCKS:
            blocks[index] = {**blocks[index], "cache_control": dict(_CACHE)}
            break
    return {**message, "content": blocks}
