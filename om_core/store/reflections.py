"""Reflection rows: every generation of a memory is kept."""

from __future__ import annotations

from typing import TYPE_CHECKING

import sqlalchemy as sa

from om_core.domain.chunk import ReflectionState
from om_core.domain.generations import SourceRange
from om_core.ports import Page
from om_core.store.cursors import decode_cursor, encode_cursor
from om_core.store.rows import reflection_from
from om_core.store.tables import chunks, reflections, threads

if TYPE_CHECKING:
    from om_core.domain.chunk import Reflection
    from om_core.domain.message import JsonObject
    from om_core.ports import NewReflection
    from om_core.store.session import Session


class ReflectionRows:
    """Implements `ports.storage.Reflections`."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def _of(self, memory_id: int) -> sa.ColumnElement[bool]:
        return sa.and_(reflections.c.tenant_id == self._session.tenant_id, reflections.c.memory_id == memory_id)

    def add(self, reflection: NewReflection) -> None:
        new = reflection
        self._session.execute(
            sa.insert(reflections).values(
                tenant_id=self._session.tenant_id,
                memory_id=new.memory_id,
                generation=new.generation,
                base_generation=new.base_generation,
                through_position=new.through_position,
                state=new.state.value,
                text=new.text,
                tokens=new.tokens,
                input_tokens=new.input_tokens,
                job_id=new.job_id,
                attempt=new.attempt,
                level=new.level,
                model=new.model,
                prompt_version=new.prompt_version,
                cost_usd=new.cost_usd,
                extracted=new.extracted,
            )
        )

    def get(self, memory_id: int, generation: int) -> Reflection | None:
        row = self._session.first(
            sa.select(reflections).where(self._of(memory_id), reflections.c.generation == generation)
        )
        return None if row is None else reflection_from(row)

    def set_extracted(self, memory_id: int, generation: int, values: JsonObject) -> None:
        self._session.execute(
            sa.update(reflections)
            .where(self._of(memory_id), reflections.c.generation == generation)
            .values(extracted=values)
        )

    def last_generation(self, memory_id: int) -> int:
        return int(
            self._session.scalar(
                sa.select(sa.func.coalesce(sa.func.max(reflections.c.generation), 0)).where(self._of(memory_id))
            )
        )

    def set_state(self, memory_id: int, generation: int, state: ReflectionState) -> None:
        values: dict[str, object] = {"state": state.value}
        if state is ReflectionState.ACTIVE:
            values["activated_at"] = sa.func.clock_timestamp()
        self._session.execute(
            sa.update(reflections).where(self._of(memory_id), reflections.c.generation == generation).values(**values)
        )

    def sources(self, memory_id: int, after_position: int, through_position: int) -> tuple[SourceRange, ...]:
        rows = self._session.rows(
            sa.select(
                threads.c.external_id,
                sa.func.min(chunks.c.from_seq).label("from_seq"),
                sa.func.max(chunks.c.to_seq).label("to_seq"),
                sa.func.count().label("chunks"),
            )
            .join(threads, sa.and_(threads.c.tenant_id == chunks.c.tenant_id, threads.c.id == chunks.c.thread_id))
            .where(
                chunks.c.tenant_id == self._session.tenant_id,
                chunks.c.memory_id == memory_id,
                chunks.c.position > after_position,
                chunks.c.position <= through_position,
            )
            .group_by(threads.c.id, threads.c.external_id)
            .order_by(sa.func.min(chunks.c.position))
        )
        return tuple(
            SourceRange(thread=row["external_id"], from_seq=row["from_seq"], to_seq=row["to_seq"], chunks=row["chunks"])
            for row in rows
        )

    def page(self, memory_id: int, *, cursor: str | None, limit: int) -> Page[Reflection]:
        before = decode_cursor(cursor)
        query = (
            sa.select(reflections).where(self._of(memory_id)).order_by(reflections.c.generation.desc()).limit(limit + 1)
        )
        if before is not None:
            query = query.where(reflections.c.generation < before)
        found = [reflection_from(row) for row in self._session.rows(query)]
        more = len(found) > limit
        return Page(tuple(found[:limit]), encode_cursor(found[limit - 1].generation) if more else None)
