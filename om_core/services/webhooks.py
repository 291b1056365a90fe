"""Webhooks: events sent to a receiver's address, signed, in order, at least once (API 3).

Signatures follow the Standard Webhooks specification, for which there are libraries in most languages. The message id
is the event's, so a receiver recognises what it was sent twice.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import random  # jitter of the pauses
import secrets
from dataclasses import replace
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from om_core.domain.errors import ConflictError, InvalidInputError, NotFoundError, RetryLaterError
from om_core.ports.webhooks import NewDelivery
from om_core.services.deps import optional_iso

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from om_core.domain.message import JsonObject
    from om_core.ports import EventRow, Page
    from om_core.ports.webhooks import DeliveryRow, WebhookRow
    from om_core.services.deps import Services

    Sender = Callable[[str, bytes, Mapping[str, str]], int]
    """Posts a body with headers to a URL; the status. Raises as `outgoing.PublicSender`."""

MOST: Final = 20
"""Webhooks of one tenant."""
URL_LENGTH: Final = 2_000
BATCH: Final = 50
"""Events sent by one claim."""
LEASE_S: Final = 120.0
"""How long a claim holds; a batch is cut short well before."""
MOST_S: Final = 60.0
PAUSES_S: Final = (5.0, 30.0, 120.0, 600.0, 3_600.0)
"""After so many failures in a row; the last one repeats. What was not taken by then goes with the events' retention."""
SECRET_PREFIX: Final = "whsec_"
TYPES: Final = (
    "data-om-activation",
    "data-om-buffering-end",
    "data-om-buffering-failed",
    "data-om-buffering-start",
    "data-om-observation-end",
    "data-om-observation-failed",
    "data-om-observation-start",
    "data-om-thread-update",
)


def create_webhook(
    services: Services, tenant: str, *, url: str, types: tuple[str, ...] = (), resource: str | None = None
) -> WebhookRow:
    """Have events sent to an address from now on.

    Raises:
        InvalidInputError: the address is no https (or http) URL without credentials, or a type is unknown.
        ConflictError: the tenant has the most it may have.
    """
    check_url(url)
    if unknown := sorted(set(types) - set(TYPES)):
        raise InvalidInputError(f"unknown type {unknown[0]!r}; known are {', '.join(TYPES)}", path="types")
    secret = SECRET_PREFIX + base64.b64encode(secrets.token_bytes(24)).decode()
    with services.store.transaction(tenant) as tx:
        if tx.webhooks.count() >= MOST:
            raise ConflictError(f"a tenant has at most {MOST} webhooks; delete one first")
        return tx.webhooks.add(url=url, secret=secret, types=types, resource_id=resource)


def check_url(url: str) -> None:
    """Refuse what is no address of a receiver; whom its name stands for is checked at each delivery.

    Raises:
        InvalidInputError: saying what is wrong.
    """
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise InvalidInputError(f"not a URL: {error}", path="url") from None
    if parts.scheme not in {"http", "https"} or not parts.hostname or len(url) > URL_LENGTH or not url.isprintable():
        raise InvalidInputError(f"an http or https URL of at most {URL_LENGTH} characters is expected", path="url")
    if parts.username or parts.password:
        raise InvalidInputError("must not hold a user name or password; check the signature instead", path="url")
    if port == 0:
        raise InvalidInputError("port 0 is no port", path="url")


def list_webhooks(services: Services, tenant: str, *, cursor: str | None, limit: int) -> Page[WebhookRow]:
    """Webhooks, newest first."""
    with services.store.reading(tenant) as tx:
        return tx.webhooks.page(cursor=cursor, limit=limit)


def delete_webhook(services: Services, tenant: str, webhook_id: int) -> None:
    """Send nothing more, and forget the deliveries.

    Raises:
        NotFoundError: this tenant has no such webhook.
    """
    with services.store.transaction(tenant) as tx:
        if not tx.webhooks.remove(webhook_id):
            raise NotFoundError(f"no webhook {webhook_id}")


def list_deliveries(
    services: Services, tenant: str, webhook_id: int, *, cursor: str | None, limit: int
) -> Page[DeliveryRow]:
    """The newest attempts of a webhook, newest first.

    Raises:
        NotFoundError: this tenant has no such webhook.
    """
    with services.store.reading(tenant) as tx:
        if tx.webhooks.get(webhook_id) is None:
            raise NotFoundError(f"no webhook {webhook_id}")
        return tx.webhooks.deliveries(webhook_id, cursor=cursor, limit=limit)


def deliver(services: Services, tenant: str, webhook_id: int, send: Sender) -> int:
    """Send what a claimed webhook has not got yet, up to a batch; how many events it took.

    No transaction is open while the receiver is waited for. A worker that dies in between leaves the webhook to be
    claimed again after its lease, and the receiver sees some events twice.
    """
    with services.store.reading(tenant) as tx:
        webhook = tx.webhooks.get(webhook_id)
        if webhook is None:
            return 0
        rows = tx.events.after(thread_id=None, resource_id=webhook.resource_id, last_id=webhook.position, limit=BATCH)
    clock = services.clock
    deadline = clock.monotonic() + MOST_S
    position, log, error, failures = webhook.position, [], None, webhook.failures
    for row in rows:
        if webhook.types and row.type not in webhook.types:
            position = row.id
            continue
        if clock.monotonic() >= deadline:
            break
        attempt = send_once(
            replace(webhook, failures=failures),
            row,
            send,
            now_s=int(clock.now().timestamp()),
            monotonic=clock.monotonic,
        )
        log.append(attempt)
        error = attempt.error
        if error is not None:
            failures += 1
            break
        position, failures = row.id, 0
    with services.store.transaction(tenant) as tx:
        tx.webhooks.conclude(
            webhook,
            position=position,
            failures=failures,
            error=error,
            pause_s=0.0 if error is None else pause_after(failures),
            log=tuple(log),
        )
    return sum(item.error is None for item in log)


def pause_after(failures: int) -> float:
    """Seconds until the next attempt."""
    pause = PAUSES_S[min(failures, len(PAUSES_S)) - 1]
    return pause * random.uniform(0.8, 1.2)


def send_once(
    webhook: WebhookRow, row: EventRow, send: Sender, *, now_s: int, monotonic: Callable[[], float]
) -> NewDelivery:
    """One attempt; anything but a 2xx answer is a failure."""
    body = json.dumps(event_body(row), ensure_ascii=False, separators=(",", ":")).encode()
    headers = {"Content-Type": "application/json", **signed(webhook.secret, row.id, now_s, body)}
    started = monotonic()
    status, error = None, None
    try:
        status = send(webhook.url, body, headers)
    except (InvalidInputError, RetryLaterError) as failure:
        error = str(failure)[:500]
    if status is not None and not 200 <= status < 300:
        error = f"the receiver answered {status}"
    return NewDelivery(
        event_id=row.id,
        type=row.type,
        attempt=webhook.failures + 1,
        status=status,
        error=error,
        duration_ms=round(1000 * (monotonic() - started)),
    )


def event_body(row: EventRow) -> JsonObject:
    """What a receiver gets."""
    return {"type": row.type, "timestamp": optional_iso(row.created_at), "data": row.payload}


def signed(secret: str, message_id: str, now_s: int, body: bytes) -> dict[str, str]:
    """The headers of the Standard Webhooks specification: HMAC-SHA256 over id, time and body."""
    key = base64.b64decode(secret.removeprefix(SECRET_PREFIX))
    signature = hmac.new(key, f"{message_id}.{now_s}.".encode() + body, hashlib.sha256).digest()
    return {
        "webhook-id": message_id,
        "webhook-timestamp": str(now_s),
        "webhook-signature": f"v1,{base64.b64encode(signature).decode()}",
    }


def webhook_view(row: WebhookRow) -> JsonObject:
    """A webhook as lists show it: without its secret."""
    return {
        "id": row.id,
        "url": row.url,
        "types": list(row.types),
        "resource_id": row.resource_id,
        "position": row.position,
        "failures": row.failures,
        "last_error": row.last_error,
        "due_at": optional_iso(row.due_at),
        "created_at": optional_iso(row.created_at),
    }


def delivery_view(row: DeliveryRow) -> JsonObject:
    """An attempt."""
    return {
        "id": row.id,
        "event_id": row.event_id,
        "type": row.type,
        "attempt": row.attempt,
        "status": row.status,
        "error": row.error,
        "duration_ms": row.duration_ms,
        "created_at": optional_iso(row.created_at),
    }
