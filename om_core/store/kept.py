"""Working memory and extracted values: what is kept beside the notes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from om_core.domain.errors import NotFoundError
from om_core.domain.working_memory import VERSIONS_KEPT
from om_core.ports import Kept
from om_core.store.prepared import Prepared, given
from om_core.store.rows import extraction_from, other_from, reflection_from, working_memory_from
from om_core.store.tables import chunks
from om_core.store.tables_service import extractions, working_memory

if TYPE_CHECKING:
    from om_core.domain.extraction import Extraction
    from om_core.domain.thread import MemoryState, ThreadState
    from om_core.domain.working_memory import WorkingMemory
    from om_core.store.session import Session

_DOCUMENT = sa.and_(
    working_memory.c.tenant_id == sa.bindparam("tenant_id"),
    working_memory.c.scope == sa.bindparam("scope"),
    working_memory.c.scope_key == sa.bindparam("scope_key"),
)
LATEST = Prepared(
    sa.select(working_memory).where(_DOCUMENT).order_by(working_memory.c.version.desc()).limit(sa.literal_column("1"))
)
_CHUNK = (
    sa.select(chunks.c.id)
    .where(
        chunks.c.tenant_id == sa.bindparam("tenant_id"),
        chunks.c.thread_id == sa.bindparam("thread_id"),
        chunks.c.from_seq == sa.bindparam("from_seq"),
    )
    .scalar_subquery()
)
"""The chunk over a range: when a value is written with its chunk, that has no id yet that anybody knows."""
ADD = Prepared(
    insert(working_memory)
    .values(
        **given("tenant_id", "scope", "scope_key", "version", "format", "content", "source", "base_version"),
        **given("thread_id", "job_id", "from_seq", "to_seq", "created_at"),
        chunk_id=_CHUNK,
    )
    .on_conflict_do_nothing()
    .inline()
)
FORGET = Prepared(sa.delete(working_memory).where(_DOCUMENT, working_memory.c.version <= sa.bindparam("oldest")))

_NEW = insert(extractions).values(
    **given("tenant_id", "memory_id", "slug", "value", "signal", "error", "thread_id", "generation", "job_id"),
    **given("from_seq", "to_seq"),
    chunk_id=_CHUNK,
)
_KEY = ["tenant_id", "memory_id", "slug"]
_NEWER = sa.or_(
    extractions.c.chunk_id.is_(None),
    _NEW.excluded.chunk_id.is_(None),
    extractions.c.chunk_id <= _NEW.excluded.chunk_id,
)
"""A value of an older range, made late, does not replace that of a newer one."""
KEEP = Prepared(
    _NEW.on_conflict_do_update(
        index_elements=_KEY,
        set_={
            **{
                name: _NEW.excluded[name]
                for name in (
                    *("signal", "error", "thread_id", "chunk_id", "generation", "job_id"),
                    *("from_seq", "to_seq"),
                )
            },
            "value": sa.func.coalesce(_NEW.excluded.value, extractions.c.value),
            "updated_at": sa.func.clock_timestamp(),
        },
        where=_NEWER,
    ).inline()
)
FAIL = Prepared(
    _NEW.on_conflict_do_update(
        index_elements=_KEY,
        set_={"error": _NEW.excluded.error, "updated_at": sa.func.clock_timestamp()},
        where=_NEWER,
    ).inline()
)


class WorkingMemoryRows:
    """Implements `ports.storage.WorkingMemories`."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def latest(self, scope: str, scope_key: str) -> WorkingMemory | None:
        # A thread was found within reach before; a resource is named by the caller.
        if scope == "resource" and not self._session.reach.covers(scope_key, self._session.reach.thread or ""):
            msg = f"no resource {scope_key!r}"
            raise NotFoundError(msg)
        found = self._session.fetch(LATEST, tenant_id=self._session.tenant_id, scope=scope, scope_key=scope_key)
        return working_memory_from(found[0]) if found else None

    def add(self, new: WorkingMemory) -> bool:
        key = {"tenant_id": self._session.tenant_id, "scope": new.scope, "scope_key": new.scope_key}
        added = self._session.change(
            ADD,
            **key,
            version=new.version,
            format=new.format,
            content=new.content,
            source=new.source,
            base_version=new.base_version,
            thread_id=new.thread_id,
            job_id=new.job_id,
            from_seq=new.from_seq,
            to_seq=new.to_seq,
            created_at=new.created_at,
        )
        if added and new.version > VERSIONS_KEPT:
            self._session.later(FORGET, {**key, "oldest": new.version - VERSIONS_KEPT})
        return added == 1


class ExtractionRows:
    """Implements `ports.storage.Extractions`."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def put(self, memory_id: int, new: Extraction) -> None:
        self._session.later(
            KEEP if new.error is None else FAIL,
            {
                "tenant_id": self._session.tenant_id,
                "memory_id": memory_id,
                "slug": new.slug,
                "value": new.value,
                "signal": new.signal,
                "error": new.error,
                "thread_id": new.thread_id,
                "generation": new.generation,
                "job_id": new.job_id,
                "from_seq": new.from_seq,
                "to_seq": new.to_seq,
            },
        )


def read_kept(session: Session, thread: ThreadState, memory: MemoryState, *, others: int) -> Kept:
    """What stands beside the log and the messages, in one statement."""
    others = others if memory.scope == "resource" else 0
    [(found,)] = session.hot(
        "SELECT om_kept_v1(%s, %s, %s, %s, %s)",
        (thread.id, thread.resource_id, memory.id, memory.generation, others),
    )
    return Kept(
        reflection=reflection_from(found["reflection"]) if found["reflection"] else None,
        working_memory=tuple(working_memory_from(row) for row in found["working_memory"] or ()),
        extractions=tuple(extraction_from(row) for row in found["extractions"] or ()),
        others=tuple(map(other_from, found["others"] or ())),
    )
