"""Reading a model's answer, whatever it looks like: tolerant, linear in time, never trusting (DESIGN 6.7, 7)."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from om_core.domain.extraction import value_text
from om_core.formats.sanitise import sanitise_json
from om_core.prompts.degenerate import LINE_CHARS, degenerate_reason, echoes, is_refusal, loop_reason
from om_core.prompts.notes import EXTRACT_MARK, Note, format_notes, is_list_item, names_no_day, note_lines, parse_day
from om_core.prompts.quoting import clean_text, escape_tags, strip_delimiters
from om_core.prompts.redact import redact, redact_json
from om_core.prompts.sections import Sections, split_sections

if TYPE_CHECKING:
    from datetime import date

    from om_core.domain.message import JsonObject

Outcome: TypeAlias = Literal["valid", "unusable"]
CHUNK_BYTES: Final = 65_536
LOG_BYTES: Final = 262_144
HINT_CHARS: Final = 2_000
TITLE_CHARS: Final = 120
TITLE_LEAST_CHARS: Final = 3
CUT_MARK: Final = " [cut]"
_ANSWER_CHARS: Final = 4_000_000
_OBJECT_STARTS: Final = 20
"""Places looked at for a JSON object: words around it may hold braces."""
TOGETHER: Final = "extracted-values"
"""Section in which a model may give all values as one JSON object."""

_NOTHING: Final = re.compile(
    r"[\s*•(\[-]*+(?:no|none|nothing|n/a|empty)(?: (?:new|notable|further|relevant|additional|significant))?"
    r"(?: (?:observations?|notes?|information|facts?|details?|to (?:note|observe|report|add)))?"
    r"(?: (?:to (?:note|observe|report|add|record)|(?:were|was|are|is)? ?(?:needed|found|made)))?[\s.!)\]]*+",
    re.IGNORECASE,
)
_PLACEHOLDERS: Final = frozenset({"text", "title"})
"""What the form of an answer shows in the place of hints."""
_FENCE: Final = re.compile(r"\s*+(?:```|~~~)[\w-]{0,20}\s*+")
_WORDLESS: Final = re.compile(r"[\W_]*+(?:\d{1,2}:\d{2}[\W_]*+)?")
_TIMED: Final = re.compile(r"\(\d{1,2}:\d{2}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ObserverOutput:
    """What the Observer said. Valid notes may be empty: the range is covered and nothing is added (DESIGN 6.7).

    `reason` says in one line why an answer is unusable. `truncated`: the answer stopped at the model's output limit.
    `extra` holds the sections the caller asked for by name.
    """

    outcome: Outcome
    notes: str = ""
    current_task: str | None = None
    suggested_response: str | None = None
    thread_title: str | None = None
    reason: str | None = None
    truncated: bool = False
    extra: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReflectorOutput:
    """A condensed log. Never valid and empty at once: emptiness does not replace notes (DESIGN 6.7)."""

    outcome: Outcome
    notes: str = ""
    reason: str | None = None
    truncated: bool = False
    extra: Mapping[str, str] = field(default_factory=dict)


def parse_observer(
    text: str,
    *,
    default_day: date | None = None,
    finish_reason: str | None = None,
    extra_tags: Collection[str] = (),
    source: str = "",
) -> ObserverOutput:
    """Read an Observer's answer.

    Args:
        text: the answer.
        default_day: the day of notes that name none: the first of the range, in the thread's zone.
        finish_reason: as the provider says; `length` marks a truncated answer.
        extra_tags: further sections to return.
        source: the words of the range; an answer about monotonous messages may be monotonous.
    """
    truncated = finish_reason == "length"
    text = _cleaned(text)
    sections = _split(text, extra_tags)
    notes, reason = _notes(
        _without_values(text, sections, extra_tags), sections, "observer_v1", default_day, CHUNK_BYTES, source
    )
    if reason is not None:
        return ObserverOutput(outcome="unusable", reason=reason, truncated=truncated)
    return ObserverOutput(
        outcome="valid",
        notes=notes,
        current_task=_hint(sections, "current-task"),
        suggested_response=_hint(sections, "suggested-response"),
        thread_title=_title(sections),
        truncated=truncated,
        extra=_extras(sections, extra_tags),
    )


def parse_reflector(
    text: str,
    *,
    default_day: date | None = None,
    finish_reason: str | None = None,
    source: str = "",
    extra_tags: Collection[str] = (),
) -> ReflectorOutput:
    """Read a Reflector's answer about the log `source`; anything else but the notes and `extra_tags` is dropped."""
    truncated = finish_reason == "length"
    text = _cleaned(text)
    sections = _split(text, extra_tags)
    notes, reason = _notes(
        _without_values(text, sections, extra_tags), sections, "reflector_v1", default_day, LOG_BYTES, source
    )
    if reason is None and not notes:
        reason = "the answer holds no notes"
    if reason is not None:
        return ReflectorOutput(outcome="unusable", reason=reason, truncated=truncated)
    extra = _extras(sections, extra_tags)
    return ReflectorOutput(outcome="valid", notes=notes, truncated=truncated, extra=extra)


def parse_values(text: str) -> JsonObject | None:
    """Read a JSON object out of an answer, with or without a fence or words around it; None: there is none."""
    cleaned = _cleaned(text)
    decoder = json.JSONDecoder()
    start = cleaned.find("{")
    for _ in range(_OBJECT_STARTS):
        if start < 0:
            return None
        try:
            found, _ = decoder.raw_decode(cleaned, start)
        except (ValueError, RecursionError):
            start = cleaned.find("{", start + 1)
        else:
            clean: JsonObject = redact_json(sanitise_json(found))
            return clean
    return None


def validate_notes(notes: str, *, max_bytes: int = CHUNK_BYTES) -> str:
    """The notes within bounds: lines of at most 10,000 characters, at most `max_bytes` of UTF-8, whole lines only."""
    kept: list[str] = []
    size = 0
    for line in notes.split("\n"):
        bounded = line if len(line) <= LINE_CHARS else line[: LINE_CHARS - len(CUT_MARK)] + CUT_MARK
        size += len(bounded.encode("utf-8", "replace")) + 1
        if size > max_bytes - 40:
            kept.append("* 🟢 [further notes were cut]")
            break
        kept.append(bounded)
    return "\n".join(kept)


def _cleaned(text: str) -> str:
    """The answer without hidden characters, secrets and repeated delimiters: nothing else of it is stored or quoted."""
    return strip_delimiters(redact(clean_text(text[:_ANSWER_CHARS])))


def _notes(
    text: str, sections: Sections, template: str, default_day: date | None, max_bytes: int, source: str
) -> tuple[str, str | None]:
    """Notes in normal form, or the reason why the answer is unusable."""
    if not text.strip():
        return "", "the answer is empty"
    if (reason := degenerate_reason(text, source)) is not None:
        return "", reason
    found = sections.observations
    if found is not None and (not found.strip() or _NOTHING.fullmatch(found)):
        return "", None
    if found is None:
        if _NOTHING.fullmatch(sections.outside):
            return "", None
        found = _list_lines(sections.outside)
        if not found:
            kind = "a refusal" if is_refusal(sections.outside) else "no section and no list"
            return "", f"{kind} in {len(text):,} characters, starting {text.strip()[:80]!r}"
    if is_refusal(found) and not _TIMED.search(found):
        return "", f"a refusal in {len(text):,} characters, starting {found.strip()[:80]!r}"
    return _normal(found, template, default_day, max_bytes, source)


def _normal(found: str, template: str, default_day: date | None, max_bytes: int, source: str) -> tuple[str, str | None]:
    lines = [line for line in found.split("\n") if not _FENCE.fullmatch(line)]
    notes = note_lines(escape_tags("\n".join(lines)), default_day=default_day)
    own = [note for note in notes if not _is_no_note(note.text, template)]
    repeated = sum(len(note.text) for note in notes) - sum(len(note.text) for note in own)
    if not notes:
        return "", "the answer holds marks and no words" if any(map(_is_bare, lines)) else None
    if not own or repeated > sum(len(note.text) for note in own):
        return "", f"the answer repeats its instructions in {repeated:,} characters"
    if (loop := loop_reason("\n".join(note.line() for note in own), source)) is not None:
        return "", loop
    return validate_notes(format_notes(_opened(own)), max_bytes=max_bytes), None


def _is_bare(line: str) -> bool:
    """Whether a line that gave no note holds more than a bullet or a day: it was meant to be one."""
    return bool(line.strip(" \t*•+-")) and parse_day(line) is None


def _is_no_note(text: str, template: str) -> bool:
    """Whether a line is the template's, only a header or a time, or the mark that only an extract may bear."""
    bare = names_no_day(text) or _WORDLESS.fullmatch(text) is not None
    return bare or echoes(text, template) or EXTRACT_MARK in text.lower()


def _opened(notes: list[Note]) -> list[Note]:
    """Details may not open a log: the first line is always a note of its own."""
    first, *rest = notes
    opening = Note(date=first.date, time=first.time, priority=first.priority, text=first.text.strip())
    return [opening, *rest]


def _list_lines(text: str) -> str:
    lines = text.split("\n")
    items = [line for line in lines if is_list_item(line) or parse_day(line) is not None]
    return "\n".join(items) if any(is_list_item(line) and parse_day(line) is None for line in items) else ""


def _hint(sections: Sections, tag: str, *, most: int | None = HINT_CHARS) -> str | None:
    value = escape_tags(sections.others.get(tag, "")).strip()
    lines = [line for line in value.split("\n") if not _FENCE.fullmatch(line)]
    value = "\n".join(lines).strip()
    if not value or _NOTHING.fullmatch(value) or (most is not None and value.casefold() in _PLACEHOLDERS):
        return None
    return value if most is None or len(value) <= most else value[: most - len(CUT_MARK)] + CUT_MARK


def _split(text: str, extra_tags: Collection[str]) -> Sections:
    return split_sections(text, frozenset((*extra_tags, TOGETHER) if extra_tags else ()))


def _without_values(text: str, sections: Sections, tags: Collection[str]) -> str:
    """What is judged of an answer: a value that repeats itself is a bad value, and says nothing of the notes."""
    if not any(tag in sections.others for tag in (*tags, TOGETHER)):
        return text
    others = [body for tag, body in sections.others.items() if tag not in tags and tag != TOGETHER]
    return "\n".join([sections.observations or "", *others, sections.outside])


def _extras(sections: Sections, tags: Collection[str]) -> dict[str, str]:
    """The values by their tags: those of a JSON object for all of them first, then each one's own section."""
    found = {tag: value for tag in tags if (value := _hint(sections, tag, most=None))}
    together = parse_values(sections.others[TOGETHER]) if TOGETHER in sections.others else None
    for tag, value in (together or {}).items():
        text = escape_tags(value_text(value)).strip()
        if tag in tags and text:
            found[tag] = text
    return found


def _title(sections: Sections) -> str | None:
    hint = _hint(sections, "thread-title")
    if hint is None:
        return None
    title = " ".join(hint.split("\n")[0].strip(" \"'*#`“”").split())
    return title[:TITLE_CHARS].rstrip() if len(title) >= TITLE_LEAST_CHARS else None
