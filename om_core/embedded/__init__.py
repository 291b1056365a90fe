"""A real Postgres and a real Redis from pip packages, for local use and tests.

One supervisor process per folder owns both servers. It stops them when the last client is gone, however it ended.
"""

from __future__ import annotations

from om_core.embedded.client import EmbeddedServers, attach, start, wait_stopped
from om_core.embedded.errors import EmbeddedUnavailable
from om_core.embedded.state import ServiceName, ServiceStatus, Status

__all__ = [
    "EmbeddedServers",
    "EmbeddedUnavailable",
    "ServiceName",
    "ServiceStatus",
    "Status",
    "attach",
    "start",
    "wait_stopped",
]
