"""Tool payloads in bounded form: arguments as an outline, results cut in the middle, binary data by size only."""

from __future__ import annotations

import json
import re
from collections import deque
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from om_core.domain.message import Json
    from om_core.ports import TextTokenizer

ARGS_TOKENS: Final = 2_000
RESULT_TOKENS: Final = 5_000
SHORT: Final = 160
"""Longer strings, and those of several lines, become a size in the outline and a preview after it."""
MAX_ENTRIES: Final = 100
MAX_ITEMS: Final = 20
MAX_DEPTH: Final = 5
_BLOB_CHARS: Final = 256
_CHARS_PER_TOKEN: Final = 16
"""No text worth reading has more characters per token; what lies beyond is cut before tokens are counted."""

_DATA_URI: Final = re.compile(r"data:[\w.+/-]{1,100};base64,[A-Za-z0-9+/=_\s-]*+")
_BLOB: Final = re.compile(
    rf"(?:[A-Za-z0-9+/_=-]{{60,}}+\n?){{4,}}+[A-Za-z0-9+/_=-]*+|[A-Za-z0-9+/_=-]{{{_BLOB_CHARS},}}+"
)
_SECRET_KEYS: Final = frozenset({"encryptedcontent", "signature", "thoughtsignature"})


def drop_blobs(text: str) -> str:
    """The text with base64 and other unreadable runs of 256 characters or more replaced by their size."""
    text = _DATA_URI.sub(lambda match: f"[data, {len(match[0]):,} characters]", text)
    return _BLOB.sub(lambda match: f"[data, {len(match[0]):,} characters]", text)


def cut_middle(text: str, max_tokens: int, tokenizer: TextTokenizer) -> str:
    """The text, or its beginning (seven tenths) and end with a note of what is left out between."""
    room = max_tokens * _CHARS_PER_TOKEN
    if len(text) <= max_tokens or (len(text) <= room and tokenizer.truncate(text, max_tokens) == text):
        return text
    head = tokenizer.truncate(text[:room], max_tokens * 7 // 10)
    tail_tokens = max_tokens - max_tokens * 7 // 10
    tail = text[max(len(head), len(text) - max(1, len(head) * 3 // 7)) :]
    while tail and tokenizer.truncate(tail, tail_tokens) != tail:
        tail = tail[max(1, len(tail) // 4) :]
    left_out = len(text) - len(head) - len(tail)
    return f"{head}\n[… {left_out:,} of {len(text):,} characters left out …]\n{tail}"


def result_text(result: Json) -> str:
    """A tool result as text: strings as they are, text blocks joined, all else as JSON."""
    if isinstance(result, str):
        return drop_blobs(result)
    if isinstance(result, list) and _is_blocks(result):
        return "\n".join(drop_blobs(item) if isinstance(item, str) else _block_text(item) for item in result)
    if result is None:
        return ""
    return json.dumps(_without_blobs(result), ensure_ascii=False)


def _is_blocks(result: list[Json]) -> bool:
    """Whether these are content blocks, with marks in the place of those that were taken out."""
    blocks = [item for item in result if not isinstance(item, str)]
    return bool(blocks) and all(isinstance(item, dict) and "type" in item for item in blocks)


def _block_text(block: dict[str, Json]) -> str:
    text = block.get("text")
    if isinstance(text, str):
        return drop_blobs(text)
    return json.dumps(_without_blobs(block), ensure_ascii=False)


def _without_blobs(value: Json, key: str = "") -> Json:
    if isinstance(value, str):
        if len(value) > _BLOB_CHARS and key.replace("_", "").casefold() in _SECRET_KEYS:
            return f"[data, {len(value):,} characters]"
        return drop_blobs(value)
    if isinstance(value, dict):
        return {name: _without_blobs(item, str(name)) for name, item in value.items()}
    if isinstance(value, list):
        return [_without_blobs(item) for item in value]
    return value


def args_text(args: Json, tokenizer: TextTokenizer, *, max_tokens: int = ARGS_TOKENS) -> str:
    """Tool arguments, breadth first: one line `path: value` each, then previews of long strings."""
    if args is None or args == {}:
        return "(no arguments)"
    if isinstance(args, str):
        return cut_middle(drop_blobs(args), max_tokens, tokenizer)
    lines, long_strings = _outline(args)
    outline = cut_middle("\n".join(lines), max_tokens, tokenizer)
    if not long_strings:
        return outline
    used = max(1, len(outline) // 4)
    share = max(20, (max_tokens - used) // len(long_strings))
    shown = long_strings[: max(1, (max_tokens - used) // 20)]
    previews = [f"{path} =\n{_indent(cut_middle(drop_blobs(text), share, tokenizer))}" for path, text in shown]
    missing = len(long_strings) - len(shown)
    lines_left_out = [f"[{missing} more long texts left out]"] if missing else []
    return cut_middle("\n".join([outline, *previews, *lines_left_out]).lstrip("\n"), max_tokens, tokenizer)


def _indent(text: str) -> str:
    return "\n".join(f"  | {line}" for line in text.split("\n"))


def _outline(args: Json) -> tuple[list[str], list[tuple[str, str]]]:
    """Lines of the outline, and the strings that need a preview, both in breadth-first order."""
    lines: list[str] = []
    long_strings: list[tuple[str, str]] = []
    queue: deque[tuple[str, Json, int]] = deque([("", args, 0)])
    while queue and len(lines) + len(long_strings) < MAX_ENTRIES:
        path, value, depth = queue.popleft()
        if isinstance(value, dict | list) and value and depth < MAX_DEPTH:
            queue.extend((_join(path, name), item, depth + 1) for name, item in _items(value))
            if len(value) > MAX_ITEMS:
                lines.append(f"{path or 'arguments'}: {len(value)} entries, the first {MAX_ITEMS} are shown")
        elif isinstance(value, str) and (len(value) > SHORT or "\n" in value):
            long_strings.append((path, value))
        else:
            lines.append(f"{path}: {_scalar(value)}")
    if queue:
        lines.append(f"[{len(queue)} or more entries left out]")
    return lines, long_strings


def _items(value: Json) -> list[tuple[str, Json]]:
    if isinstance(value, dict):
        return [(str(name), item) for name, item in list(value.items())[:MAX_ITEMS]]
    return [(f"[{number}]", item) for number, item in enumerate(value[:MAX_ITEMS])]


def _join(path: str, name: str) -> str:
    joined = name if not path or name.startswith("[") else f".{name}"
    full = f"{path}{joined}"
    return full if len(full) <= SHORT else f"{full[:60]}…{full[-60:]}"


def _scalar(value: Json) -> str:
    if isinstance(value, dict):
        return f"object of {len(value)} entries"
    if isinstance(value, list):
        return f"list of {len(value)} items"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
