"""Which images and files of a range the Observer's model sees beside their placeholders (`observe_attachments`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

from om_core.domain.message import File, Image, Role

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from om_core.domain.message import JsonObject, StoredMessage

AttachmentFilter: TypeAlias = bool | Literal["auto"] | tuple[str, ...]


def accepts(mime_type: str, allowed: AttachmentFilter) -> bool:
    """Whether a MIME type passes: all, none, or a list of exact types, `type/*`, `*` and `*/*`; `auto` is all."""
    if isinstance(allowed, bool):
        return allowed
    if allowed == "auto":
        return True
    wanted = mime_type.lower()
    patterns = {pattern.lower() for pattern in allowed}
    return bool(patterns & {wanted, f"{wanted.split('/', 1)[0]}/*", "*", "*/*"})


def attachment_blocks(messages: Iterable[StoredMessage], allowed: AttachmentFilter) -> Iterator[JsonObject]:
    """Content blocks in OpenAI form, each after a text that names its placeholder; numbered as `render_messages` does.

    Only what was stored as data is sent: a URL is never fetched on behalf of whoever wrote it.
    """
    images = files = 0
    for message in messages:
        if message.removed or message.role is Role.SYSTEM:
            continue
        for part in message.parts:
            if isinstance(part, Image):
                images += 1
                mime = part.mime_type or "image/png"
                if part.data and accepts(part.mime_type or "image/*", allowed):
                    yield {"type": "text", "text": f"Image #{images}:"}
                    yield {"type": "image_url", "image_url": {"url": f"data:{mime};base64,{part.data}"}}
            elif isinstance(part, File):
                files += 1
                mime = part.mime_type or "application/octet-stream"
                if part.data and accepts(mime, allowed):
                    name = part.filename or f"file-{files}"
                    yield {"type": "text", "text": f"File #{files}:"}
                    yield {
                        "type": "file",
                        "file": {"filename": name, "file_data": f"data:{mime};base64,{part.data}"},
                    }
