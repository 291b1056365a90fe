"""Opens transcript files: JSON or JSON lines, plain or gzip."""

from __future__ import annotations

import gzip
import json
import zlib
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, TextIO

from om_core.domain.errors import InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from om_core.domain.message import Json

NOT_JSON: Final = object()
"""What a text that is no JSON parses to."""


class Source:
    """One file. Lines are split at line feeds only, and bytes that are no UTF-8 become U+FFFD."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)

    @property
    def stem(self) -> str:
        """The file's name without its endings."""
        name = self.path.name
        for suffix in (".gz", ".jsonl", ".json", ".ndjson"):
            name = name.removesuffix(suffix)
        return name or self.path.name

    def records(self) -> Iterator[Json]:
        """The values of the lines that are not blank, one at a time; `NOT_JSON` for a line that is none."""
        with self._open() as lines:
            for line in lines:
                if line.strip():
                    yield parse_json(line)

    def document(self) -> Json:
        """The whole file as one JSON value, or `NOT_JSON`."""
        with self._open() as file:
            return parse_json(file.read())

    def is_lines(self) -> bool:
        """Whether it is one JSON value a line: the first line is one, and it is not the only one."""
        records = self.records()
        first = next(records, NOT_JSON)
        if first is NOT_JSON:
            return False
        return self.path.name.removesuffix(".gz").endswith((".jsonl", ".ndjson")) or next(records, self) is not self

    @contextmanager
    def _open(self) -> Iterator[TextIO]:
        opener = gzip.open if self.path.suffix == ".gz" else open
        try:
            with opener(self.path, "rt", encoding="utf-8-sig", errors="replace", newline="\n") as file:
                yield file
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            raise InvalidInputError(f"{self.path.name} is no complete gzip file: {error}", path="file") from error


def parse_json(text: str) -> Json:
    """The value of a JSON text, or `NOT_JSON`."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return NOT_JSON
