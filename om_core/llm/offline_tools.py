"""Tool calls and their results, condensed: what was run on what, and the lines of the result that say something."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Final

from om_core.llm.offline_json import flat_json
from om_core.llm.offline_languages import ENGLISH
from om_core.llm.offline_prose import OUTCOME
from om_core.llm.offline_text import STOP, estimate_tokens, words
from om_core.llm.offline_units import Unit
from om_core.prompts.outline import drop_blobs, result_text

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from om_core.domain.message import Json, ToolCall, ToolResult
    from om_core.llm.offline_units import Mark

_SALIENT_TEXT: Final = """
command cmd file_path path filename file pattern query q url title name id description subject action prompt code input
"""
_SALIENT: Final = {key: position for position, key in enumerate(_SALIENT_TEXT.split())}
"""Arguments that say what a call is about, the telling ones first."""
_HEAD_VALUES: Final = 3
_HEAD_CHARS: Final = 140
_FIRST: Final = 2.0
"""The first line of a result often names the thing, the last says how it ended."""
_LAST: Final = 1.5
_LINES: Final = 400
_LINE_CHARS: Final = 240
_PAYLOAD_CHARS: Final = 400_000
_ORDER: Final = re.compile(
    r"\b(?:remember|memori[sz]e|keep in mind|(?:never|don't|do not) forget)\b"
    r"|\b(?:save|store|add|write|note|put)\b[^.]{0,40}\b(?:memory|memories)\b"
    r"|\b(?:ignore|disregard|forget|override)\b[^.]{0,30}\b(?:instructions?|rules|prompts?)\b"
    r"|\bfrom now on\b|\bsystem prompt\b",
    re.IGNORECASE,
)
"""A page or a file that tells its reader what to remember or to obey: only a user can, so that is no note."""
_NUMBERED: Final = re.compile(r"\s{0,12}+\d{1,6}(?:→|\t|: |\|)")
_SYMBOLS: Final = re.compile(r"[{}()\[\];=<>|\\/$@#&*+^~\"'`_]")
_GREEN: Final = re.compile(
    r"\b(?:all (?:\d+ )?tests? pass(?:ed)?|[1-9]\d* passed|[1-9]\d* tests?, 0 failures|build succe\w+|"
    r"tests? passed|merged|no (?:issues|errors)(?: were)? found)\b",
    re.IGNORECASE,
)
_RED: Final = re.compile(
    r"\b(?:[1-9]\d* (?:failures?|failed|errors?)|traceback|exception|fatal|denied)\b", re.IGNORECASE
)
_READING: Final = re.compile(
    r"(?:\w{0,20}[_.-])?(?:read|grep|glob|ls|list|search|find|view|get|open|fetch)\w{0,20}\b", re.IGNORECASE
)
_SEGMENT_END: Final = re.compile(r"(?<=[.!?;,}\]])\s+")
_DEEP_PATH: Final = re.compile(r"(?<![\w/.])(?:/[\w.@+-]++){2,}?((?:/[\w.@+-]++){4})(?![\w/])")
_KEPT_TEXT: Final = "not no if but who which when where why how from to into by with"
_KEPT: Final = frozenset(_KEPT_TEXT.split())
_NUMBER: Final = re.compile(r"\d+")
_SIMILAR: Final = 3
"""Lines that differ in their numbers only: after so many in a range, the others are worth a quarter."""
_LISTING: Final = re.compile(r"(?:^|[\s\"'])[\w./-]+/[\w.-]+\.\w{1,5}(?:$|[\s\"':,])")


def call_head(name: str, args: Json) -> str:
    """One line that says which tool ran on what: its name and up to three short arguments, the telling ones first."""
    if isinstance(args, str):
        return f"{name} {_one_line(args)}".rstrip()
    if not isinstance(args, dict):
        return name
    short = [(key, value) for key, value in args.items() if isinstance(value, str | int | float) and value != ""]
    short.sort(key=lambda pair: _SALIENT.get(str(pair[0]).lower(), len(_SALIENT)))
    kept: list[str] = []
    room = _HEAD_CHARS
    for key, value in short[:_HEAD_VALUES]:
        known = str(key).lower() in _SALIENT
        if isinstance(value, bool) or (kept and not known) or room <= 0:
            continue
        text = _one_line(str(value))[:room]
        kept.append(text if known else f"{_one_line(str(key))}={text}")
        room -= len(text)
    return f"{name} {' · '.join(kept)}".rstrip()


def _one_line(text: str) -> str:
    first = next(iter(text[:2_000].strip().splitlines()), "")
    line = shorten_paths(first.strip())
    return line if len(line) <= _HEAD_CHARS else f"{line[: _HEAD_CHARS - 1]}…"


def payload_texts(call: ToolCall | None, result: ToolResult | None) -> list[tuple[str, float]]:
    """The texts of a call and its result that have lines to choose from, each with its weight."""
    texts: list[tuple[str, float]] = []
    if call is not None and isinstance(call.args, dict):
        long = (value for value in call.args.values() if isinstance(value, str) and "\n" in value)
        texts.extend((drop_blobs(value[:_PAYLOAD_CHARS]), 0.5) for value in long)
    if result is not None:
        texts.append((flat_json(result_text(result.visible)), 1.0 if result.status == "ok" else 1.8))
    return texts


def head_unit(head: str, *, order: int, when: datetime, failed: bool) -> Unit:
    """The call itself: nothing but its head. What changes or runs something is worth more than what reads."""
    said = words(head[:_LINE_CHARS])
    reading = _READING.match(head) is not None
    weight = 2.5 if failed else 0.5 if reading else 1.5
    return Unit(
        order=order, when=when, label=head, text="", weight=weight, mark="🟢" if reading and not failed else "🟡",
        terms=tuple(sorted(set(said))), length=len(said), cost=0, tool=True,
    )  # fmt: skip


def line_units(
    text: str, weight: float, *, order: int, when: datetime, label: str, similar: Counter[str]
) -> Iterator[Unit]:
    """The telling lines of a payload, each once in a range (`similar` is shared)."""
    lines = _lines(text)
    known = set(words(label))
    last = len(lines) - 1
    for number, raw in _sampled(lines):
        numbered = _NUMBERED.match(raw)
        line = _clean(raw[numbered.end() :] if numbered else raw)
        key = line.casefold()
        if len(line) < 4 or similar[key] or _ORDER.search(line):
            continue
        said = [word for word in words(line) if word not in known]
        if not said:
            continue
        factor, mark, lead = _weigh(line)
        likeness = f"#{_NUMBER.sub('#', key)}"
        similar.update((key, likeness))
        factor *= 0.25 if similar[likeness] > _SIMILAR else 1.0
        factor *= _FIRST if number == 0 else _LAST if number == last else 1.0
        shown = _shorten(line).rstrip(".,;:")
        yield Unit(
            order=order, when=when, label=label, text=shown, weight=weight * factor * (0.3 if numbered else 1.0),
            mark=mark, terms=tuple(sorted(set(said))), length=len(said), cost=estimate_tokens(shown) + 1, tool=True,
            lead=lead,
        )  # fmt: skip


def _lines(text: str) -> list[str]:
    """The lines of a payload that hold anything; a long one is cut after sentences and list items."""
    if len(text) > _PAYLOAD_CHARS:
        text = f"{text[: _PAYLOAD_CHARS * 3 // 4]}\n{text[-_PAYLOAD_CHARS // 4 :]}"
    found: list[str] = []
    for line in text.split("\n"):
        if len(line) <= _LINE_CHARS:
            found.append(line)
            continue
        piece = ""
        for segment in _SEGMENT_END.split(line):
            if len(piece) + len(segment) >= _LINE_CHARS and piece:
                found.append(piece)
                piece = ""
            piece = f"{piece} {segment}".lstrip() if piece else segment
            found.extend(
                piece[start : start + _LINE_CHARS] for start in range(0, len(piece) - _LINE_CHARS, _LINE_CHARS)
            )
            piece = piece[(len(piece) - 1) // _LINE_CHARS * _LINE_CHARS :]
        found.append(piece)
    return [line for line in found if line.strip()]


def _clean(line: str) -> str:
    """The line without list marks and emphasis, its deep paths by their end."""
    return shorten_paths(line.strip(" \t-*#>|─│├└┃").replace("**", ""))


def shorten_paths(text: str) -> str:
    """The text with the upper folders of deep paths left out: the last four parts tell the file."""
    return _DEEP_PATH.sub(lambda match: f"…{match[1]}", text)


def _sampled(lines: list[str]) -> list[tuple[int, str]]:
    """All lines of a short text; of a long one its beginning, its end, and what speaks of an outcome."""
    numbered = list(enumerate(lines))
    if len(lines) <= _LINES:
        return numbered
    middle = [pair for pair in numbered[_LINES // 2 : -_LINES // 4] if OUTCOME.search(pair[1][:_LINE_CHARS])]
    return [*numbered[: _LINES // 2], *middle[: _LINES // 4], *numbered[-_LINES // 4 :]]


def _weigh(line: str) -> tuple[float, Mark, bool]:
    """How much a line of output is worth, its mark, and whether it tells an outcome.

    Sentences and outcomes are worth much, code and listings little.
    """
    density = len(_SYMBOLS.findall(line)) / len(line)
    spaces = line.count(" ")
    weight = 1.6 if density < 0.06 and spaces >= 3 else 1.0 if density < 0.14 else 0.45
    if _RED.search(line):
        return weight * 2.5, "🟡", True
    if _GREEN.search(line):
        return weight * 2.5, "✅", True
    if OUTCOME.search(line):
        weight *= 1.6
    if ENGLISH.firm.search(line):
        weight *= 1.5
    if spaces < 2 and _LISTING.search(line):
        weight *= 0.3
    return weight, "🟡", False


def _shorten(line: str) -> str:
    """The line without articles and other words a reader restores; code is left as it is."""
    if len(_SYMBOLS.findall(line)) / len(line) > 0.1:
        return " ".join(line.split())
    kept = [word for word in line.split() if word.lower() not in STOP or word.lower() in _KEPT]
    return " ".join(kept) or line
