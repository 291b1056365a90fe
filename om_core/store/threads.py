"""Thread rows: locking, appending, creating, listing."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, Final

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from om_core.domain.errors import ConflictError, NotFoundError
from om_core.ports import KnownMessage, LockedThread, Page, TailRow
from om_core.store.cursors import decode_cursor, encode_cursor
from om_core.store.events import event_params
from om_core.store.jobs import job_params
from om_core.store.messages import message_params
from om_core.store.prepared import Prepared, given
from om_core.store.reach import within
from om_core.store.rows import (
    early_json,
    hints_json,
    message_from,
    moment,
    open_calls_json,
    ref_from,
    snapshot_from,
    thread_from,
)
from om_core.store.session import dumps
from om_core.store.tables import memories, threads

if TYPE_CHECKING:
    from collections.abc import Sequence

    from om_core.domain.job import JobRef
    from om_core.domain.thread import ThreadState
    from om_core.ports import NewEvent, NewJob, NewMessage, NewThread
    from om_core.store.session import Session

LOCK = "SELECT om_lock_thread_v1(%s, %s, %s, %s)"
APPEND = "SELECT om_append_v1(%s, %s::json, %s::json, %s::json, %s::json)"
_THIS = sa.and_(threads.c.tenant_id == sa.bindparam("tenant"), threads.c.id == sa.bindparam("thread"))
LOCK_BY_ID = Prepared(sa.select(threads).where(_THIS).with_for_update(key_share=True))
"""FOR NO KEY UPDATE: foreign keys of new rows do not wait for it."""


@cache
def _update(columns: tuple[str, ...]) -> Prepared:
    """Set these columns: callers change one of a few sets."""
    return Prepared(sa.update(threads).where(_THIS).values(**given(*columns)))


def _known(row: dict[str, Any]) -> KnownMessage:
    stored = message_from(row)
    return KnownMessage(
        seq=stored.seq,
        client_id=row["client_id"],
        message=None if stored.removed else stored.message,
        fingerprint=bytes.fromhex(row["fingerprint"]) if row["fingerprint"] else None,
    )


CREATE_TRIES: Final = 5
"""How often a thread is created anew where the memory that it joins is deleted at that moment."""


class ThreadRows:
    """Implements `ports.storage.Threads`."""

    def __init__(self, session: Session) -> None:
        self._session = session

    @property
    def _mine(self) -> sa.ColumnElement[bool]:
        return threads.c.tenant_id == self._session.tenant_id

    def lock(
        self, resource_id: str, external_id: str, *, client_ids: Sequence[str] = (), tail: int = 0
    ) -> LockedThread | None:
        if not self._session.reach.covers(resource_id, external_id):
            return None
        ids = list(client_ids) or None
        [(found,)] = self._session.hot(LOCK, (resource_id, external_id, ids, tail))
        if found is None:
            return None
        return LockedThread(
            snapshot=snapshot_from(found),
            known=tuple(_known(row) for row in found["known"] or ()),
            tail=tuple(TailRow(seq, bytes.fromhex(hexed), name) for seq, hexed, name in found["tail"] or ()),
            now=moment(found["now"]),  # type: ignore[arg-type]  # never null: clock_timestamp()
        )

    def append(
        self,
        thread: ThreadState,
        messages: Sequence[NewMessage],
        jobs: Sequence[NewJob],
        events: Sequence[NewEvent],
    ) -> tuple[JobRef, ...]:
        state = {
            "head_seq": thread.head_seq,
            "cut_seq": thread.cut_seq,
            "pending_tokens": thread.pending_tokens,
            "unbuffered_tokens": thread.unbuffered_tokens,
            "held_tokens": thread.held_tokens,
            "open_calls": open_calls_json(thread.open_calls),
            "turn": thread.turn,
            "turn_open": thread.turn_open,
            "question_seq": thread.question_seq,
            "last_model": thread.last_model,
            "idle_due_at": thread.idle_due_at.isoformat() if thread.idle_due_at else None,
            "early_activation": early_json(thread.early_activation),
        }
        [(refs,)] = self._session.hot(
            APPEND,
            (
                thread.id,
                dumps(state),
                dumps([message_params(new) for new in messages]),
                dumps([job_params(job) for job in jobs]) if jobs else None,
                dumps([event_params(event) for event in events]) if events else None,
            ),
        )
        return tuple(ref_from(row) for row in refs or ())

    def create(self, new: NewThread) -> bool:
        if not self._session.reach.covers(new.resource_id, new.external_id):
            # As for a thread that does not exist: whether it does is not the caller's business.
            msg = f"no thread {new.external_id!r} of resource {new.resource_id!r}"
            raise NotFoundError(msg)
        for _ in range(CREATE_TRIES):
            if self._created(new):
                return True
            if self.get(new.resource_id, new.external_id) is not None:
                return False
        msg = f"the memory of resource {new.resource_id!r} is being deleted: try again"
        raise ConflictError(msg)

    def _created(self, new: NewThread) -> bool:
        """One try: false where the thread exists, or where its memory was deleted between the two statements."""
        key = new.resource_id if new.scope == "resource" else f"{new.resource_id}/{new.external_id}"
        session = self._session
        session.execute(
            insert(memories)
            .values(tenant_id=session.tenant_id, scope=new.scope, scope_key=key, config=new.config)
            .on_conflict_do_nothing(index_elements=["tenant_id", "scope", "scope_key"])
        )
        row = {
            "tenant_id": session.tenant_id,
            "external_id": new.external_id,
            "resource_id": new.resource_id,
            "title": new.title,
            "metadata": new.metadata,
            "timezone": new.timezone,
        }
        values = [sa.cast(value, threads.c[name].type) for name, value in row.items()]
        # What other threads of the memory noted before stands in the log from the first context on.
        found = sa.select(*values, memories.c.id, memories.c.next_position - 1, memories.c.log_version)
        names = [*row, "memory_id", "shown_position", "shown_version"]
        mine = (memories.c.tenant_id == session.tenant_id, memories.c.scope == new.scope, memories.c.scope_key == key)
        created = session.first(
            # Locked, so that whoever deletes the memory has done it before this looks, or sees the thread.
            insert(threads)
            .from_select(names, found.where(*mine).with_for_update(read=True, key_share=True))
            .on_conflict_do_nothing(index_elements=["tenant_id", "resource_id", "external_id"])
            .returning(threads.c.id)
        )
        return created is not None

    def resources_of(self, external_id: str) -> tuple[str, ...]:
        rows = self._session.rows(
            sa.select(threads.c.resource_id)
            .where(self._mine, *within(self._session.reach), threads.c.external_id == external_id)
            .limit(2)
        )
        return tuple(row["resource_id"] for row in rows)

    def get(self, resource_id: str, external_id: str) -> ThreadState | None:
        row = self._session.first(
            sa.select(threads).where(
                self._mine,
                *within(self._session.reach),
                threads.c.resource_id == resource_id,
                threads.c.external_id == external_id,
            )
        )
        return None if row is None else thread_from(row)

    def get_by_id(self, thread_id: int) -> ThreadState | None:
        row = self._session.first(sa.select(threads).where(self._mine, threads.c.id == thread_id))
        return None if row is None else thread_from(row)

    def lock_by_id(self, thread_id: int) -> ThreadState | None:
        found = self._session.fetch(LOCK_BY_ID, tenant=self._session.tenant_id, thread=thread_id)
        return thread_from(found[0]) if found else None

    def update(self, thread_id: int, **changes: Any) -> None:
        if "hints" in changes:
            changes["hints"] = hints_json(changes["hints"])
        if "open_calls" in changes:
            changes["open_calls"] = open_calls_json(changes["open_calls"])
        if "early_activation" in changes:
            changes["early_activation"] = early_json(changes["early_activation"]) or None
        if "pins" in changes:
            changes["pins"] = list(changes["pins"])
        key = {"tenant": self._session.tenant_id, "thread": thread_id}
        self._session.later(_update(tuple(sorted(changes))), key | changes)

    def page(
        self, *, resource_id: str | None, cursor: str | None, limit: int, search: str | None = None
    ) -> Page[ThreadState]:
        after = decode_cursor(cursor)
        query = sa.select(threads).where(self._mine, *within(self._session.reach))
        query = query.order_by(threads.c.id.desc()).limit(limit + 1)
        if resource_id is not None:
            query = query.where(threads.c.resource_id == resource_id)
        if search is not None:
            places = (threads.c.external_id, threads.c.title, threads.c.resource_id)
            query = query.where(sa.or_(*(place.icontains(search, autoescape=True) for place in places)))
        if after is not None:
            query = query.where(threads.c.id < after)
        found = [thread_from(row) for row in self._session.rows(query)]
        more = len(found) > limit
        return Page(tuple(found[:limit]), encode_cursor(found[limit - 1].id) if more else None)
