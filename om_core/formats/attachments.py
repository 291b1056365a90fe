"""Finds pictures and documents inside JSON values and texts, so that base64 is never read or counted as words.

Tool results carry them in many shapes: content blocks of OpenAI, Anthropic, MCP and user-interface kits, data URIs,
bare base64. A caller gets the value with a short mark in each one's place, and what was taken out as parts.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable
from typing import Final, TypeAlias

from om_core.domain.message import File, Image, Json, JsonObject

Attachment: TypeAlias = Image | File

LONG: Final = 1024
"""Shorter strings are left alone unless their block says what they are."""
_MIME: Final = r"([\w.+-]{1,60}/[\w.+-]{1,100})?"
_DATA_URI: Final = re.compile(rf"data:{_MIME};base64,([A-Za-z0-9+/_=\s-]*)")
_LONG_URI: Final = re.compile(rf"data:{_MIME}(?:;[\w=.+-]{{1,100}}){{0,4}};base64,([A-Za-z0-9+/_=-]{{1024,}})")
_BASE64: Final = re.compile(r"[A-Za-z0-9+/_=\s-]*")
_MAGIC: Final = {
    "iVBORw0KGgo": "image/png",
    "/9j/": "image/jpeg",
    "R0lGOD": "image/gif",
    "UklGR": "image/webp",
    "JVBERi0": "application/pdf",
}
_PICTURES: Final = (".png", ".jpg", ".jpeg", ".webp", ".gif", ".bmp", ".tiff", ".tif", ".heic", ".heif", ".avif")
_DATA_KEYS: Final = ("data", "blob", "base64", "b64_json", "image", "file_data", "bytes")
_MIME_KEYS: Final = ("media_type", "mimeType", "mime_type", "mediaType", "format")


def split_attachments(
    value: Json, mark: Callable[[Attachment], str] | None = None
) -> tuple[Json, tuple[Attachment, ...]]:
    """The value with a mark for each attachment, and the attachments in order; a value without is returned itself.

    Args:
        value: a JSON value, or a text.
        mark: what stands in the place of an attachment, asked in their order; default `mark_of`.
    """
    splitter = _Splitter(mark or mark_of)
    cleaned = splitter.split(value)
    return (cleaned, tuple(splitter.found)) if splitter.found else (value, ())


def parse_data_uri(text: str) -> tuple[str | None, str] | None:
    """Media type and base64 of a plain `data:…;base64,…` URI (without parameters), or None."""
    match = _DATA_URI.fullmatch(text)
    return (match[1], match[2]) if match else None


def mark_of(attachment: Attachment) -> str:
    """What stands for an attachment in a text."""
    if isinstance(attachment, Image):
        return "[image]"
    return f"[file: {attachment.filename}]" if attachment.filename else "[file]"


def mime_by_start(data: str) -> str | None:
    """The media type of base64 by its first bytes; None for one that is not told by them."""
    return next((mime for start, mime in _MAGIC.items() if data.startswith(start)), None)


def inline_data(part: Attachment) -> tuple[str | None, str] | None:
    """Media type and base64 of what is there as data or as a data URI; None for a reference."""
    if part.data:
        return part.mime_type, part.data
    parsed = parse_data_uri(part.url) if part.url is not None and part.url.startswith("data:") else None
    return None if parsed is None else (part.mime_type or parsed[0], parsed[1])


def is_picture(part: Attachment) -> bool:
    """Whether it is a picture, also as a file: by its media type, or by the end of its name or URL."""
    if isinstance(part, Image):
        return True
    if part.mime_type is not None and part.mime_type != "application/octet-stream":
        return part.mime_type.lower().startswith("image/")
    url = (part.url or "")[:2_000]
    path = url.split("#")[0].split("?")[0]
    return url.startswith("data:image/") or any(
        name.lower().endswith(_PICTURES) for name in (path, part.filename or "") if not name.startswith("data:")
    )


def data_bytes(data: str) -> int:
    """How many bytes base64 text decodes to."""
    return max(0, len(data) * 3 // 4 - data[-2:].count("="))


def attachment(
    data: str | None, mime: str | None, *, url: str | None = None, filename: str | None = None
) -> Attachment:
    """An image or a file, by media type."""
    if mime is not None and mime.startswith("image/"):
        return Image(url=url, data=data, mime_type=mime)
    return File(url=url, data=data, mime_type=mime, filename=filename)


class _Splitter:
    """What was found so far, and how it is marked."""

    def __init__(self, mark: Callable[[Attachment], str]) -> None:
        self.found: list[Attachment] = []
        self._mark = mark

    def split(self, value: Json) -> Json:
        if isinstance(value, str):
            return self._text(value) if len(value) > LONG else value
        if isinstance(value, list):
            return [self.split(item) for item in value]
        if isinstance(value, dict):
            block = _typed_block(value)
            if block is not None:
                return self._take(block)
            return {key: self._entry(value, key, item) for key, item in value.items()}
        return value

    def _take(self, attachment: Attachment) -> str:
        self.found.append(attachment)
        return self._mark(attachment)

    def _text(self, text: str) -> str:
        kind = mime_by_start(text)
        if kind is not None and _BASE64.fullmatch(text):
            return self._take(attachment(text, kind))
        if ";base64," not in text:
            return text
        return _LONG_URI.sub(lambda match: self._take(attachment(match[2], match[1])), text)

    def _entry(self, block: JsonObject, key: str, item: Json) -> Json:
        """An entry of an object; base64 beside a media type is taken out whatever the object's type."""
        if key in _DATA_KEYS and isinstance(item, str) and len(item) > LONG and _BASE64.fullmatch(item):
            mime = _mime_of(block) or ("image/png" if key in {"b64_json", "image"} else None)
            if mime is not None:
                return self._take(attachment(item, mime, filename=_text(block.get("filename"))))
        return self.split(item)


def _typed_block(block: JsonObject) -> Attachment | None:
    """The attachment that a content block is, or None for any other object."""
    kind = block.get("type")
    if not isinstance(kind, str):
        return None
    if kind in {"image", "document"} and isinstance(block.get("source"), dict):
        return _from_source(kind, block["source"], block)
    if kind in {"image_url", "input_image"}:
        image_url = block.get("image_url")
        url = image_url.get("url") if isinstance(image_url, dict) else image_url
        return _from_url(url, "image/*", None) if isinstance(url, str) else None
    if kind in {"file", "input_file"}:
        inner: JsonObject = block["file"] if isinstance(block.get("file"), dict) else block
        url = inner.get("file_data")
        return _from_url(url, None, _text(inner.get("filename"))) if isinstance(url, str) else None
    if kind == "input_audio" and isinstance(block.get("input_audio"), dict):
        audio = block["input_audio"]
        return File(data=_text(audio.get("data")) or "", mime_type=f"audio/{audio.get('format', 'wav')}")
    if kind in {"image", "image-data", "audio", "media", "file-data"} and isinstance(block.get("data"), str):
        mime = _mime_of(block) or ("image/*" if kind.startswith("image") else None)
        return attachment(block["data"], mime, filename=_text(block.get("filename")))
    return None


def _from_source(kind: str, source: JsonObject, block: JsonObject) -> Attachment | None:
    mime = _text(source.get("media_type"))
    data, url = _text(source.get("data")), _text(source.get("url"))
    if source.get("type") not in {"base64", "url"} or (data is None and url is None):
        return None
    if kind == "image":
        return Image(data=data, url=url, mime_type=mime)
    return File(data=data, url=url, mime_type=mime or "application/pdf", filename=_text(block.get("title")))


def _from_url(url: str, mime: str | None, filename: str | None) -> Attachment:
    parsed = parse_data_uri(url)
    if parsed is not None:
        return attachment(parsed[1], parsed[0] or mime, filename=filename)
    return attachment(None, mime, url=url, filename=filename)


def _mime_of(block: JsonObject) -> str | None:
    values = (block.get(key) for key in _MIME_KEYS)
    return next((value for value in values if isinstance(value, str) and value), None)


def _text(value: Json) -> str | None:
    return value if isinstance(value, str) else None


def image_size(data: str) -> tuple[int, int] | None:
    """Width and height in pixels from the header of a base64 PNG, GIF, WebP or JPEG; None when it cannot be told."""
    head = data[: 4 * 21_846]  # the first 64 KB: a JPEG's size may stand behind its thumbnail
    try:
        raw = base64.b64decode(head[: len(head) // 4 * 4])
    except (binascii.Error, ValueError):
        return None
    size = _png_gif_webp_size(raw) or _jpeg_size(raw)
    return size if size is not None and min(size) > 0 else None


def _png_gif_webp_size(raw: bytes) -> tuple[int, int] | None:
    if raw.startswith(b"\x89PNG\r\n\x1a\n") and len(raw) >= 24:
        return int.from_bytes(raw[16:20], "big"), int.from_bytes(raw[20:24], "big")
    if raw.startswith((b"GIF87a", b"GIF89a")) and len(raw) >= 10:
        return int.from_bytes(raw[6:8], "little"), int.from_bytes(raw[8:10], "little")
    if raw[:4] != b"RIFF" or raw[8:12] != b"WEBP" or len(raw) < 30:
        return None
    if raw[12:16] == b"VP8X":
        return int.from_bytes(raw[24:27], "little") + 1, int.from_bytes(raw[27:30], "little") + 1
    if raw[12:16] == b"VP8L":
        bits = int.from_bytes(raw[21:25], "little")
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    return int.from_bytes(raw[26:28], "little") & 0x3FFF, int.from_bytes(raw[28:30], "little") & 0x3FFF


def _jpeg_size(raw: bytes) -> tuple[int, int] | None:
    """Walk the segments up to the frame header (SOF0 to SOF15 without DHT, JPG and DAC)."""
    if not raw.startswith(b"\xff\xd8"):
        return None
    at = 2
    while at + 9 <= len(raw) and raw[at] == 0xFF:
        marker = raw[at + 1]
        if 0xC0 <= marker <= 0xCF and marker not in {0xC4, 0xC8, 0xCC}:
            return int.from_bytes(raw[at + 7 : at + 9], "big"), int.from_bytes(raw[at + 5 : at + 7], "big")
        at += 2 + max(2, int.from_bytes(raw[at + 2 : at + 4], "big"))
    return None
