"""OpenAI's chat-completions messages, to and from canonical messages.

`dump_openai(parse_openai(x)) == x` for every message of that form; messages of another origin become valid ones. A tool
message is a `ToolResult`; `developer` and `system` are role system; `name` is the author; a refusal is text.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from om_core.domain.errors import InvalidInputError
from om_core.domain.message import (
    Data,
    File,
    Image,
    Json,
    JsonObject,
    Message,
    Part,
    Reasoning,
    Role,
    Text,
    ToolCall,
    ToolResult,
)
from om_core.formats import fields
from om_core.formats.attachments import mark_of
from om_core.formats.convert import identity_of, is_blank, result_text, segments, single_text
from om_core.formats.leftover import hints_of, keep_message, merged, says_the_same, with_hints
from om_core.formats.limits import check_size
from om_core.formats.openai_blocks import (
    KEY,
    OPAQUE,
    OPAQUE_CALL,
    parse_block,
    parse_call,
    render_block,
    render_call,
    render_function,
    with_arguments,
)
from om_core.formats.sanitise import sanitise_json

if TYPE_CHECKING:
    from collections.abc import Sequence

_ROLES: Final = {
    "system": Role.SYSTEM,
    "developer": Role.SYSTEM,
    "user": Role.USER,
    "assistant": Role.ASSISTANT,
    "tool": Role.TOOL,
    "function": Role.TOOL,
}
_REASONING_FIELDS: Final = ("reasoning_content", "reasoning")
_NAME_LENGTH: Final = 64
_UNFIT: Final = re.compile(r"[\s<|\\/>\x00-\x1f\x7f]+")
"""What a name must not hold."""


def parse_openai(messages: Sequence[Json], path: str = "messages") -> list[Message]:
    """Canonical messages, one for each of the list.

    Raises:
        InvalidInputError: with the path, for an unknown role, a call or a result without its id, or a wrong type.
    """
    return [_parse_message(message, f"{path}.{index}") for index, message in enumerate(messages)]


def dump_openai(messages: Sequence[Message]) -> list[JsonObject]:
    """Chat-completions messages; those of another origin may become several, or none where nothing can be said."""
    return [raw for message in messages for raw in _dump_message(message)]


def _parse_message(data: Json, path: str) -> Message:
    raw: JsonObject = sanitise_json(fields.check_object(data, path), path)
    message, hints = _read(raw, path)
    return check_size(keep_message(message, KEY, raw, _dump_message, hints), path)


def _read(raw: JsonObject, path: str) -> tuple[Message, JsonObject]:
    """The message as far as it is canonical, and how its form is special."""
    name = raw.get("role")
    role = _ROLES.get(name) if isinstance(name, str) else None
    if role is None:
        raise InvalidInputError(f"unknown role; known are {', '.join(_ROLES)}", path=f"{path}.role")
    if raw.get("parts") and not raw.get("content"):
        raise InvalidInputError(
            "belongs to another form: give content, or name the form (format: om)", path=f"{path}.parts"
        )
    hints: JsonObject = {"role": name} if name in {"developer", "function"} else {}
    if role is Role.TOOL:
        parts: list[Part] = [_read_result(raw, path, legacy=name == "function")]
    else:
        parts = [*_read_reasoning(raw), *_read_content(raw, path, hints), *_read_calls(raw, path)]
    author = raw.get("name") if role is not Role.TOOL and isinstance(raw.get("name"), str) else None
    if author and author != _fit(author):
        hints["name"] = "as given"
    return Message(role=role, parts=tuple(parts), author=author, **identity_of(raw)), hints


def _read_reasoning(raw: JsonObject) -> list[Part]:
    found = [(name, raw[name]) for name in _REASONING_FIELDS if isinstance(raw.get(name), str)]
    return [with_hints(Reasoning(text=text, provider="openai"), KEY, field=name) for name, text in found]


def _read_content(raw: JsonObject, path: str, hints: JsonObject) -> list[Part]:
    content = raw.get("content")
    parts: list[Part] = []
    if isinstance(content, list):
        parts = [parse_block(block, f"{path}.content.{index}") for index, block in enumerate(content)]
        hints["content"] = "list"
    elif isinstance(content, str) and content:
        parts = [Text(text=content)]
    elif content is not None and content != "":
        raise InvalidInputError(f"text or a list is expected, not {fields.kind_of(content)}", path=f"{path}.content")
    else:
        hints["content"] = "missing" if "content" not in raw else "null" if content is None else "empty"
    if isinstance(raw.get("refusal"), str):
        parts.append(with_hints(Text(text=raw["refusal"]), KEY, field="refusal"))
    if isinstance(raw.get("audio"), dict):
        parts.append(with_hints(File(mime_type="audio/*"), KEY, field="audio", audio=raw["audio"]))
    return parts


def _read_calls(raw: JsonObject, path: str) -> list[Part]:
    parts: list[Part] = []
    if raw.get("tool_calls"):
        calls = fields.check_list(raw["tool_calls"], f"{path}.tool_calls")
        parts = [parse_call(call, f"{path}.tool_calls.{index}") for index, call in enumerate(calls)]
    legacy = raw.get("function_call")
    if isinstance(legacy, dict):
        name = fields.check_name(legacy.get("name"), f"{path}.function_call.name")
        parts.append(with_arguments(_legacy_id(name), name, legacy.get("arguments"), field="function_call"))
    return parts


def _legacy_id(name: str) -> str:
    """Function messages of the old form have no id: a result belongs to the call of the same name before it."""
    return f"function_{name}"


def _read_result(raw: JsonObject, path: str, *, legacy: bool) -> Part:
    if legacy:
        name = fields.check_name(raw.get("name"), f"{path}.name")
        part = ToolResult(call_id=_legacy_id(name), name=name, result=raw.get("content"))
    else:
        call_id = fields.check_name(raw.get("tool_call_id"), f"{path}.tool_call_id")
        label = raw["name"] if isinstance(raw.get("name"), str) else None
        part = ToolResult(call_id=call_id, name=label, result=raw.get("content"))
    text = single_text(raw.get("content"))
    if text is not None:
        extra = {name: value for name, value in raw["content"][0].items() if name not in {"type", "text"}}
        return with_hints(replace(part, result=text), KEY, form="list", block=extra)
    if isinstance(raw.get("content"), list):
        return with_hints(part, KEY, form="blocks")
    if raw.get("content") is None:
        return with_hints(part, KEY, form="null" if "content" in raw else "missing")
    return part


def _dump_message(message: Message) -> list[JsonObject]:
    hints = hints_of(message.metadata, KEY)
    raw = hints.get("raw")
    if isinstance(raw, dict) and says_the_same(_read(raw, "")[0], message):
        return [raw]
    dumped = [piece for segment in segments(message) for piece in _dump_segment(segment, hints)]
    if len(dumped) == 1:
        dumped[0] = merged(dumped[0], hints.get("extra"))
    return dumped


def _dump_segment(message: Message, hints: JsonObject) -> list[JsonObject]:
    if message.role is Role.ASSISTANT:
        return _dump_assistant(message, hints)
    results = [_dump_result(part, hints) for part in message.parts if isinstance(part, ToolResult)]
    rest = [part for part in message.parts if not isinstance(part, ToolResult)]
    role = "user" if message.role is not Role.SYSTEM else hints.get("role", "system")
    body = _content(rest, hints, attachments=role == "user")
    if (body.get("content") or "content" in hints) and not (results and not rest):
        return [*results, {"role": role, **body, **_name(message, hints)}]
    return results


def _dump_assistant(message: Message, hints: JsonObject) -> list[JsonObject]:
    fielded: JsonObject = {}
    calls: list[Json] = []
    content: list[Part] = []
    for part in message.parts:
        field = hints_of(part.provider_metadata, KEY).get("field")
        if isinstance(part, ToolCall) and field == "function_call":
            fielded["function_call"] = render_function(part)
        elif isinstance(part, ToolCall) or (isinstance(part, Data) and part.data_type == OPAQUE_CALL):
            calls.append(render_call(part))
        elif isinstance(part, Reasoning | Text) and isinstance(field, str):
            fielded[field] = part.text
        elif isinstance(part, File) and field == "audio":
            fielded["audio"] = hints_of(part.provider_metadata, KEY).get("audio")
        elif not isinstance(part, Reasoning):
            content.append(part)
    if calls:
        fielded["tool_calls"] = calls
    body = _content(content, hints, attachments=False)
    if not (body.get("content") or fielded or hints):
        return []
    return [{"role": "assistant", **body, **fielded, **_name(message, hints)}]


def _content(parts: Sequence[Part], hints: JsonObject, *, attachments: bool) -> JsonObject:
    """The content field: as it was, else a string for one text, else a list; None where there is nothing to say."""
    form = hints.get("content")
    parts = [part for part in parts if not isinstance(part, Data) or part.data_type == OPAQUE]
    if form != "list":
        parts = [part for part in parts if not is_blank(part) or (form is None and len(parts) == 1)]
    if form == "list" or len(parts) > 1 or any(not isinstance(part, Text) for part in parts):
        blocks = [_block(part, attachments=attachments or form == "list") for part in parts]
        blocks = [block for block in blocks if block is not None]
        return {"content": blocks} if blocks or form == "list" else {"content": None}
    if parts:
        return {"content": parts[0].text}  # type: ignore[union-attr]  # the condition above leaves texts only
    if form == "missing":
        return {}
    return {"content": "" if form == "empty" else None}


def _block(part: Part, *, attachments: bool) -> Json:
    if isinstance(part, Image | File) and not attachments:
        return {"type": "text", "text": mark_of(part)}
    return render_block(part)


def _dump_result(part: ToolResult, message_hints: JsonObject) -> JsonObject:
    hints = hints_of(part.provider_metadata, KEY)
    form, value = hints.get("form"), part.visible
    content: Json = result_text(part)
    if form == "list" and isinstance(value, str):
        extra = hints.get("block")
        content = [{"type": "text", "text": value, **(extra if isinstance(extra, dict) else {})}]
    elif form == "blocks" and isinstance(value, list):
        content = value
    elif form == "null" and value is None:
        content = None
    body: JsonObject = {} if form == "missing" and value is None else {"content": content}
    if message_hints.get("role") == "function":
        return {"role": "function", "name": part.name, **body}
    return {"role": "tool", "tool_call_id": part.call_id, **body}


def _name(message: Message, hints: JsonObject) -> JsonObject:
    """The author, in the letters that a name may have unless the client itself gave others."""
    given = message.author or ""
    name = given if hints.get("name") == "as given" else _fit(given)
    return {"name": name} if name else {}


def _fit(author: str) -> str:
    return _UNFIT.sub("_", author.strip())[:_NAME_LENGTH]
