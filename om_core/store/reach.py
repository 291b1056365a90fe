"""Conditions that keep a narrowed caller to what is within reach."""

from __future__ import annotations

from typing import TYPE_CHECKING

import sqlalchemy as sa

from om_core.store.tables import threads

if TYPE_CHECKING:
    from om_core.domain.reach import Reach
    from om_core.store.session import Session


def within(reach: Reach) -> tuple[sa.ColumnElement[bool], ...]:
    """Conditions on rows of `threads`; none where everything of the tenant is within reach."""
    if not reach.narrowed:
        return ()
    mine = (threads.c.resource_id == reach.resource,)
    return mine if reach.thread is None else (*mine, threads.c.external_id == reach.thread)


def of_threads_within(
    session: Session, thread_id: sa.Column[int], resource_id: str | None = None
) -> tuple[sa.ColumnElement[bool], ...]:
    """Conditions on rows that name a thread by `thread_id`; with a resource only those of its threads."""
    if not session.reach.narrowed and resource_id is None:
        return ()
    found = sa.select(threads.c.id).where(threads.c.tenant_id == session.tenant_id, *within(session.reach))
    return (thread_id.in_(found if resource_id is None else found.where(threads.c.resource_id == resource_id)),)
