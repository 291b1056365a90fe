"""Counts and cuts by tokens (o200k_base), offline and in linear time.

The vocabulary is the copy that LiteLLM bundles, found without importing LiteLLM. Text is encoded in pieces of at most
4,096 characters: tiktoken's time grows faster than the length of a run without breaks (a drawing of 345,000 spaces, a
megabyte of one letter), and pieces bound that.
"""

from __future__ import annotations

import json
import os
import threading
import unicodedata
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

from om_core.attachment_tokens import file_tokens, file_words, image_tokens
from om_core.domain.errors import SetupError
from om_core.domain.message import Data, File, Image, Json, Reasoning, Text, ToolCall, ToolResult
from om_core.formats.attachments import split_attachments

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tiktoken import Encoding

    from om_core.domain.message import Message, Part

ENCODING: Final = "o200k_base"
MESSAGE_OVERHEAD: Final = 4
"""Tokens that role and separators of a message cost."""
PIECE: Final = 4096
_CACHE_VARIABLE: Final = "TIKTOKEN_CACHE_DIR"
_JOINERS: Final = "\u200d\ufe0e\ufe0f\u20e3"
_SKIN_TONES: Final = range(0x1F3FB, 0x1F400)
_MAX_CLUSTER: Final = 32
"""Characters that a cut goes back at most to keep a combined character whole."""


class TiktokenCounter:
    """Implements the ports `TokenCounter` and `TextTokenizer`; thread-safe; loads the vocabulary at first use."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loaded: Encoding | None = None

    def count_text(self, text: str) -> int:
        """Tokens of a text."""
        encode = self._encoding().encode_ordinary
        if len(text) <= PIECE:
            return len(encode(text))
        return sum(len(encode(piece)) for piece in pieces(text))

    def count_message(self, message: Message, *, model: str | None = None) -> int:
        """What a message costs the actor's model: 4, the author's name, and its text, calls, results, images and files.

        Reasoning and data parts cost nothing; base64 is never counted as text, wherever it stands.
        """
        named = self.count_text(message.author) + 1 if message.author else 0
        return MESSAGE_OVERHEAD + named + sum(self.count_part(part, model=model) for part in message.parts)

    def count_part(self, part: Part, *, model: str | None = None) -> int:
        """What one part costs; a part that cannot be read costs a quarter of its bytes."""
        try:
            return self._count_part(part, model)
        except (TypeError, ValueError, AttributeError, ArithmeticError, RecursionError):
            return max(1, len(repr(part).encode("utf-8", "replace")) // 4)

    def truncate(self, text: str, max_tokens: int) -> str:
        """The longest prefix of at most `max_tokens` tokens that ends between whole characters."""
        if max_tokens <= 0 or not text:
            return ""
        encode = self._encoding().encode_ordinary
        left, start = max_tokens, 0
        for piece in pieces(text):
            tokens = encode(piece)
            if len(tokens) > left:
                return text[: whole_end(text, start + self._prefix_length(piece, tokens, left))]
            left -= len(tokens)
            start += len(piece)
        return text

    def _prefix_length(self, piece: str, tokens: list[int], limit: int) -> int:
        """Characters of the longest prefix of a piece that has at most `limit` of its tokens."""
        encoding = self._encoding()

        def fits(length: int) -> bool:
            return len(encoding.encode_ordinary(piece[:length])) <= limit

        length = len(encoding.decode_bytes(tokens[: limit + 1]).decode("utf-8", "ignore"))
        while length > 0 and not fits(length):
            length -= 1
        while length < len(piece) and fits(length + 1):
            length += 1
        return length

    def _count_part(self, part: Part, model: str | None) -> int:
        if isinstance(part, Text):
            return self._count_value(part.text, model)
        if isinstance(part, ToolCall):
            return self.count_text(part.name) + self._count_value(part.args, model)
        if isinstance(part, ToolResult):
            return self._count_value(part.visible, model)
        if isinstance(part, Image):
            return image_tokens(part, model)
        if isinstance(part, File):
            tokens = file_tokens(part, model)
            return self.count_text(file_words(part)) if tokens is None else tokens
        if isinstance(part, Reasoning | Data):
            return 0
        raise TypeError(f"unknown part {part!r}")

    def _count_value(self, value: Json, model: str | None) -> int:
        """A text as it is, anything else as compact JSON; attachments inside by their own rules."""
        if value is None:
            return 0
        words, attachments = split_attachments(value)
        text = words if isinstance(words, str) else json.dumps(words, ensure_ascii=False, separators=(",", ":"))
        return self.count_text(text) + sum(self._count_part(item, model) for item in attachments)

    def _encoding(self) -> Encoding:
        if self._loaded is None:
            with self._lock:
                if self._loaded is None:
                    self._loaded = load_encoding()
        return self._loaded


def load_encoding() -> Encoding:
    """The vocabulary from LiteLLM's bundled files, unless `TIKTOKEN_CACHE_DIR` names another folder.

    Raises:
        SetupError: when it is neither there nor can be downloaded.
    """
    bundled = _bundled_folder()
    if bundled is not None:
        os.environ.setdefault(_CACHE_VARIABLE, str(bundled))
    import tiktoken

    try:
        return tiktoken.get_encoding(ENCODING)
    except Exception as error:  # the download fails in many ways, and each means that the files are missing
        hint = f"install litellm, or set {_CACHE_VARIABLE} to a folder that has it"
        raise SetupError(f"no vocabulary {ENCODING} ({error}): {hint}") from error


def _bundled_folder() -> Path | None:
    spec = find_spec("litellm")
    for place in (spec.submodule_search_locations if spec is not None else None) or ():
        folder = Path(place) / "litellm_core_utils" / "tokenizers"
        if folder.is_dir():
            return folder
    return None


def pieces(text: str) -> Iterator[str]:
    """The text in runs of at most 4,096 characters, cut before a space or a line where there is one, else anywhere."""
    start = 0
    while len(text) - start > PIECE:
        end = _break_in(text, start + PIECE // 2, start + PIECE)
        yield text[start:end]
        start = end
    yield text[start:]


def _break_in(text: str, low: int, high: int) -> int:
    """The last place in (low, high] where a word ends, so that a word and the space before it stay together."""
    at = max(text.rfind(" ", low, high), text.rfind("\n", low, high))
    while at > low and text[at - 1].isspace():
        at -= 1
    return at if at > low else high


def whole_end(text: str, end: int) -> int:
    """The nearest cut at or before `end` that splits no combined character."""
    for at in range(end, max(0, end - _MAX_CLUSTER), -1):
        if at >= len(text) or not _continues(text, at):
            return at
    return end if end > _MAX_CLUSTER else 0


def _continues(text: str, at: int) -> bool:
    """Whether the character at `at` belongs to the one before it."""
    char = text[at]
    if char < "\u0300":
        return text[at - 1] == "\u200d"
    return bool(
        unicodedata.combining(char)
        or char in _JOINERS
        or ord(char) in _SKIN_TONES
        or text[at - 1] == "\u200d"
        or 0xDC00 <= ord(char) <= 0xDFFF
    )
