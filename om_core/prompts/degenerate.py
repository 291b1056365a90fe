"""Recognising answers that are no notes: loops, refusals, repeated instructions (DESIGN 6.7)."""

from __future__ import annotations

import re
import zlib
from collections import Counter
from functools import cache
from typing import Final

from om_core.prompts.quoting import BLOCK_KINDS, SECTION_TAGS
from om_core.prompts.templating import load_parts

MIN_CHARS: Final = 2_000
"""Below it statistics say little: only a plain loop is called degenerate."""
_LOOP_LINES: Final = 6
_LOOP_LINE_CHARS: Final = 4
_LOOP_SHARE: Final = 0.6
"""Above it lines repeat even where each note had a result of its own below it, and all results were equal."""
_LOOP_CHARS: Final = 600
_LOOP_ENTROPY_SHARE: Final = 0.09
"""In a short text the overhead of packing weighs more."""
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
_NUMBERING: Final = re.compile(r"[\s*•+-]{0,8}+(?:\d{1,3}[.)]\s*+)?")
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
    text = "\n".join(line[:LINE_CHARS] for line in text.split("\n"))
    if (loop := loop_reason(text, source)) is not None:
        return loop
    reason = _repetition(text) if len(text) >= MIN_CHARS else _endless(text)
    if reason is not None and len(text) <= len(source) and _packed(text) >= _packed(source):
        return None
    return reason


def _packed(text: str) -> float:
    """What remains of the text when repetition is taken out, as a share of it."""
    return len(zlib.compress(text.encode("utf-8", "replace"), 6)) / len(text)


def loop_reason(text: str, source: str) -> str | None:
    """The same few lines over and over, perhaps numbered, where those of the source are not."""
    lines = _lines(text)
    count, share = lines.total(), _repeated(lines)
    if count < _LOOP_LINES or share <= _LOOP_SHARE:
        return None
    if len(text) <= len(source) and _repeated(_lines(source)) >= share:
        return None
    return f"degenerate: {count - len(lines)} of {count} lines repeat, as {_sample(lines)}"


def _lines(text: str) -> Counter[str]:
    """The lines without what numbers them; short ones are punctuation."""
    bodies = (_NUMBERING.sub("", line, count=1).strip() for line in text.split("\n"))
    return Counter(body for body in bodies if len(body) >= _LOOP_LINE_CHARS)


def _repeated(lines: Counter[str]) -> float:
    """The share of lines that say what another one says."""
    count = lines.total()
    return 1 - len(lines) / count if count else 0.0


def _endless(text: str) -> str | None:
    """One short run of words over and over, on few lines."""
    if len(text) < _LOOP_CHARS or (packed := _packed(text)) >= _LOOP_ENTROPY_SHARE:
        return None
    return f"degenerate: {len(text):,} characters that compress to {packed:.1%}, starting {text[:80]!r}"


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


@cache
def _form_words(template: str) -> frozenset[str]:
    """The words in which the template shows the form of notes, as in `* (HH:MM) note with details`."""
    form = load_parts(template)["main"].partition("<observations>")[2].partition("</observations>")[0]
    return frozenset(_WORD.findall(form.casefold()))


@cache
def _titles(template: str) -> frozenset[tuple[str, ...]]:
    """The template's headings, and the names of sections and blocks."""
    parts = "\n".join(load_parts(template).values())
    headings = (line for line in parts.split("\n") if line.startswith("# "))
    return frozenset(tuple(_WORD.findall(title.casefold())) for title in (*headings, *SECTION_TAGS, *BLOCK_KINDS))


def echoes(line: str, template: str) -> bool:
    """Whether a line is the template's: a placeholder or title of it, or at least eight words of it in their order."""
    words = _WORD.findall(line.casefold())
    if words and (_form_words(template).issuperset(words) or tuple(words) in _titles(template)):
        return True
    shingles = _shingles(line)
    if len(shingles) < _ECHO_WORDS - _SHINGLE + 1:
        return False
    known = _prompt_shingles(template)
    return sum(shingle in known for shingle in shingles) / len(shingles) > 0.6
