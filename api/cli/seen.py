"""Whether a worker process has reported to the database."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from om_core.ports import Store

SEEN_S = 60.0


def worker_seen(store: Store, pid: int) -> bool:
    """Whether the worker of this process id, on this machine, has written a heartbeat (`host:pid:…`)."""
    return any(f":{pid}:" in row.name for row in store.system.workers(max_age_s=SEEN_S))
