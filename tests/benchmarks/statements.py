"""Counting SQL statements where they reach the driver: what a cursor of psycopg2 executes.

Opening and closing a transaction and setting its role and tenant are no statements of a step: they are left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import psycopg2.extensions
import sqlalchemy as sa

FRAME = re.compile(r"(BEGIN|COMMIT|ROLLBACK|START TRANSACTION|SET LOCAL)\b|SELECT set_config\('role'", re.IGNORECASE)


LITERAL = re.compile(r"\bE'(?:[^'\\]|\\.|'')*'|'(?:[^']|'')*'", re.DOTALL)


def counted(sql: str) -> list[str]:
    """The statements of one execution that count."""
    outside = LITERAL.sub(lambda literal: literal[0].replace(";", ","), sql)
    parts = (part.strip() for part in outside.split(";"))
    return [part for part in parts if part and not FRAME.match(part)]


@dataclass
class Recorder:
    """What the connections of one engine executed."""

    statements: list[str] = field(default_factory=list)

    @contextmanager
    def of(self) -> Iterator[list[str]]:
        """The statements within the block, as a list that is complete at its end."""
        start = len(self.statements)
        found: list[str] = []
        yield found
        found.extend(self.statements[start:])

    def count(self, operation: Any) -> int:
        """How many statements one call executes."""
        with self.of() as found:
            operation()
        return len(found)


def record(engine: sa.Engine) -> Recorder:
    """Record every statement of the connections that this engine makes from now on."""
    recorder = Recorder()

    class RecordingCursor(psycopg2.extensions.cursor):
        def execute(self, query: Any, vars: Any = None) -> None:
            recorder.statements.extend(counted(_text(query)))
            super().execute(query, vars)

        def executemany(self, query: Any, vars_list: Any) -> None:
            rows: Sequence[Any] = list(vars_list)
            recorder.statements.extend(counted(_text(query)) * len(rows))
            super().executemany(query, rows)

    def use(connection: Any, _: object) -> None:
        connection.cursor_factory = RecordingCursor

    engine.dispose()
    sa.event.listen(engine, "connect", use, insert=True)
    return recorder


def _text(query: Any) -> str:
    return query.decode() if isinstance(query, bytes) else str(query)
