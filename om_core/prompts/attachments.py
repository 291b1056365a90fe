"""Which images and files of a range the Observer's model sees beside their placeholders (`observe_attachments`).

Only what was stored as data is sent. An address is never fetched here, nor handed to a server that would fetch it: it
was written by whoever wrote the message, and may point into the network of whoever reads it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from om_core.formats.attachments import inline_data, is_picture, mime_by_start
from om_core.prompts.render import attachment_label

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from om_core.domain.message import JsonObject
    from om_core.formats.attachments import Attachment

AttachmentFilter: TypeAlias = bool | Literal["auto"] | tuple[str, ...]
Accepts: TypeAlias = Callable[[str], bool]
"""Whether attachments of a MIME type are sent."""

MOST: Final = 50
"""Attachments of one request; the rest of a range have their placeholders only."""
MOST_CHARS: Final = 20_000_000
"""Base64 characters of one request: providers refuse bodies of 20 to 50 MB."""


def attachment_filter(allowed: AttachmentFilter, reads: Callable[[str], bool | None]) -> Accepts:
    """What is sent: all, none, or by a list of exact types, `type/*`, `*` and `*/*`.

    Args:
        allowed: the option. `auto` and lists leave out what the model is known not to read; True sends all the same.
        reads: whether the model reads a MIME type; None when that is not known.
    """
    if isinstance(allowed, bool):
        return lambda _: allowed
    patterns = {"*"} if allowed == "auto" else {pattern.lower() for pattern in allowed}

    def accepted(mime_type: str) -> bool:
        wanted = mime_type.lower()
        listed = bool(patterns & {wanted, f"{wanted.split('/', 1)[0]}/*", "*", "*/*"})
        return listed and reads(wanted) is not False

    return accepted


def attachment_blocks(found: Iterable[tuple[str, Attachment]], accepted: Accepts) -> Iterator[JsonObject]:
    """Content blocks in OpenAI form, each after a text with the name of its placeholder, within the limits."""
    sent = chars = 0
    for name, part in found:
        inline = inline_data(part)
        if inline is None:
            continue
        mime, data = _mime_of(part, *inline), inline[1]
        if not accepted(mime) or sent == MOST or chars + len(data) > MOST_CHARS:
            continue
        sent += 1
        chars += len(data)
        yield {"type": "text", "text": f"{name}:"}
        yield _block(part, mime, data)


def _mime_of(part: Attachment, given: str | None, data: str) -> str:
    """The type that was given, else what the data show, else the most usual one."""
    exact = given if given and not given.endswith("/*") and given != "application/octet-stream" else None
    usual = "image/png" if is_picture(part) else given or "application/octet-stream"
    return exact or mime_by_start(data) or usual


def _block(part: Attachment, mime: str, data: str) -> JsonObject:
    uri = f"data:{mime};base64,{data}"
    if is_picture(part):
        return {"type": "image_url", "image_url": {"url": uri}}
    return {"type": "file", "file": {"filename": attachment_label(part) or "file", "file_data": uri}}
