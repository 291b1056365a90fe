"""Which driver errors are the database's doing: they are waited out and count as nobody's failure (DESIGN 5)."""

from __future__ import annotations

from typing import Final

import psycopg2
from sqlalchemy import exc as sa_exc

from om_core.domain.errors import DatabaseOutageError

_OUTAGES: Final = (psycopg2.OperationalError, psycopg2.InterfaceError, sa_exc.TimeoutError)
_INPUT: Final = "54"
"""Class of SQLSTATEs `program limit exceeded`: a row or a statement too large stays so, however often it is tried."""


def as_outage(error: BaseException) -> DatabaseOutageError | None:
    """The same as an outage: connection lost, no connection free, restart, disk full, lock, deadlock, time-out.

    Its text names class and SQLSTATE only: the driver's quotes parameters, which are content.
    """
    cause = getattr(error, "orig", None) or error
    if not isinstance(cause, _OUTAGES):
        return None
    state = getattr(cause, "pgcode", None)
    if state is not None and state.startswith(_INPUT):
        return None
    return DatabaseOutageError(
        f"the database could not do it now: {type(cause).__name__}" + (f" (SQLSTATE {state})" if state else "")
    )
