"""Which right each route needs. A route that is not listed is refused to every key that is less than a whole tenant's.

`none` asks for no key, `read` is open to all keys, `write` to those that may write, `admin` to those of a whole tenant
that may write. A key that is narrowed finds only what is within its reach (`om_core.domain.reach`), on whatever route.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class Right(StrEnum):
    """What a request needs of its key."""

    NONE = "none"
    READ = "read"
    WRITE = "write"
    ADMIN = "admin"


_THREAD: Final = "/v1/threads/{thread}"
_RESOURCE: Final = "/v1/resources/{resource}"
_PAGE: Final = "/threads/{thread}"

_NONE: Final = (
    *("GET /healthz", "GET /readyz", "GET /metrics", "GET /openapi.json", "GET /docs", "GET /docs/oauth2-redirect"),
    *("GET /login", "POST /login", "GET /static"),
)
_READ: Final = (
    *("GET /v1/threads", f"GET {_THREAD}", f"GET {_THREAD}/status", f"GET {_THREAD}/messages"),
    *(f"GET {_THREAD}/context", f"GET {_THREAD}/observations", f"GET {_THREAD}/reflections"),
    f"GET {_THREAD}/reflections/{{generation}}",
    # Read-only for a key that may only read: it activates, waits for and stores nothing.
    f"POST {_THREAD}/context",
    *(f"GET {_THREAD}/events", "GET /v1/events", "GET /v1/jobs", "GET /v1/jobs/{job_id}", "GET /v1/tools"),
    "GET /v1/models",
    *("GET /v1/usage", f"GET {_RESOURCE}/usage"),
    *(f"GET {_THREAD}/working-memory", f"GET {_RESOURCE}/working-memory"),
    # The dashboard, by its session.
    *("GET /", f"GET {_PAGE}", f"GET {_PAGE}/now", f"GET {_PAGE}/context", f"GET {_PAGE}/log", "GET /jobs"),
    *(f"GET {_PAGE}/reflections", f"GET {_PAGE}/messages", f"GET {_PAGE}/live", "GET /workers", "GET /invariants"),
    *("GET /usage", "GET /usage.csv"),
    "POST /logout",
)
_WRITE: Final = (
    # The gateways: a model call costs money, and the turn is stored.
    *("POST /v1/chat/completions", "POST /v1/messages"),
    *(f"PUT {_THREAD}", f"POST {_THREAD}/messages"),
    *(f"POST {_THREAD}/observe", f"POST {_THREAD}/reflect", f"POST {_THREAD}/activate", f"POST {_THREAD}/flush"),
    *(f"DELETE {_THREAD}", f"DELETE {_THREAD}/messages/{{message}}", f"POST {_THREAD}/rewind", f"POST {_THREAD}/clone"),
    *(f"POST {_THREAD}/reflections/{{generation}}/restore", f"DELETE {_RESOURCE}"),
    *(f"PUT {_THREAD}/working-memory", f"POST {_THREAD}/working-memory", f"PUT {_RESOURCE}/working-memory"),
    *("POST /v1/jobs/{job_id}/retry", "POST /v1/jobs/{job_id}/cancel", "POST /v1/jobs/retry"),
    *(f"POST {_PAGE}/do/{{action}}", "POST /jobs/{job_id}/{action}", "POST /retry-discarded"),
)
_ADMIN: Final = (
    *("GET /v1/keys", "POST /v1/keys", "DELETE /v1/keys/{key_id}"),
    *("GET /v1/webhooks", "POST /v1/webhooks", "DELETE /v1/webhooks/{webhook_id}"),
    "GET /v1/webhooks/{webhook_id}/deliveries",
)

RIGHTS: Final = {
    **dict.fromkeys(_NONE, Right.NONE),
    **dict.fromkeys(_READ, Right.READ),
    **dict.fromkeys(_WRITE, Right.WRITE),
    **dict.fromkeys(_ADMIN, Right.ADMIN),
}


def right_of(method: str, path: str) -> Right:
    """The right for a method and a path template."""
    return RIGHTS.get(f"{method} {path}", Right.ADMIN)
