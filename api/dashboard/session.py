"""Who looks at the dashboard: a session cookie made from an API key at login.

The cookie names the key, its own end, and an HMAC over both with the stored hash of the key. So it opens nothing but
the dashboard, does not show the key, needs no store of sessions, and is worthless as soon as the key is revoked.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from api.access import DEFAULT_TENANT, Access
from om_core.services.keys import digest

if TYPE_CHECKING:
    from datetime import datetime

    from om_core.ports import FoundKey, Store

COOKIE: Final = "om_session"
HOURS: Final = 12
_NOBODY: Final = secrets.token_bytes(32)
"""Signs forms where no key is asked for (OM_AUTH=off): known to this process only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """A signed-in viewer. `found` is None with OM_AUTH=off."""

    found: FoundKey | None
    csrf: str
    """What each form of this session must send back."""

    @property
    def access(self) -> Access:
        """Whose memory it shows, and how far it reaches."""
        if self.found is None:
            return Access(tenant=DEFAULT_TENANT)
        return Access(tenant=self.found.tenant_id, reach=self.found.reach)


def sign_in(store: Store, key: str, now: datetime) -> str | None:
    """The cookie for a key; None when the key is not known, revoked or expired."""
    stored = digest(key)
    key_id = store.system.key_id(stored)
    if key_id is None:
        return None
    ends = int(now.timestamp()) + HOURS * 3600
    return f"{key_id}.{ends}.{_signature(stored, f'{key_id}.{ends}')}"


def resume(store: Store, cookie: str, now: datetime) -> Session | None:
    """The session of a cookie; None when it is forged, over, or its key is gone."""
    body, _, signature = cookie.rpartition(".")
    key_id, _, ends = body.partition(".")
    if not (_is_number(key_id) and _is_number(ends)) or int(ends) < now.timestamp():
        return None
    stored = store.system.key_hash(int(key_id))
    if stored is None or not hmac.compare_digest(_signature(stored, body).encode(), signature.encode()):
        return None
    found = store.system.key(stored)
    return None if found is None else Session(found=found, csrf=_signature(stored, f"form {cookie}"))


def without_key() -> Session:
    """The session of everybody where OM_AUTH=off."""
    return Session(found=None, csrf=_signature(_NOBODY, "form"))


def _signature(secret: bytes, text: str) -> str:
    return hmac.new(secret, f"om dashboard {text}".encode(), hashlib.sha256).hexdigest()


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 19
