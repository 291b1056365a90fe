"""Statements of the hot paths: written with SQLAlchemy, compiled once, then run by the driver alone (DESIGN 3.2).

Building a statement, finding its compiled form by a cache key and wrapping its rows costs SQLAlchemy several times what
the driver needs to run it; a job would spend most of its time on that.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import psycopg2

from om_core.store.session import dumps

if TYPE_CHECKING:
    from collections.abc import Mapping

_DIALECT: Final = psycopg2.dialect()  # type: ignore[no-untyped-call]  # SQLAlchemy has no annotation there


class Prepared:
    """A statement whose values are all given by `bindparam`s, each under its name.

    JSON values are given as Python values, arrays as lists, everything else as the driver takes it.
    """

    def __init__(self, statement: sa.ClauseElement) -> None:
        self._statement = statement

    @cached_property
    def _compiled(self) -> tuple[str, frozenset[str]]:
        compiled = self._statement.compile(dialect=_DIALECT)
        binds: Mapping[str, sa.BindParameter[Any]] = getattr(compiled, "binds", {})
        return str(compiled), frozenset(name for name, bind in binds.items() if isinstance(bind.type, sa.JSON))

    @property
    def sql(self) -> str:
        """With `%(name)s` where the values go."""
        return self._compiled[0]

    def values(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """As the driver takes them; None stays SQL's NULL in JSON columns too."""
        as_json = self._compiled[1]
        return {name: dumps(value) if name in as_json and value is not None else value for name, value in given.items()}


def given(*names: str) -> dict[str, sa.BindParameter[Any]]:
    """Columns by name, each with the value of the same name."""
    return {name: sa.bindparam(name) for name in names}
