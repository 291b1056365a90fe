"""Cutting an answer into its sections. Tags count only at the start of a line."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from om_core.prompts.quoting import SECTION_TAGS

if TYPE_CHECKING:
    from collections.abc import Collection

OBSERVATIONS: Final = "observations"
_FENCED_TAG: Final = re.compile(r"\s*+`{0,3}<(?P<closing>/?)\s?(?P<name>[A-Za-z][\w-]{0,63}+)\s?>`{0,3}")
_INLINE_CLOSE: Final = re.compile(r"</\s?([A-Za-z][\w-]{0,63})\s?>`{0,3}\s*+$")


@dataclass(slots=True)
class Sections:
    """`observations` is None when no such section was opened; `others` holds the first section of each other tag;
    `outside` is everything that stands in no section.
    """

    observations: str | None = None
    others: dict[str, str] = field(default_factory=dict)
    outside: str = ""


@dataclass(frozen=True, slots=True)
class _Tag:
    name: str
    closing: bool
    rest: str


def split_sections(text: str, extra_tags: Collection[str] = ()) -> Sections:
    """Cut an answer into sections.

    Several sections of observations are joined. A section without closing tag ends where another one opens, or with
    the text. While a closing tag of the observations is still to come, tags of other sections in it are content.
    """
    names = frozenset((*SECTION_TAGS, *extra_tags))
    lines = text.split("\n")
    tags = [_tag(line, names) for line in lines]
    splitter = _Splitter(closings=_closings(tags))
    for number, (line, tag) in enumerate(zip(lines, tags, strict=True)):
        splitter.take(number, line, tag)
    return splitter.sections()


def _tag(line: str, names: Collection[str]) -> _Tag | None:
    match = _FENCED_TAG.match(line[:200])
    if match is None or (name := match["name"].lower()) not in names:
        return None
    return _Tag(name=name, closing=bool(match["closing"]), rest=line[match.end() :])


def _closings(tags: list[_Tag | None]) -> dict[int, int]:
    """For each line that opens observations: the line of their closing tag, if it comes before they open again."""
    closings: dict[int, int] = {}
    upcoming: int | None = None
    for number in range(len(tags) - 1, -1, -1):
        tag = tags[number]
        if tag is None or tag.name != OBSERVATIONS:
            continue
        if tag.closing:
            upcoming = number
            continue
        if upcoming is not None:
            closings[number] = upcoming
        upcoming = None
    return closings


@dataclass(slots=True)
class _Splitter:
    """The open section, the line up to which it is known to reach, and what was collected."""

    closings: dict[int, int]
    name: str | None = None
    reaches: int = 0
    body: list[str] = field(default_factory=list)
    blocks: dict[str, list[list[str]]] = field(default_factory=dict)
    outside: list[str] = field(default_factory=list)

    def take(self, number: int, line: str, tag: _Tag | None) -> None:
        if tag is None or self._is_content(tag, number):
            (self.outside if self.name is None else self.body).append(line)
        elif tag.closing:
            self.name = None
            self.outside.append(tag.rest)
        else:
            self._open(number, tag)

    def _is_content(self, tag: _Tag, number: int) -> bool:
        """Whether a tag within a section is part of its text."""
        if self.name is None or tag.name == self.name:
            return False
        return tag.closing or number < self.reaches

    def _open(self, number: int, tag: _Tag) -> None:
        rest, closed = _without_closing(tag.rest, tag.name)
        self.body = [rest]
        self.blocks.setdefault(tag.name, []).append(self.body)
        self.name = None if closed else tag.name
        self.reaches = self.closings.get(number, 0)

    def sections(self) -> Sections:
        texts = {name: ["\n".join(body).strip("\n") for body in bodies] for name, bodies in self.blocks.items()}
        observations = texts.pop(OBSERVATIONS, None)
        joined = None if observations is None else "\n".join(filter(None, observations))
        return Sections(
            observations=None if joined is None else _without_closing(joined, OBSERVATIONS)[0],
            others={
                name: _without_closing(next(filter(str.strip, found), ""), name)[0] for name, found in texts.items()
            },
            outside="\n".join(self.outside),
        )


def _without_closing(text: str, name: str) -> tuple[str, bool]:
    """The text without the closing tag of this section at its very end, and whether there was one."""
    inline = _INLINE_CLOSE.search(text[-200:])
    if inline is None or inline[1].lower() != name:
        return text, False
    return text[: len(text) - len(inline[0])], True
