"""Quoting: content goes between delimiters that it cannot contain (DESIGN 7).

A block's delimiters carry a code derived from the block's own content and checked not to occur in it, so a request
is the same bytes every time and whoever writes the content cannot know the code. Tags that mean something to a
parser or to the actor are escaped inside the content as well. All of it is linear in the length of the text.
"""

from __future__ import annotations

import re
from hashlib import sha256
from itertools import count
from typing import Final

from om_core.domain.tags import OPENERS, SLASHES, UNSEEN

SECTION_TAGS: Final = ("observations", "current-task", "suggested-response", "thread-title")
"""Tags of our output format."""
BLOCK_KINDS: Final = ("history", "earlier-notes", "known", "notes", "memory", "recalled", "working-memory")
"""Kinds of blocks used by the prompts and by contexts."""
MEMORY_TAGS: Final = (*SECTION_TAGS, "observation", "observation-group", "system-reminder", "working-memory")
_CODE_LENGTH: Final = 12

# Look-alikes of `<` and `>`, and characters that show nothing, may stand where a tag would begin.
_UNSEEN: Final = rf"\s{UNSEEN}"
_NAME: Final = f"(?:{'|'.join(MEMORY_TAGS)}|(?:{'|'.join(BLOCK_KINDS)})-[0-9a-f]{{6,40}}+)"
_TAG: Final = re.compile(
    rf"[{OPENERS}](?=[{_UNSEEN}]{{0,8}}+[{SLASHES}]?[{_UNSEEN}]{{0,8}}+{_NAME}\b)",
    re.IGNORECASE,
)
_DELIMITER: Final = re.compile(rf"</?(?:{'|'.join(BLOCK_KINDS)})-[0-9a-f]{{{_CODE_LENGTH}}}>", re.IGNORECASE)
_HIDDEN: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u180e\u200b\u2028\u2029\u202a-\u202e"
    "\u2060-\u2064\u2066-\u206f\ufeff\U000e0000-\U000e007f]"
)
_SURROGATES: Final = re.compile("[\ud800-\udfff]")


def escape_tags(text: str) -> str:
    """The text with the `<` of anything that looks like one of our tags written as `&lt;`. Idempotent."""
    return _TAG.sub("&lt;", text)


def strip_delimiters(text: str) -> str:
    """The text without delimiters of blocks, as a model may repeat them."""
    return _DELIMITER.sub("", text)


def clean_text(text: str) -> str:
    """The text without control, direction-override and zero-width characters; line ends become line feeds."""
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    if text.replace("\n", "").replace("\t", "").isprintable():  # none of those characters is: no need to look for each
        return text
    return _SURROGATES.sub("\ufffd", _HIDDEN.sub("", text))


def quote_block(kind: str, text: str, *, seed: str | None = None) -> str:
    """The text between delimiters that it does not contain.

    Args:
        kind: what the block is, a short name such as `history`.
        text: any text; our own tags in it are escaped.
        seed: derive the code from this instead of the text, where an append to the text must not change the bytes
            before it. Keep it unknown to authors of the text.
    """
    body = escape_tags(clean_text(text))
    code = _code(body if seed is None else seed, body)
    return f"<{kind}-{code}>\n{body}\n</{kind}-{code}>"


def _code(seed: str, body: str) -> str:
    """The first of the codes derived from the seed that the body does not contain."""
    digest = sha256(seed.encode("utf-8"))
    for attempt in count():
        derived = digest.copy()
        derived.update(str(attempt).encode())
        code = derived.hexdigest()[:_CODE_LENGTH]
        if code not in body:
            return code
    raise AssertionError
