"""The canonical JSON form of messages (API 3, `format: "om"`): strict parsing, compact dumping.

`parse_message(dump_message(message)) == message` for every message whose times are in UTC. Role `system` is accepted
here; ingest ignores it (DESIGN 6.11). A data part is written `{"type": "data-NAME", "data": …}`, or with `data_type`
where its name has no such prefix.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias, cast, get_args

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
    ResultStatus,
    Role,
    Text,
    ToolCall,
    ToolResult,
)
from om_core.formats import fields
from om_core.formats.limits import check_size
from om_core.formats.sanitise import MAX_DEPTH, sanitise_json

_ENVELOPE: Final = 8
"""Levels that the message itself, its parts and provider leftovers add around a payload."""
_MESSAGE_FIELDS: Final = frozenset({"id", "role", "author", "created_at", "timezone", "parts", "metadata"})
_COMMON: Final = frozenset({"type", "created_at", "provider_metadata"})
_STATUSES: Final = get_args(ResultStatus)

_Check: TypeAlias = Callable[[Json, str], Any]


def parse_message(data: Json, path: str = "messages.0") -> Message:
    """A message from its canonical JSON, sanitised and checked.

    Raises:
        InvalidInputError: with the path of the first field that is wrong.
    """
    raw = fields.check_object(data, path)
    message_id = None if raw.get("id") is None else fields.check_id(raw["id"], f"{path}.id")
    raw = sanitise_json(raw, path, max_depth=MAX_DEPTH + _ENVELOPE)
    fields.check_fields(raw, _MESSAGE_FIELDS, path)
    parts = fields.check_list(_required(raw, "parts", path), f"{path}.parts")
    message = Message(
        role=_parse_role(_required(raw, "role", path), f"{path}.role"),
        parts=tuple(parse_part(part, f"{path}.parts.{index}") for index, part in enumerate(parts)),
        id=message_id,
        author=_optional(raw, "author", path, fields.check_text),
        created_at=_optional(raw, "created_at", path, fields.parse_time),
        timezone=_optional(raw, "timezone", path, fields.check_timezone),
        metadata=_optional(raw, "metadata", path, fields.check_object) or {},
    )
    return check_size(message, path)


def dump_message(message: Message) -> JsonObject:
    """A message as canonical JSON, without what is absent."""
    data: JsonObject = {"id": message.id, "role": message.role.value, "author": message.author}
    data["created_at"] = None if message.created_at is None else fields.dump_time(message.created_at)
    data["timezone"] = message.timezone
    data = {name: value for name, value in data.items() if value is not None}
    data["parts"] = dump_parts(message.parts)
    if message.metadata:
        data["metadata"] = message.metadata
    return data


def dump_parts(parts: tuple[Part, ...]) -> list[JsonObject]:
    """Parts as the store keeps them."""
    return [dump_part(part) for part in parts]


def parse_part(data: Json, path: str = "parts.0") -> Part:
    """A part from its canonical JSON. Checks, but does not sanitise: the caller did.

    Raises:
        InvalidInputError: with the path of the first field that is wrong.
    """
    raw = fields.check_object(data, path)
    kind = fields.check_text(_required(raw, "type", path), f"{path}.type")
    reader = _READERS.get("data" if kind.startswith("data-") else kind)
    if reader is None:
        raise InvalidInputError(
            f"unknown part type {kind[:64]!r}; known are {', '.join(_READERS)}", path=f"{path}.type"
        )
    allowed, build = reader
    fields.check_fields(raw, allowed | _COMMON, path)
    common: dict[str, Any] = {
        "created_at": _optional(raw, "created_at", path, fields.parse_time),
        "provider_metadata": _optional(raw, "provider_metadata", path, fields.check_object),
    }
    return build(raw, path, common)


def dump_part(part: Part) -> JsonObject:
    """A part as canonical JSON, without what is absent; `args`, `result` and `data` are always there."""
    data: JsonObject = {"type": part.type}
    if isinstance(part, Data):
        data = _data_head(part.data_type) | {"data": part.data}
    for name in _DUMPED[part.type]:
        value = getattr(part, name)
        if value is not None or name in {"args", "result"}:
            data[name] = value
    if isinstance(part, ToolResult) and part.status == "ok":
        del data["status"]
    if part.created_at is not None:
        data["created_at"] = fields.dump_time(part.created_at)
    if part.provider_metadata is not None:
        data["provider_metadata"] = part.provider_metadata
    return data


def _required(raw: JsonObject, name: str, path: str) -> Json:
    if name not in raw:
        raise InvalidInputError("is missing", path=f"{path}.{name}")
    return raw[name]


def _optional(raw: JsonObject, name: str, path: str, check: _Check) -> Any:
    value = raw.get(name)
    return None if value is None else check(value, f"{path}.{name}")


def _parse_role(value: Json, path: str) -> Role:
    try:
        return Role(value)
    except ValueError as error:
        known = ", ".join(role.value for role in Role)
        raise InvalidInputError(f"unknown role; known are {known}", path=path) from error


def _text(raw: JsonObject, path: str, common: dict[str, Any]) -> Part:
    return Text(text=fields.check_text(_required(raw, "text", path), f"{path}.text"), **common)


def _tool_call(raw: JsonObject, path: str, common: dict[str, Any]) -> Part:
    call_id = fields.check_name(_required(raw, "call_id", path), f"{path}.call_id")
    name = fields.check_name(_required(raw, "name", path), f"{path}.name")
    return ToolCall(call_id=call_id, name=name, args=raw.get("args"), **common)


def _tool_result(raw: JsonObject, path: str, common: dict[str, Any]) -> Part:
    status = raw.get("status", "ok")
    if status not in _STATUSES:
        raise InvalidInputError(f"unknown status; known are {', '.join(_STATUSES)}", path=f"{path}.status")
    return ToolResult(
        call_id=fields.check_name(_required(raw, "call_id", path), f"{path}.call_id"),
        name=_optional(raw, "name", path, fields.check_text),
        result=raw.get("result"),
        model_result=raw.get("model_result"),
        status=cast("ResultStatus", status),
        **common,
    )


def _reasoning(raw: JsonObject, path: str, common: dict[str, Any]) -> Part:
    text = _optional(raw, "text", path, fields.check_text)
    return Reasoning(text=text, provider=_optional(raw, "provider", path, fields.check_text), **common)


def _check_source(raw: JsonObject, path: str) -> None:
    """One of `url` and `data`; neither where the provider's payload holds the reference."""
    given = [name for name in ("url", "data") if raw.get(name) is not None]
    if len(given) != 1 and (given or not raw.get("provider_metadata")):
        raise InvalidInputError("give either url or data (base64)", path=path)


def _image(raw: JsonObject, path: str, common: dict[str, Any]) -> Part:
    _check_source(raw, path)
    texts = {name: _optional(raw, name, path, fields.check_text) for name in ("url", "data", "mime_type", "detail")}
    return Image(
        width=_optional(raw, "width", path, _pixels),
        height=_optional(raw, "height", path, _pixels),
        token_estimate=_optional(raw, "token_estimate", path, _tokens),
        **texts,
        **common,
    )


def _file(raw: JsonObject, path: str, common: dict[str, Any]) -> Part:
    _check_source(raw, path)
    texts = {name: _optional(raw, name, path, fields.check_text) for name in ("url", "data", "mime_type", "filename")}
    return File(token_estimate=_optional(raw, "token_estimate", path, _tokens), **texts, **common)


def _data(raw: JsonObject, path: str, common: dict[str, Any]) -> Part:
    kind = raw["type"]
    if kind == "data":
        kind = _optional(raw, "data_type", path, fields.check_name) or "data"
    elif "data_type" in raw:
        raise InvalidInputError("the type already names it", path=f"{path}.data_type")
    return Data(data_type=kind, data=raw.get("data"), **common)


def _data_head(kind: str) -> JsonObject:
    if kind == "data" or kind.startswith("data-"):
        return {"type": kind}
    return {"type": "data", "data_type": kind}


def _pixels(value: Json, path: str) -> int:
    return fields.check_number(value, path, least=1)


def _tokens(value: Json, path: str) -> int:
    return fields.check_number(value, path, least=0)


_DUMPED: Final[dict[str, tuple[str, ...]]] = {
    "text": ("text",),
    "tool_call": ("call_id", "name", "args"),
    "tool_result": ("call_id", "name", "result", "model_result", "status"),
    "reasoning": ("text", "provider"),
    "image": ("url", "data", "mime_type", "width", "height", "detail", "token_estimate"),
    "file": ("url", "data", "mime_type", "filename", "token_estimate"),
    "data": (),
}
_BUILDERS: Final[dict[str, Callable[[JsonObject, str, dict[str, Any]], Part]]] = {
    "text": _text,
    "tool_call": _tool_call,
    "tool_result": _tool_result,
    "reasoning": _reasoning,
    "image": _image,
    "file": _file,
    "data": _data,
}
_READERS: Final = {
    kind: (frozenset(_DUMPED[kind]) | (frozenset({"data_type", "data"}) if kind == "data" else frozenset()), build)
    for kind, build in _BUILDERS.items()
}
