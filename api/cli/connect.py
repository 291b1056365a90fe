"""From settings to a `Memory`, for commands that join running servers (DESIGN 8: they never start any)."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from om_core.bootstrap import Located
    from om_core.config import Settings
    from om_core.memory import Memory

POOL_SIZE = 2
"""A command works alone; a replay also polls."""


@contextmanager
def joined(settings: Settings | None = None) -> Iterator[tuple[Settings, Located]]:
    """The settings, and the servers that run already; let go at the end.

    Raises:
        SetupError: a setting is wrong, or no server is named and none runs.
        EmbeddedUnavailable: the embedded ones cannot be joined.
    """
    from om_core.bootstrap import locate
    from om_core.config import load_settings

    settings = settings or load_settings()
    located = locate(settings, start_embedded=False)
    try:
        yield settings, located
    finally:
        located.close()


@contextmanager
def open_memory(tenant: str | None, *, ring: bool = False) -> Iterator[Memory]:
    """Memory of a tenant (None: the one that settings name) on the servers that run.

    Args:
        tenant: whose memory.
        ring: whether the command makes jobs due, so that workers are told at once. Reading needs no broker.
    """
    with joined() as (settings, located), memory_on(settings, located, tenant, ring=ring) as memory:
        yield memory


@contextmanager
def memory_on(settings: Settings, located: Located, tenant: str | None, *, ring: bool) -> Iterator[Memory]:
    """The same on servers that were found already."""
    from om_core.bootstrap import build_services, find_dispatcher
    from om_core.memory import Memory

    dispatcher = find_dispatcher(located.redis_url) if ring else None
    services = build_services(settings, located, dispatcher=dispatcher, pool_size=POOL_SIZE)
    closing = [services.store.close] if dispatcher is None else [dispatcher.close, services.store.close]
    with Memory(services, tenant or settings.tenant, on_close=closing) as memory:
        yield memory
