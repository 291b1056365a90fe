"""Connections and transactions: one pool, explicit BEGIN with role and tenant in one round trip.

Connections are in autocommit mode and transactions are controlled here, so that BEGIN, `SET LOCAL ROLE` and the tenant
cost one round trip together (they would cost three through the driver's own transaction handling).
"""

from __future__ import annotations

import copy
from contextlib import contextmanager
from typing import TYPE_CHECKING

import sqlalchemy as sa
from sqlalchemy import exc as sa_exc

from om_core.config.urls import normalise_database_url
from om_core.domain.errors import ForbiddenError, SetupError
from om_core.domain.reach import EVERYTHING
from om_core.store.chunks import ChunkRows
from om_core.store.claims import read_budgets
from om_core.store.copying import CopyRows
from om_core.store.deletion import DeletionRows
from om_core.store.events import EventRows
from om_core.store.jobs import JobRows
from om_core.store.kept import ExtractionRows, WorkingMemoryRows, read_kept
from om_core.store.keys import KeyRows
from om_core.store.memories import MemoryRows
from om_core.store.messages import MessageRows
from om_core.store.outages import as_outage
from om_core.store.reflections import ReflectionRows
from om_core.store.removal import RemovalRows
from om_core.store.retention import prune_events, prune_jobs
from om_core.store.session import Session
from om_core.store.system import SystemRows
from om_core.store.threads import ThreadRows
from om_core.store.usage import book_usage, usage_page
from om_core.store.webhooks import WebhookRows

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from om_core.domain.errors import DatabaseOutageError
    from om_core.domain.job import JobKind
    from om_core.domain.reach import Reach
    from om_core.domain.thread import MemoryState, ThreadState
    from om_core.ports import BudgetRow, ClaimLimits, FinishedJob, Kept, Page, UsageQuery, UsageRow

APP_ROLE = "om_app"
SYSTEM_ROLE = "om_system"


class PostgresTransaction:
    """The repositories of one tenant, over one open transaction."""

    def __init__(self, session: Session, tenant_id: str) -> None:
        self._session = session
        self.tenant_id = tenant_id
        self.threads = ThreadRows(session)
        self.memories = MemoryRows(session)
        self.messages = MessageRows(session)
        self.chunks = ChunkRows(session)
        self.reflections = ReflectionRows(session)
        self.jobs = JobRows(session)
        self.events = EventRows(session)
        self.keys = KeyRows(session)
        self.webhooks = WebhookRows(session)
        self.removal = RemovalRows(session)
        self.copies = CopyRows(session)
        self.deletions = DeletionRows(session)
        self.working_memory = WorkingMemoryRows(session)
        self.extractions = ExtractionRows(session)

    def now(self) -> datetime:
        return self._session.now()

    def kept(self, thread: ThreadState, memory: MemoryState, *, others: int = 0) -> Kept:
        return read_kept(self._session, thread, memory, others=others)

    def book_usage(self, thread: ThreadState, kind: str, model: str, result: FinishedJob) -> None:
        book_usage(self._session, thread, kind, model, result)

    def usage(self, query: UsageQuery) -> Page[UsageRow]:
        return usage_page(self._session, query)

    def budgets(
        self, thread: ThreadState, kind: JobKind, models: tuple[str, ...], limits: ClaimLimits
    ) -> tuple[BudgetRow, ...]:
        return read_budgets(self._session, thread, kind, models, limits)

    def prune_jobs(self, days: int, *, limit: int) -> int:
        return prune_jobs(self._session, days, limit=limit)

    def prune_events(self, days: int, *, limit: int) -> int:
        return prune_events(self._session, days, limit=limit)


class PostgresStore:
    """The database: `transaction`, `reading` and `system`."""

    def __init__(self, url: str, *, pool_size: int = 10, statement_timeout_s: float = 30.0) -> None:
        options = (
            f"-c statement_timeout={int(statement_timeout_s * 1000)} -c lock_timeout=10000"
            " -c idle_in_transaction_session_timeout=30000 -c timezone=UTC"
        )
        self.engine = sa.create_engine(
            normalise_database_url(url),
            isolation_level="AUTOCOMMIT",
            pool_size=pool_size,
            max_overflow=0,
            pool_timeout=30,
            pool_pre_ping=False,
            pool_recycle=1800,
            connect_args={"options": options, "connect_timeout": 5, "application_name": "om"},
        )
        self.system = SystemRows(self)
        self._reach = EVERYTHING

    def within(self, reach: Reach) -> PostgresStore:
        """The same database and pool for a caller who reaches less."""
        narrowed = copy.copy(self)
        narrowed._reach = reach  # noqa: SLF001 - of the same class
        return narrowed

    @contextmanager
    def transaction(self, tenant_id: str) -> Iterator[PostgresTransaction]:
        """Read and write as `om_app` with this tenant; commit at the end, roll back on any exception.

        Raises:
            ForbiddenError: the caller may only read.
        """
        if self._reach.read_only:
            raise ForbiddenError("this key may only read")
        with self.session(APP_ROLE, tenant_id) as session:
            yield PostgresTransaction(session, tenant_id)

    @contextmanager
    def reading(self, tenant_id: str) -> Iterator[PostgresTransaction]:
        """One consistent snapshot, read only."""
        with self.session(APP_ROLE, tenant_id, begin="BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY") as session:
            yield PostgresTransaction(session, tenant_id)

    @contextmanager
    def session(self, role: str, tenant_id: str, *, begin: str = "BEGIN") -> Iterator[Session]:
        """An open transaction with a role and a tenant; both end with it."""
        with self._connect() as connection:
            session = Session(connection, tenant_id, begin=begin, role=role, reach=self._reach)
            try:
                yield session
                session.commit()
            except BaseException:
                session.rollback()
                raise

    @contextmanager
    def _connect(self) -> Iterator[sa.Connection]:
        """A pooled connection; `Session` replaces it if the server has closed it."""
        try:
            connection = self.engine.connect()
        except sa_exc.OperationalError as error:
            if "does not exist" in str(error) and ("role" in str(error) or "database" in str(error)):
                reason = str(error.orig).strip()
                msg = f"the database cannot be used: {reason}. Check OM_DATABASE_URL, then run `om migrate`"
                raise SetupError(msg) from error
            raise
        with connection:
            yield connection

    def as_outage(self, error: BaseException) -> DatabaseOutageError | None:
        return as_outage(error)

    def close(self) -> None:
        self.engine.dispose()
