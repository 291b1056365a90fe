"""Column and constraint shorthands, and the metadata every table registers with."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import JSON
from sqlalchemy.types import UserDefinedType

metadata = sa.MetaData(
    naming_convention={
        "pk": "%(table_name)s_pkey",
        "fk": "%(table_name)s_%(column_0_N_name)s_fkey",
        "uq": "%(table_name)s_%(column_0_N_name)s_key",
        "ck": "%(table_name)s_%(constraint_name)s_check",
        "ix": "%(table_name)s_%(column_0_N_name)s_idx",
    }
)


class Xid8(UserDefinedType[int]):
    """A transaction id that never wraps; events are ordered by it (API 4)."""

    cache_ok = True

    def get_col_spec(self, **_: Any) -> str:
        return "xid8"


def tenant_column() -> sa.Column[str]:
    """Owner of the row; leads every key."""
    return sa.Column("tenant_id", sa.Text, nullable=False)


def id_column() -> sa.Column[int]:
    """A number given by the database."""
    return sa.Column("id", sa.BigInteger, sa.Identity(always=True), nullable=False)


def count(name: str, default: int = 0) -> sa.Column[int]:
    """A number that is never null."""
    return sa.Column(name, sa.BigInteger, nullable=False, server_default=sa.text(str(default)))


def time(name: str, *, nullable: bool = True, now: bool = False) -> sa.Column[Any]:
    """A point in time, in UTC."""
    default = sa.text("clock_timestamp()") if now else None
    return sa.Column(name, sa.TIMESTAMP(timezone=True), nullable=nullable and not now, server_default=default)


def json_column(name: str, default: str | None = None) -> sa.Column[Any]:
    """JSON kept as text, so that it comes back byte for byte."""
    return sa.Column(name, JSON, nullable=default is None, server_default=None if default is None else sa.text(default))


def flag(name: str, *, default: bool = False) -> sa.Column[bool]:
    """Yes or no."""
    return sa.Column(name, sa.Boolean, nullable=False, server_default=sa.text(str(default).lower()))


def one_of(column: str, *values: str) -> sa.CheckConstraint:
    """A CHECK that a column holds one of these words."""
    listed = ", ".join(f"'{value}'" for value in values)
    return sa.CheckConstraint(f"{column} IN ({listed})", name=column)
