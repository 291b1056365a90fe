"""The loop that delivers: in every worker process, each webhook claimed by one of them at a time."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final

from om_core.outgoing import PublicSender
from om_core.services.webhooks import LEASE_S, deliver
from om_core.telemetry import described, get_logger

if TYPE_CHECKING:
    from om_core.services.deps import Services

log = get_logger("om.webhooks")
CLAIMED: Final = 8
"""Webhooks that one round takes; they are served one after the other."""


class WebhookLoop:
    """One thread. `allow_private`: receivers may have addresses of this host's own networks."""

    def __init__(self, services: Services, *, period_s: float, allow_private: bool = False) -> None:
        self._services = services
        self._period_s = period_s
        self._sender = PublicSender(allow_private=allow_private)
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin in a thread of its own."""
        self._thread = threading.Thread(target=self._run, name="om-webhooks", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End after the request under way."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(timeout=5)
        self._sender.close()

    def deliver_once(self) -> int:
        """One round; how many events receivers took."""
        found = self._services.store.system.due_webhooks(lease_s=LEASE_S, limit=CLAIMED)
        taken = 0
        for tenant, webhook_id in found:
            if self._stop.is_set():
                break
            taken += deliver(self._services, tenant, webhook_id, self._sender)
        return taken

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                busy = self.deliver_once() > 0
            except Exception as error:  # the database is away: the next round tries again
                log.warning("webhooks failed", **described(error))
                busy = False
            if not busy:
                self._stop.wait(self._period_s)
