"""What a removal leaves alone: each test is a way in which systems of this kind deleted too little, or everybody's data."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
import sqlalchemy as sa

from om_core.config.urls import normalise_database_url
from om_core.domain.errors import NotFoundError
from tests.support.jobs import work_off

if TYPE_CHECKING:
    from om_core.memory import Memory

TENANTS, OWNERS, THREADS = ("one", "two"), ("a", "b"), ("t", "u")
KEPT = {"usage": "what was paid for stays on the account of the resource until the resource is deleted"}
"""Tables whose rows outlive the thread they name."""


def everything(url: str) -> dict[str, set[str]]:
    """Every row of every table, as the owner of the database reads it. Of events about documents not their words: a
    removal takes those from all threads of the resource (decision 45).
    """
    engine = sa.create_engine(normalise_database_url(url), poolclass=sa.NullPool)
    with engine.connect() as connection:
        tables = sa.inspect(connection).get_table_names()
        found = {
            table: {
                _comparable(row[0]) for row in connection.execute(sa.text(f'SELECT row_to_json(x) FROM "{table}" x'))
            }
            for table in tables
        }
    engine.dispose()
    return found


def _comparable(row: dict[str, Any]) -> str:
    dropped = {"payload"} if row.get("type") == "data-om-working-memory" else set()
    return json.dumps({name: value for name, value in row.items() if name not in dropped}, sort_keys=True)


def belongs(table: str, row: dict[str, Any], thread: int, memory: int) -> bool:
    """Whether a row is one of the thread, or of the log that only this thread has."""
    own = {"threads": thread, "memories": memory}
    if table in own:
        return bool(row["id"] == own[table])
    in_scope = row.get("scope") == "thread" and row.get("scope_key") == str(thread)
    return row.get("thread_id") == thread or row.get("memory_id") == memory or in_scope


@pytest.mark.report("P01", "P06")
def test_a_deletion_takes_all_rows_of_its_thread_and_no_other_row_of_any_table(
    memory: Memory, database_url: str
) -> None:
    for tenant in TENANTS:
        mine = memory.for_tenant(tenant)
        for owner in OWNERS:
            for name in THREADS:
                for number in range(14):
                    text = f"On 3 May 2026 {owner} asked Berlin for {number} boxes of kind {name}. " * 6
                    mine.append(name, [{"role": "user", "content": text}], resource=owner)
                mine.set_working_memory(f"# {owner} {name}", thread=name, resource=owner)
        work_off(mine.services)
        for owner in OWNERS:
            for name in THREADS:
                mine.activate(name, resource=owner)
    mine = memory.for_tenant("one")
    found = mine.get_thread("t", resource="a")
    before = everything(database_url)

    mine.delete_thread("t", resource="a")

    after = everything(database_url)
    named = {
        table: {row for row in rows if belongs(table, json.loads(row), found.id, found.memory_id)}
        for table, rows in before.items()
    }
    filled = {table for table, rows in named.items() if rows}
    assert {"threads", "memories", "messages", "chunks", "jobs", "events", "usage", "working_memory"} <= filled
    for table, rows in before.items():
        gone = set() if table in KEPT else named[table]
        assert after[table] == rows - gone, table
    with pytest.raises(NotFoundError):
        mine.get_thread("t", resource="a")
