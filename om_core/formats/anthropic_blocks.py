"""Content blocks of Anthropic's Messages API, to and from canonical parts."""

from __future__ import annotations

from typing import Final

from om_core.domain.message import Data, File, Image, Json, JsonObject, Part, Reasoning, Text, ToolCall, ToolResult
from om_core.formats import fields
from om_core.formats.attachments import mark_of
from om_core.formats.convert import is_blank, parse_arguments, result_text, safe_id, safe_name, single_text
from om_core.formats.leftover import bare, hints_of, keep, merged, with_hints

KEY: Final = "om_anthropic"
"""Where parts and messages keep what is left over of Anthropic's form."""
OPAQUE: Final = "anthropic-block"
"""Data parts for blocks without a canonical counterpart, such as the provider's own tools."""
PROVIDER: Final = "anthropic"
_ID_LENGTH: Final = 256
_NAME_LENGTH: Final = 128
_PDF: Final = "application/pdf"
_RESULT_BLOCKS: Final = frozenset({"text", "image", "document", "search_result", "tool_reference"})
"""What a result's content may hold; anything else is written as text."""


def parse_block(block: Json, path: str) -> Part:
    """A part from one content block.

    Raises:
        InvalidInputError: for a call or a result without its id.
    """
    raw = fields.check_object(block, path)
    if raw.get("type") == "tool_use":
        fields.check_name(raw.get("id"), f"{path}.id")
        fields.check_name(raw.get("name"), f"{path}.name")
    if raw.get("type") == "tool_result":
        fields.check_name(raw.get("tool_use_id"), f"{path}.tool_use_id")
    return keep(_parse(raw), KEY, raw, render_block)


def _parse(raw: JsonObject) -> Part:
    kind = raw.get("type")
    if kind == "text" and isinstance(raw.get("text"), str):
        text = Text(text=raw["text"])
        return with_hints(text, KEY, blank=True) if is_blank(text) else text
    if kind == "tool_use":
        return ToolCall(call_id=raw["id"], name=raw["name"], args=raw.get("input"))
    if kind == "tool_result":
        return _parse_result(raw)
    if kind == "thinking" and isinstance(raw.get("thinking"), str):
        return with_hints(Reasoning(text=raw["thinking"], provider=PROVIDER), KEY, type=kind)
    if kind == "redacted_thinking":
        return with_hints(Reasoning(provider=PROVIDER), KEY, type=kind)
    if kind in {"image", "document"} and isinstance(raw.get("source"), dict):
        return _parse_source(kind, raw["source"], raw)
    return Data(data_type=OPAQUE, data=raw)


def _parse_result(raw: JsonObject) -> Part:
    content = raw.get("content")
    status = "error" if raw.get("is_error") is True else "ok"
    text = single_text(content)
    part: Part = ToolResult(call_id=raw["tool_use_id"], result=content if text is None else text, status=status)  # type: ignore[arg-type]  # one of two literals
    if text is not None and isinstance(content, list):
        extra = {name: value for name, value in content[0].items() if name not in {"type", "text"}}
        return with_hints(part, KEY, form="list", block=extra)
    if isinstance(content, str):
        return part
    return with_hints(part, KEY, form="missing" if "content" not in raw else "value")


def _parse_source(kind: str, source: JsonObject, raw: JsonObject) -> Part:
    form, data, url = source.get("type"), source.get("data"), source.get("url")
    mime = source["media_type"] if isinstance(source.get("media_type"), str) else None
    title = raw["title"] if isinstance(raw.get("title"), str) else None
    data = data if form == "base64" and isinstance(data, str) else None
    url = url if form == "url" and isinstance(url, str) else None
    if kind == "document" and form == "text" and isinstance(source.get("data"), str):
        return with_hints(Text(text=source["data"]), KEY, type=kind)
    if kind == "image":
        image = Image(data=data, url=url, mime_type=mime)
        return image if data or url else with_hints(image, KEY, type=kind)
    return with_hints(File(data=data, url=url, mime_type=mime, filename=title), KEY, type=kind)


def render_block(part: Part) -> JsonObject | None:
    """The content block that a part is, or None for a part that Anthropic does not know or does not accept."""
    hints = hints_of(part.provider_metadata, KEY)
    raw = hints.get("raw")
    if isinstance(raw, dict) and bare(_parse(raw)) == bare(part):
        return raw
    block = _render(part, hints)
    return None if block is None else merged(block, hints.get("extra"))


def _render(part: Part, hints: JsonObject) -> JsonObject | None:
    if isinstance(part, Text):
        return _render_text(part, hints)
    if isinstance(part, ToolCall):
        call_id = safe_id(part.call_id, _ID_LENGTH)
        name = safe_name(part.name, _NAME_LENGTH)
        return {"type": "tool_use", "id": call_id, "name": name, "input": _input(part.args)}
    if isinstance(part, ToolResult):
        return _render_result(part, hints)
    if isinstance(part, Reasoning):
        if hints.get("type") == "redacted_thinking":
            return {"type": "redacted_thinking"}
        return {"type": "thinking", "thinking": part.text or ""} if hints.get("type") == "thinking" else None
    if isinstance(part, Image):
        return _render_image(part, hints)
    if isinstance(part, File):
        return _render_file(part, hints)
    return part.data if part.data_type == OPAQUE and isinstance(part.data, dict) else None


def _render_text(part: Text, hints: JsonObject) -> JsonObject | None:
    if hints.get("type") == "document":
        return {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": part.text}}
    if is_blank(part) and not hints.get("blank"):
        return None
    return {"type": "text", "text": part.text}


def _input(args: Json) -> JsonObject:
    """Arguments as the object that Anthropic asks for."""
    value = parse_arguments(args) if isinstance(args, str) else args
    if isinstance(value, dict):
        return value
    return {} if value is None or value == "" else {"arguments": value}


def _render_result(part: ToolResult, hints: JsonObject) -> JsonObject:
    block: JsonObject = {"type": "tool_result", "tool_use_id": safe_id(part.call_id, _ID_LENGTH)}
    value, form = part.visible, hints.get("form")
    if form == "list" and isinstance(value, str):
        extra = hints.get("block")
        block["content"] = [{"type": "text", "text": value, **(extra if isinstance(extra, dict) else {})}]
    elif (form == "value" and not isinstance(value, str)) or _is_content(value):
        block["content"] = value
    elif not (form == "missing" and value is None):
        block["content"] = result_text(part)
    if part.status != "ok":
        block["is_error"] = True
    return block


def _is_content(value: Json) -> bool:
    """Whether a result is already a list of Anthropic's blocks."""
    if not isinstance(value, list) or not value:
        return False
    return all(isinstance(item, dict) and _is_result_block(item) for item in value)


def _is_result_block(item: JsonObject) -> bool:
    kind = item.get("type")
    if kind == "text":
        return isinstance(item.get("text"), str) and bool(item["text"].strip())
    return kind in _RESULT_BLOCKS and (isinstance(item.get("source"), dict) or kind not in {"image", "document"})


def _render_image(part: Image, hints: JsonObject) -> JsonObject:
    if part.data is not None:
        source = {"type": "base64", "media_type": part.mime_type or "image/png", "data": part.data}
        return {"type": "image", "source": source}
    if part.url is not None:
        return {"type": "image", "source": {"type": "url", "url": part.url}}
    return {"type": "image"} if hints.get("type") == "image" else {"type": "text", "text": mark_of(part)}


def _render_file(part: File, hints: JsonObject) -> JsonObject:
    own = hints.get("type") == "document"
    title = {} if part.filename is None else {"title": part.filename}
    if part.data is not None and (own or part.mime_type == _PDF):
        source = {"type": "base64", "media_type": part.mime_type or _PDF, "data": part.data}
        return {"type": "document", "source": source, **title}
    if part.url is not None and (own or part.mime_type in {None, _PDF}):
        return {"type": "document", "source": {"type": "url", "url": part.url}, **title}
    if own:
        return {"type": "document", **title}
    return {"type": "text", "text": mark_of(part) if part.url is None else f"[file: {part.filename or part.url}]"}


def reply_block(part: Part) -> JsonObject | None:
    """A block of an assistant message, where pictures and documents cannot stand."""
    if isinstance(part, Image | File):
        return {"type": "text", "text": mark_of(part)}
    return render_block(part)


def request_block(part: Part) -> JsonObject | None:
    """A block of a user message, where calls and thinking cannot stand."""
    return None if isinstance(part, ToolCall | Reasoning) else render_block(part)
