"""How often a key may be used: a token bucket per key in Redis, shared by all processes of the API.

Without Redis nothing is limited: the limit protects the service from a client that runs wild, and must not become the
reason why a turn fails (DESIGN 2.4).
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Any, Final

from om_core.telemetry import described

if TYPE_CHECKING:
    from om_core.ports import Clock

log = logging.getLogger("om.api")
TIMEOUT_S: Final = 0.2
"""Longest wait for Redis; a request never waits longer for its limit."""
PAUSE_S: Final = 5.0
"""After a failure Redis is left alone for so long."""

TAKE: Final = """
local rate, burst = tonumber(ARGV[1]), tonumber(ARGV[2])
local clock = redis.call('TIME')
local now = clock[1] + clock[2] / 1000000
local kept = redis.call('HMGET', KEYS[1], 'tokens', 'at')
local tokens = tonumber(kept[1]) or burst
local at = tonumber(kept[2]) or now
tokens = math.min(burst, tokens + math.max(0, now - at) * rate)
local wait = 0
if tokens >= 1 then tokens = tokens - 1 else wait = (1 - tokens) / rate end
redis.call('HSET', KEYS[1], 'tokens', tostring(tokens), 'at', string.format('%.6f', now))
redis.call('PEXPIRE', KEYS[1], math.ceil(burst / rate * 1000) + 1000)
return tostring(wait)
"""
"""By the clock of Redis: those of several machines differ."""


class Rates:
    """Takes one token per request.

    Args:
        redis_url: as in OM_REDIS_URL; None: nothing is limited.
        per_s: requests per second of one key; 0: nothing is limited.
        burst: requests that may come at once after a pause.
        clock: for the pause after a failure.
    """

    def __init__(self, redis_url: str | None, *, per_s: float, burst: int, clock: Clock) -> None:
        self._redis_url = redis_url if per_s > 0 else None
        self._per_s = per_s
        self._burst = burst
        self._clock = clock
        self._lock = threading.Lock()
        self._take: Any = None
        self._connection: Any = None
        self._again_at = 0.0

    @property
    def words(self) -> str:
        """The limit, for people."""
        return f"{self._per_s:g} requests per second (OM_RATE_LIMIT), or {self._burst} at once (OM_RATE_BURST)"

    def take(self, key: bytes) -> float | None:
        """Count one request of a key, by its hash.

        Returns:
            None if it may go on, else seconds until the next one may.
        """
        if self._redis_url is None or self._clock.monotonic() < self._again_at:
            return None
        try:
            wait_s = float(self._script()(keys=[f"om:rate:{key.hex()}"], args=[self._per_s, self._burst]))
        except Exception as error:  # whatever Redis has: requests go on without a limit
            self._again_at = self._clock.monotonic() + PAUSE_S
            log.warning("requests are not limited, Redis cannot be asked: %s", described(error))
            return None
        return wait_s or None

    def close(self) -> None:
        """Drop the connection."""
        with self._lock:
            if self._connection is not None:
                self._connection.close()
            self._connection = self._take = None

    def _script(self) -> Any:
        """The script on a pool of connections; kombu knows every form of URL that the broker may have."""
        with self._lock:
            if self._take is None:
                from kombu import Connection

                limits = {"socket_timeout": TIMEOUT_S, "socket_connect_timeout": TIMEOUT_S, "max_connections": 64}
                self._connection = Connection(self._redis_url or "", transport_options=limits)
                self._connection.ensure_connection(max_retries=0)
                self._take = self._connection.default_channel.client.register_script(TAKE)
            return self._take
