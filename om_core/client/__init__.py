"""`Memory` over HTTP, for any process that reaches the API (API 5). Needs nothing but httpx."""

from __future__ import annotations

from om_core.client.asynchronous import AsyncMemoryClient
from om_core.client.synchronous import MemoryClient
from om_core.client.transport import ApiError

__all__ = ["ApiError", "AsyncMemoryClient", "MemoryClient"]
