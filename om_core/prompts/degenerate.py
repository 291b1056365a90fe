"""Recognising answers that are no notes: loops, refusals, repeated instructions (DESIGN 6.7)."""

from __future__ import annotations

import re
import zlib
from collections import Counter
from functools import cache
from typing import Final

from om_core.prompts.templating import load_parts

MIN_CHARS: Final = 2_000
"""Shorter answers are never called degenerate."""
_WINDOW: Final = 200
_WINDOWS: Final = 50
_WINDOW_SHARE: Final = 0.4
LINE_CHARS: Final = 10_000
"""Of longer lines only the beginning is kept, and judged."""
_LINES: Final = 20
_LINE_CHARS: Final = 24
_LINE_SHARE: Final = 0.5
_ENTROPY_SHARE: Final = 0.05
"""Real notes compress to about a third; a loop to far less than this."""
_SHINGLE: Final = 5
_ECHO_WORDS: Final = 8

_WORD: Final = re.compile(r"\w++")
_REFUSAL: Final = re.compile(
    r"(?:i(?:'m| am) (?:sorry|unable|not able|afraid)|i (?:can(?:'t|not)|won't|will not|must decline)|"
    r"sorry, (?:but )?i|"
    r"(?:i )?apologi[sz]e|as an ai\b|unfortunately, i (?:can|am)|i do(?:n't| not) feel comfortable|"
    r"(?:this|your) (?:request|content) (?:violates|was blocked))",
    re.IGNORECASE,
)


def degenerate_reason(text: str, source: str = "") -> str | None:
    """One line that says how the text repeats itself, or None when it does not, or no more than its source does.

    Args:
        text: an answer.
        source: what the answer condenses, as plain text. Five hundred equal results have an honest summary whose lines
            are alike; it is no longer than they are, and no more monotonous.
    """
    if len(text) < MIN_CHARS:
        return None
    text = "\n".join(line[:LINE_CHARS] for line in text.split("\n"))
    reason = _repetition(text)
    if reason is not None and len(text) <= len(source) and _packed(text) >= _packed(source):
        return None
    return reason


def _packed(text: str) -> float:
    """What remains of the text when repetition is taken out, as a share of it."""
    return len(zlib.compress(text.encode("utf-8", "replace"), 6)) / len(text)


def _repetition(text: str) -> str | None:
    step = max(1, len(text) // _WINDOWS)
    windows = Counter(text[start : start + _WINDOW] for start in range(0, len(text) - _WINDOW + 1, step))
    count = windows.total()
    if count > 5 and 1 - len(windows) / count > _WINDOW_SHARE:
        return f"degenerate: {count - len(windows)} of {count} windows repeat, as {_sample(windows)}"
    lines = Counter(line.strip() for line in text.split("\n") if len(line.strip()) >= _LINE_CHARS)
    count = lines.total()
    if count >= _LINES and 1 - len(lines) / count > _LINE_SHARE:
        return f"degenerate: {count - len(lines)} of {count} lines repeat, as {_sample(lines)}"
    packed = _packed(text)
    if packed < _ENTROPY_SHARE:
        return f"degenerate: {len(text):,} characters that compress to {packed:.1%}, starting {text[:80]!r}"
    return None


def _sample(counts: Counter[str]) -> str:
    return repr(counts.most_common(1)[0][0][:80])


def is_refusal(text: str) -> bool:
    """Whether the text opens as a model declines."""
    return _REFUSAL.match(text[:400].lstrip(" \n\t*-•\"'").replace("’", "'")) is not None


@cache
def _prompt_shingles(template: str) -> frozenset[tuple[str, ...]]:
    """Every run of five words in the template."""
    parts = load_parts(template).values()
    return frozenset(shingle for part in parts for shingle in _shingles(part))


def _shingles(text: str) -> list[tuple[str, ...]]:
    words = _WORD.findall(text.casefold())
    return list(zip(*(words[start:] for start in range(_SHINGLE)), strict=False))


def echoes(line: str, template: str) -> bool:
    """Whether a line of at least eight words consists of the template's own words, in their order."""
    shingles = _shingles(line)
    if len(shingles) < _ECHO_WORDS - _SHINGLE + 1:
        return False
    known = _prompt_shingles(template)
    return sum(shingle in known for shingle in shingles) / len(shingles) > 0.6
