"""Content blocks and tool calls of OpenAI's chat completions, to and from canonical parts."""

from __future__ import annotations

from typing import Any, Final

from om_core.domain.errors import InvalidInputError
from om_core.domain.message import Data, File, Image, Json, JsonObject, Part, Text, ToolCall
from om_core.formats import fields
from om_core.formats.attachments import mark_of, parse_data_uri
from om_core.formats.convert import compact_json, parse_arguments, safe_name
from om_core.formats.leftover import bare, hints_of, keep, merged, with_hints

KEY: Final = "om_openai"
"""Where parts and messages keep what is left over of OpenAI's form."""
OPAQUE: Final = "openai-block"
OPAQUE_CALL: Final = "openai-call"
NAME_LENGTH: Final = 64


def parse_block(block: Json, path: str) -> Part:
    """A part from one entry of a content list."""
    if isinstance(block, str):
        return with_hints(Text(text=block), KEY, form="string")
    raw = fields.check_object(block, path)
    return keep(_parse_block(raw), KEY, raw, render_block)


def _parse_block(raw: JsonObject) -> Part:
    kind = raw.get("type")
    if kind == "text" and isinstance(raw.get("text"), str):
        return Text(text=raw["text"])
    if kind == "refusal" and isinstance(raw.get("refusal"), str):
        return with_hints(Text(text=raw["refusal"]), KEY, type="refusal")
    if kind == "image_url":
        return _parse_image(raw)
    if kind == "input_audio" and isinstance(raw.get("input_audio"), dict):
        audio = raw["input_audio"]
        if isinstance(audio.get("data"), str):
            return File(data=audio["data"], mime_type=f"audio/{audio.get('format', 'wav')}")
    if kind == "file" and isinstance(raw.get("file"), dict):
        return _parse_file(raw["file"])
    return Data(data_type=OPAQUE, data=raw)


def _parse_image(raw: JsonObject) -> Part:
    source = raw.get("image_url")
    url = source.get("url") if isinstance(source, dict) else source
    if not isinstance(url, str):
        return Data(data_type=OPAQUE, data=raw)
    detail = source.get("detail") if isinstance(source, dict) else None
    parsed = parse_data_uri(url)
    image = Image(url=url) if parsed is None else Image(mime_type=parsed[0], data=parsed[1])
    image = Image(url=image.url, data=image.data, mime_type=image.mime_type, detail=_text(detail))
    return image if isinstance(source, dict) else with_hints(image, KEY, form="string")


def _parse_file(source: JsonObject) -> Part:
    filename = _text(source.get("filename"))
    data = source.get("file_data")
    if not isinstance(data, str):
        return with_hints(File(filename=filename), KEY, form="file")
    parsed = parse_data_uri(data)
    if parsed is None:
        return with_hints(File(data=data, filename=filename), KEY, form="base64")
    return with_hints(File(data=parsed[1], mime_type=parsed[0], filename=filename), KEY, form="file")


def render_block(part: Part) -> Json:
    """The entry of a content list that a part is, or None for a part that OpenAI does not know."""
    hints = hints_of(part.provider_metadata, KEY)
    raw = hints.get("raw")
    if isinstance(raw, dict) and bare(_parse_block(raw)) == bare(part):
        return raw
    block = _render(part, hints)
    return merged(block, hints.get("extra")) if isinstance(block, dict) else block


def _render(part: Part, hints: JsonObject) -> Json:
    if isinstance(part, Text):
        if hints.get("form") == "string":
            return part.text
        kind = "refusal" if hints.get("type") == "refusal" else "text"
        return {"type": kind, kind: part.text}
    if isinstance(part, Image):
        return _render_image(part, hints)
    if isinstance(part, File):
        return _render_file(part, hints)
    return part.data if isinstance(part, Data) and part.data_type == OPAQUE else None


def _render_image(part: Image, hints: JsonObject) -> JsonObject:
    url = part.url if part.data is None else f"data:{part.mime_type or 'image/png'};base64,{part.data}"
    if url is None:
        return {"type": "text", "text": mark_of(part)}
    if hints.get("form") == "string":
        return {"type": "image_url", "image_url": url}
    detail = {} if part.detail is None else {"detail": part.detail}
    return {"type": "image_url", "image_url": {"url": url, **detail}}


def _render_file(part: File, hints: JsonObject) -> JsonObject:
    form, mime = hints.get("form"), part.mime_type or "application/octet-stream"
    if form is None and part.data is not None and mime.startswith("audio/"):
        return {"type": "input_audio", "input_audio": {"data": part.data, "format": mime.removeprefix("audio/")}}
    if part.data is None and form is None:
        return {"type": "text", "text": f"[file: {part.filename or part.url}]" if part.url else mark_of(part)}
    source: JsonObject = {}
    if part.data is not None:
        source["file_data"] = part.data if form == "base64" else f"data:{mime};base64,{part.data}"
    if part.filename is not None:
        source["filename"] = part.filename
    return {"type": "file", "file": source}


def parse_call(call: Json, path: str) -> Part:
    """A call from one entry of `tool_calls`.

    Raises:
        InvalidInputError: for a function call without an id or a name.
    """
    raw = fields.check_object(call, path)
    kind = raw.get("type", "function")
    body = raw.get(kind) if kind in {"function", "custom"} else None
    if not isinstance(body, dict):
        if kind == "function":
            raise InvalidInputError("an object is expected", path=f"{path}.function")
        return Data(data_type=OPAQUE_CALL, data=raw)
    call_id = fields.check_name(raw.get("id"), f"{path}.id")
    name = fields.check_name(body.get("name"), f"{path}.{kind}.name")
    if kind == "custom":
        part: Part = with_hints(ToolCall(call_id=call_id, name=name, args=body.get("input")), KEY, type="custom")
    else:
        part = with_arguments(call_id, name, body.get("arguments"))
    return keep(part, KEY, raw, render_call)


def with_arguments(call_id: str, name: str, arguments: Json, **hints: Json) -> Part:
    """A call whose arguments are text: as the value they say, and word for word where writing that differs."""
    args = parse_arguments(arguments) if isinstance(arguments, str) else arguments
    part: Part = ToolCall(call_id=call_id, name=name, args=args)
    if isinstance(arguments, str) and not isinstance(args, str) and compact_json(args) != arguments:
        hints["arguments"] = arguments
    elif not isinstance(arguments, str):
        hints["form"] = "value"
    return with_hints(part, KEY, **hints) if hints else part


def render_call(part: Part) -> Json:
    """The entry of `tool_calls` that a part is."""
    if not isinstance(part, ToolCall):
        return part.data if isinstance(part, Data) else None
    hints = hints_of(part.provider_metadata, KEY)
    raw = hints.get("raw")
    if isinstance(raw, dict) and _call_still_says(raw, part):
        return raw
    if hints.get("type") == "custom":
        body: dict[str, Any] = {"type": "custom", "custom": {"name": part.name, "input": part.args}}
    else:
        body = {"type": "function", "function": render_function(part)}
    return merged({"id": part.call_id, **body}, hints.get("extra"))


def _call_still_says(raw: JsonObject, part: ToolCall) -> bool:
    body = raw.get(raw.get("type", "function"))
    said = body.get("arguments", body.get("input")) if isinstance(body, dict) else None
    args = parse_arguments(said) if isinstance(said, str) else said
    return args == part.args and raw.get("id") == part.call_id


def render_function(part: ToolCall) -> JsonObject:
    """Name and arguments of a call."""
    return {"name": safe_name(part.name, NAME_LENGTH), "arguments": _arguments(part)}


def _arguments(part: ToolCall) -> Json:
    hints = hints_of(part.provider_metadata, KEY)
    text = hints.get("arguments")
    if isinstance(text, str) and parse_arguments(text) == part.args:
        return text
    if isinstance(part.args, str) or hints.get("form") == "value":
        return part.args
    return "{}" if part.args is None else compact_json(part.args)


def _text(value: Json) -> str | None:
    return value if isinstance(value, str) else None
