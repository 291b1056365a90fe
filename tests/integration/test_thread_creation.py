"""A thread that joins a memory of which the last other thread is being deleted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from om_core.memory import Memory
from om_core.store.session import Session

if TYPE_CHECKING:
    import pytest

    from om_core.services.deps import Services


def test_a_thread_joins_a_memory_that_is_deleted_at_that_moment(
    services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = Memory(services)
    memory.put_thread("old", resource="r", scope="resource")
    execute = Session.execute
    deleted: list[str] = []

    def deleting(self: Session, statement: Any, params: Any = None) -> Any:
        found = execute(self, statement, params)
        if "INSERT INTO memories" in str(statement) and not deleted:
            deleted.append("old")
            memory.delete_thread("old", resource="r")
        return found

    monkeypatch.setattr(Session, "execute", deleting)
    memory.put_thread("new", resource="r", scope="resource")

    assert deleted == ["old"]
    assert [thread.external_id for thread in memory.threads().items] == ["new"]
    memory.append("new", [{"role": "user", "content": "hello"}], resource="r")
    assert len(memory.messages("new", resource="r")) == 1
