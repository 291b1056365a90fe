"""Webhooks: who is told of events, and what became of each delivery."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from datetime import datetime

    from om_core.ports.records import Page


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookRow:
    """A receiver. Events are sent in order; `position` is the id of the last one that was taken."""

    id: int
    url: str
    secret: str
    types: tuple[str, ...]
    """Only these types; empty: all."""
    resource_id: str | None
    """Only this resource; None: the whole tenant."""
    position: str
    failures: int
    """Attempts in a row that failed."""
    due_at: datetime
    """When the next attempt may be; while a worker delivers, when it is taken for dead."""
    last_error: str | None
    created_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class NewDelivery:
    """One attempt. `status` is the receiver's answer, None if there was none."""

    event_id: str
    type: str
    attempt: int
    status: int | None
    error: str | None
    duration_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryRow(NewDelivery):
    """One attempt, as it is kept."""

    id: int
    created_at: datetime


class Webhooks(Protocol):
    """Webhooks of a tenant."""

    def add(self, *, url: str, secret: str, types: tuple[str, ...], resource_id: str | None) -> WebhookRow:
        """Store one that begins with what happens from now on."""

    def get(self, webhook_id: int) -> WebhookRow | None: ...

    def page(self, *, cursor: str | None, limit: int) -> Page[WebhookRow]: ...

    def count(self) -> int: ...

    def remove(self, webhook_id: int) -> bool:
        """Delete it with its deliveries."""

    def deliveries(self, webhook_id: int, *, cursor: str | None, limit: int) -> Page[DeliveryRow]:
        """Attempts, newest first."""

    def conclude(
        self,
        webhook: WebhookRow,
        *,
        position: str,
        failures: int,
        error: str | None,
        pause_s: float,
        log: tuple[NewDelivery, ...],
    ) -> bool:
        """Store what came of a claimed webhook's deliveries; False: another worker has claimed it meanwhile."""
