"""Guards removed, each together with those that mask it: the fuzz has to notice (DESIGN 2, last paragraph).

A mutant replaces a piece of a function's source and puts the compiled result in its place. Nothing in the package
knows of it, and a guard that is written differently one day makes its mutant fail instead of testing nothing.
"""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib import import_module
from types import CodeType, FunctionType
from typing import Any, Final

import psycopg2.extensions
import sqlalchemy as sa

from om_core.store import jobs as job_store
from om_core.store.removal import RemovalRows
from om_core.store.tables import jobs

Guard = Callable[[psycopg2.extensions.connection], Any]


@dataclass(frozen=True, slots=True)
class Edit:
    """In this function, `old` becomes `new`."""

    where: str
    old: str
    new: str


@contextmanager
def edited(edits: Sequence[Edit]) -> Iterator[None]:
    """Within the block the functions behave as edited."""
    with ExitStack() as stack:
        for edit in edits:
            stack.enter_context(_replaced(edit))
        yield


@contextmanager
def _replaced(edit: Edit) -> Iterator[None]:
    module_name, _, name = edit.where.partition(":")
    module = import_module(module_name)
    original = getattr(module, name)
    source = textwrap.dedent(inspect.getsource(original))
    if edit.old not in source:
        msg = f"{edit.where} has no {edit.old!r} any more: the mutant has to follow the guard"
        raise AssertionError(msg)
    whole = compile("from __future__ import annotations\n" + source.replace(edit.old, edit.new), module_name, "exec")
    body = next(found for found in whole.co_consts if isinstance(found, CodeType) and found.co_name == name)
    changed = FunctionType(body, module.__dict__, name, original.__defaults__, original.__closure__)
    changed.__kwdefaults__ = original.__kwdefaults__
    setattr(module, name, changed)
    try:
        yield
    finally:
        setattr(module, name, original)


@contextmanager
def without_fence(_: psycopg2.extensions.connection) -> Iterator[None]:
    """Writes of a worker name the job, but neither its attempt nor its state."""
    loose = sa.and_(jobs.c.tenant_id == sa.bindparam("tenant"), jobs.c.id == sa.bindparam("job"))
    names = ("FIX", "SAVE", "COMPLETE")
    before = {name: getattr(job_store, name) for name in names}
    fenced = job_store.JobRows._fenced
    for name, prepared in before.items():
        statement = prepared._statement
        bare = sa.update(jobs).values(statement._values)
        setattr(job_store, name, type(prepared)(bare.where(loose)))

    def by_id(self: job_store.JobRows, job: Any) -> sa.ColumnElement[bool]:
        return sa.and_(self._mine, jobs.c.id == job.id)

    job_store.JobRows._fenced = by_id  # type: ignore[method-assign]  # this mutant
    try:
        yield
    finally:
        job_store.JobRows._fenced = fenced  # type: ignore[method-assign]  # this mutant
        for name, prepared in before.items():
            setattr(job_store, name, prepared)


@contextmanager
def without_cursor(_: psycopg2.extensions.connection) -> Iterator[None]:
    """A chunk is stored wherever the cursor stands by now."""
    old = "or thread.buffered_seq != chosen.messages[0].seq - 1"
    with edited([Edit("om_core.services.observe:_store", old, "")]):
        yield


@contextmanager
def without_range(admin: psycopg2.extensions.connection) -> Iterator[None]:
    """The database takes any ranges. Put back afterwards, without what a mutant left behind."""
    kept = (
        ("chunks_tile_fkey", "f"),
        ("chunks_tenant_id_thread_id_from_seq_key", "u"),
        ("chunks_tenant_id_thread_id_to_seq_key", "u"),
    )
    with admin.cursor() as cursor:
        cursor.execute(
            "SELECT conname, contype, pg_get_constraintdef(oid) FROM pg_constraint WHERE conrelid = 'chunks'::regclass"
            " AND (conname = 'chunks_tile_fkey' OR contype = 'u' AND pg_get_constraintdef(oid) LIKE '%seq%')"
            " ORDER BY contype"
        )
        found = cursor.fetchall()
        if len(found) != len(kept):
            raise AssertionError(f"the constraints of ranges are {found}")
        for name, _, _ in found:
            cursor.execute(f"ALTER TABLE chunks DROP CONSTRAINT {name}")
        try:
            yield
        finally:
            cursor.execute("TRUNCATE chunks RESTART IDENTITY CASCADE")
            for name, _, definition in reversed(found):
                cursor.execute(f"ALTER TABLE chunks ADD CONSTRAINT {name} {definition}")


@contextmanager
def without_version(_: psycopg2.extensions.connection) -> Iterator[None]:
    """A context stores its trim and its report, whatever the prefix has become meanwhile."""
    old = "current is None or current.prefix_version != thread.prefix_version"
    with edited([Edit("om_core.services.context:_store_shown", old, "current is None")]):
        yield


@contextmanager
def without_base(_: psycopg2.extensions.connection) -> Iterator[None]:
    """A reflection is stored and takes effect whatever it was based on."""
    stored = "rebased or tx.chunks.any_stale(memory.id, base.reflected_position, source.through)"
    used = "reflection is None or reflection.base_generation != memory.generation"
    with edited(
        [
            Edit("om_core.services.reflect:_store", stored, "False"),
            Edit("om_core.services.activate:_reflect", used, "reflection is None"),
        ]
    ):
        yield


@contextmanager
def without_shown_position(_: psycopg2.extensions.connection) -> Iterator[None]:
    """Notes of other threads enter the log of a thread at once."""
    old = "foreign and (chunk.position or 0) > shown_position"
    with edited([Edit("om_core.domain.assemble:_visible", old, "False")]):
        yield


@contextmanager
def without_cancelling(_: psycopg2.extensions.connection) -> Iterator[None]:
    """A removal lets workers finish what they hold."""
    kept = RemovalRows.cancel_jobs
    RemovalRows.cancel_jobs = lambda *_: ()  # type: ignore[method-assign]  # this mutant
    try:
        yield
    finally:
        RemovalRows.cancel_jobs = kept  # type: ignore[method-assign]  # this mutant


@contextmanager
def without_stale(_: psycopg2.extensions.connection) -> Iterator[None]:
    """A reflection reads past notes that are gone, and is stored over them."""
    checked = " or tx.chunks.any_stale(memory.id, base.reflected_position, source.through)"
    with edited(
        [
            Edit("om_core.services.reflect:_choose", "if chunk.stale", "if False"),
            Edit("om_core.services.reflect:_store", checked, ""),
        ]
    ):
        yield


MUTANTS: Final[Mapping[str, tuple[Guard, ...]]] = {
    "fence": (without_fence,),
    "cursor": (without_fence, without_cursor),
    "range": (without_fence, without_cursor, without_range),
    "version": (without_version,),
    "base_generation": (without_fence, without_base),
    "shown_position": (without_shown_position,),
    "removal": (without_cancelling,),
    "stale": (without_stale,),
}
"""Name of the guard: it, and what has to go with it, because it would hide its absence."""
THEMES: Final[Mapping[str, str]] = {
    "fence": "leases",
    "cursor": "leases",
    "range": "leases",
    "version": "readers",
    "base_generation": "leases",
    "shown_position": "readers",
    "removal": "everything",
    "stale": "removal",
}
"""The schedules that have much of what the guard is for."""
SHARED: Final = frozenset({"shown_position"})
"""Guards that only a memory of several threads needs."""


@contextmanager
def mutant(name: str, admin: psycopg2.extensions.connection) -> Iterator[None]:
    """Within the block these guards are gone."""
    with ExitStack() as stack:
        for guard in MUTANTS[name]:
            stack.enter_context(guard(admin))
        yield
