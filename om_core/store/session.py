"""One open transaction on one connection, and the two ways to run a statement on it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import timedelta
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import psycopg2
import sqlalchemy as sa

from om_core.domain.reach import EVERYTHING, Reach

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from om_core.store.prepared import Prepared

SET = "SELECT set_config('role', {role}, true), set_config('om.tenant', {tenant}, true)"

Params: TypeAlias = "Sequence[object] | Mapping[str, object]"


def dumps(value: object) -> str:
    """JSON text for the driver: compact, with the original characters."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


class _Result(NamedTuple):
    columns: Any
    rows: list[Any]
    changed: int


class Session:
    """A transaction that opens with its first statement.

    `hot`, `fetch` and `change` run a statement through the driver alone, for those that every turn and every job
    execute; everything else goes through SQLAlchemy. The opening (BEGIN, role, tenant) is sent together with the first
    of them; writes that nobody waits for (`later`) are sent together with the next statement or with COMMIT.
    """

    def __init__(
        self, connection: sa.Connection, tenant_id: str, *, begin: str, role: str, reach: Reach = EVERYTHING
    ) -> None:
        self.connection = connection
        self.tenant_id = tenant_id
        self.reach = reach
        """What the caller may name: repositories find nothing beyond it by the caller's own ids."""
        self._opening: str | None = begin
        self._role = role
        self._waiting: list[tuple[str, Params]] = []
        self._clock: tuple[datetime, float] | None = None

    def note_clock(self, moment: datetime) -> None:
        """What the database's clock showed: statements bring it along, so that few ask for it alone."""
        self._clock = (moment, perf_counter())

    def now(self) -> datetime:
        """The database's time: asked for, or what it last showed and the time passed since. Never ahead of it."""
        if self._clock is None:
            [(moment,)] = self.hot("SELECT clock_timestamp()")
            self.note_clock(moment)
            return moment  # type: ignore[no-any-return]  # the driver is untyped
        moment, noted = self._clock
        return moment + timedelta(seconds=perf_counter() - noted)

    def _open(self) -> None:
        """Send BEGIN with role and tenant, if nothing was sent yet."""
        if self._opening is not None:
            self._first("", ())

    def _first(self, sql: str, params: Params) -> _Result:
        """Send BEGIN with role and tenant, and the first statement.

        A pooled connection that the server has closed (a restart) is replaced once, with all others that lie idle:
        nothing ran before, and COMMIT comes apart, so sending it anew does nothing twice.
        """
        given: Any
        if isinstance(params, Mapping):
            role, tenant = "%(om_role)s", "%(om_tenant)s"
            given = {"om_role": self._role, "om_tenant": self.tenant_id, **params}
        else:
            role = tenant = "%s"
            given = (self._role, self.tenant_id, *params)
        entering = f"{self._opening}; {SET.format(role=role, tenant=tenant)}"
        self._opening = None  # from here on there may be something to roll back, even if this fails half-way
        whole = f"{entering}; {sql}" if sql else entering
        try:
            return self._raw(whole, given)
        except (psycopg2.OperationalError, psycopg2.InterfaceError):
            if not self.connection.invalidated:
                raise
            self.connection.engine.dispose()
            return self._raw(whole, given)

    def _raw(self, sql: str, params: Params) -> _Result:
        driver = self.connection.connection.driver_connection
        assert driver is not None
        try:
            with driver.cursor() as cursor:
                if self._waiting:
                    waiting, self._waiting = [*self._waiting, (sql, params)], []
                    cursor.execute(b"; ".join(cursor.mogrify(*item) for item in waiting))
                else:
                    cursor.execute(sql, params)
                found = cursor.description
                return _Result(found, cursor.fetchall() if found else [], cursor.rowcount)
        except (psycopg2.OperationalError, psycopg2.InterfaceError):
            if driver.closed:
                self.connection.invalidate()
            raise

    def hot(self, sql: str, params: Sequence[object] = ()) -> Any:
        """Rows of a statement with `%s` parameters, by the shortest way."""
        return self._send(sql, params).rows

    def fetch(self, statement: Prepared, **values: object) -> list[dict[str, Any]]:
        """Every row of a prepared statement, by column name."""
        result = self._send(statement.sql, statement.values(values))
        names = [column[0] for column in result.columns or ()]
        return [dict(zip(names, row, strict=True)) for row in result.rows]

    def change(self, statement: Prepared, **values: object) -> int:
        """How many rows a prepared statement changed."""
        return self._send(statement.sql, statement.values(values)).changed

    def later(self, statement: Prepared | str, params: Params) -> None:
        """A write whose outcome nobody waits for. What it violates is raised by the statement it is sent with."""
        self._open()
        if isinstance(statement, str):
            self._waiting.append((statement, params))
        else:
            assert isinstance(params, Mapping)
            self._waiting.append((statement.sql, statement.values(params)))

    def _flush(self) -> None:
        """Send what waits."""
        if self._waiting:
            self._raw(*self._waiting.pop())

    def _send(self, sql: str, params: Params) -> _Result:
        return self._raw(sql, params) if self._opening is None else self._first(sql, params)

    def execute(self, statement: sa.Executable, params: Any = None) -> sa.CursorResult[Any]:
        """Run a SQLAlchemy statement."""
        self._open()
        self._flush()
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

    def hot_as(self, role: str, tenant_id: str, sql: str, params: Sequence[object]) -> Any:
        """`hot` with another role and tenant, which stay for the rest of the transaction (a claim goes on as the
        job's tenant).
        """
        self._open()
        self.tenant_id = tenant_id
        return self._send(f"{SET.format(role='%s', tenant='%s')}; {sql}", (role, tenant_id, *params)).rows

    def commit(self) -> None:
        if self._opening is None:
            self._raw("COMMIT", ())

    def rollback(self) -> None:
        """Roll back; a connection on which even that fails is thrown away, so nobody inherits a transaction."""
        if self._opening is not None or self.connection.invalidated or self.connection.closed:
            return
        self._waiting.clear()
        try:
            self._raw("ROLLBACK", ())
        except BaseException as error:  # also an interrupt: the connection is in an unknown state
            if not self.connection.invalidated:
                self.connection.invalidate()
            if not isinstance(error, psycopg2.Error):  # an interrupt goes on
                raise
