"""One open transaction on one connection, and the two ways to run a statement on it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import psycopg2
import sqlalchemy as sa

if TYPE_CHECKING:
    from collections.abc import Sequence

ENTER = "{begin}; SELECT set_config('role', %s, true), set_config('om.tenant', %s, true)"


def dumps(value: object) -> str:
    """JSON text for the driver: compact, with the original characters."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


class Session:
    """A transaction that opens with its first statement.

    `hot` runs a statement through the driver alone, for the few that every turn executes; everything else goes
    through SQLAlchemy. The opening (BEGIN, role, tenant) is sent together with the first hot statement.
    """

    def __init__(self, connection: sa.Connection, tenant_id: str, *, begin: str, role: str) -> None:
        self.connection = connection
        self.tenant_id = tenant_id
        self._opening: str | None = begin
        self._role = role
        self.statements = 0

    def _open(self) -> None:
        """Send BEGIN with role and tenant, if nothing was sent yet."""
        if self._opening is not None:
            self._first("", ())

    def _first(self, sql: str, params: Sequence[object]) -> Any:
        """Send BEGIN with role and tenant, and the first statement.

        A pooled connection that the server has closed (a restart) is replaced once, with all others that lie idle:
        nothing ran before, and COMMIT comes apart, so sending it anew does nothing twice.
        """
        entering = ENTER.format(begin=self._opening)
        self._opening = None  # from here on there may be something to roll back, even if this fails half-way
        whole = f"{entering}; {sql}" if sql else entering
        given = (self._role, self.tenant_id, *params)
        try:
            return self._raw(whole, given)
        except (psycopg2.OperationalError, psycopg2.InterfaceError):
            if not self.connection.invalidated:
                raise
            self.connection.engine.dispose()
            return self._raw(whole, given)

    def _raw(self, sql: str, params: Sequence[object]) -> Any:
        driver = self.connection.connection.driver_connection
        assert driver is not None
        try:
            with driver.cursor() as cursor:
                cursor.execute(sql, params)
                return cursor.fetchall() if cursor.description else None
        except (psycopg2.OperationalError, psycopg2.InterfaceError):
            if driver.closed:
                self.connection.invalidate()
            raise

    def hot(self, sql: str, params: Sequence[object] = ()) -> Any:
        """Rows of a statement with `%s` parameters, by the shortest way."""
        self.statements += 1
        return self._raw(sql, params) if self._opening is None else self._first(sql, params)

    def execute(self, statement: sa.Executable, params: Any = None) -> sa.CursorResult[Any]:
        """Run a SQLAlchemy statement."""
        self._open()
        self.statements += 1
        return self.connection.execute(statement, params)

    def rows(self, statement: sa.Executable, params: Any = None) -> list[sa.RowMapping]:
        """Every row, by column name."""
        return [row._mapping for row in self.execute(statement, params)]  # noqa: SLF001 - SQLAlchemy's public name

    def first(self, statement: sa.Executable, params: Any = None) -> sa.RowMapping | None:
        """The first row, or None."""
        row = self.execute(statement, params).first()
        return None if row is None else row._mapping  # noqa: SLF001 - SQLAlchemy's public name

    def scalar(self, statement: sa.Executable, params: Any = None) -> Any:
        return self.execute(statement, params).scalar()

    def become(self, role: str, tenant_id: str) -> None:
        """Change role and tenant for the rest of the transaction (a claim continues as the job's tenant)."""
        self._open()
        self._raw("SELECT set_config('role', %s, true), set_config('om.tenant', %s, true)", (role, tenant_id))
        self.tenant_id = tenant_id

    def commit(self) -> None:
        if self._opening is None:
            self._raw("COMMIT", ())

    def rollback(self) -> None:
        """Roll back; a connection on which even that fails is thrown away, so nobody inherits a transaction."""
        if self._opening is not None or self.connection.invalidated or self.connection.closed:
            return
        try:
            self._raw("ROLLBACK", ())
        except BaseException as error:
            if not self.connection.invalidated:
                self.connection.invalidate()
            if not isinstance(error, psycopg2.Error):  # an interrupt goes on
                raise
