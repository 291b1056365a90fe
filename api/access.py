"""Whose request it is, and what it may do: the key, its right for the route, its reach, its rate."""

from __future__ import annotations

import logging
import re
import threading
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from starlette.concurrency import run_in_threadpool

from api.errors import TooManyRequestsError, UnauthorizedError
from api.rights import Right
from om_core.domain.errors import ForbiddenError, NotFoundError
from om_core.domain.reach import EVERYTHING, Reach
from om_core.memory import Memory
from om_core.services.keys import digest
from om_core.store.keys import USED_EVERY_S
from om_core.telemetry import described

if TYPE_CHECKING:
    from starlette.requests import Request

    from api.deps import ApiState
    from om_core.ports import FoundKey
    from om_core.services.deps import Services

log = logging.getLogger("om.api")
DEFAULT_TENANT: Final = "default"
_KEY: Final = re.compile(r"om_[A-Za-z0-9_-]{1,125}")
"""What may be a key; anything else is not looked up."""
_KEYS_REMEMBERED: Final = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """Whose request it is, and how far it reaches."""

    tenant: str
    reach: Reach = EVERYTHING


class KeyUses:
    """Remembers in the database when keys were used: at most once a minute per key, and never in a request's way."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._written: OrderedDict[int, float] = OrderedDict()
        self._lock = threading.Lock()

    def note(self, key: FoundKey) -> None:
        """The key is used now. That this cannot be written is logged; the request goes on."""
        now = self._services.clock.monotonic()
        with self._lock:
            last = self._written.get(key.id)
            if last is not None and now - last < USED_EVERY_S:
                return
            self._written[key.id] = now
            self._written.move_to_end(key.id)
            if len(self._written) > _KEYS_REMEMBERED:
                self._written.popitem(last=False)
        try:
            with self._services.store.transaction(key.tenant_id) as tx:
                tx.keys.used(key.id)
        except Exception as error:  # whatever it is: a request does not fail for this
            log.warning("the last use of key %d was not written: %s", key.id, described(error))


def presented_key(request: Request) -> str:
    """The key in the header `Authorization`.

    Raises:
        UnauthorizedError: none, several, or something that is no key.
    """
    given = request.headers.getlist("authorization")
    scheme, _, key = (given[0] if len(given) == 1 else "").partition(" ")
    if scheme.lower() != "bearer" or not _KEY.fullmatch(key.strip(" ")):
        raise UnauthorizedError("send one key: Authorization: Bearer om_… (make one with `om keys create`)")
    return key.strip(" ")


async def find_access(request: Request, state: ApiState) -> Access:
    """The tenant and reach of a request: everything of the only tenant with OM_AUTH=off, else what the key allows.

    Raises:
        UnauthorizedError: no key, or one that is not known. TooManyRequestsError: the key is used too often.
    """
    if state.auth == "off":
        return Access(tenant=DEFAULT_TENANT)
    return await run_in_threadpool(_by_key, state, presented_key(request))


def _by_key(state: ApiState, key: str) -> Access:
    hashed = digest(key)
    found = state.services.store.system.key(hashed)
    if found is None:
        raise UnauthorizedError("the key is not known, was revoked or has expired")
    pause_s = state.rates.take(hashed)
    if pause_s is not None:
        raise TooManyRequestsError(f"this key sends more than {state.rates.words}", after_s=pause_s)
    state.key_uses.note(found)
    return Access(tenant=found.tenant_id, reach=found.reach)


def check_right(access: Access, right: Right) -> None:
    """Compare a key with what a route needs.

    Raises:
        ForbiddenError: the key is narrowed to less.
    """
    if access.reach.read_only and right in {Right.WRITE, Right.ADMIN}:
        raise ForbiddenError("this key may only read")
    if access.reach.narrowed and right is Right.ADMIN:
        raise ForbiddenError("this key is narrowed to a resource or a thread; use a key of the whole tenant")


def check_path(access: Access, request: Request) -> None:
    """Compare what the path names with the key's reach. Whether it exists is not looked at.

    Raises:
        NotFoundError: it is out of reach, or a resource is named by a key for one of its threads.
    """
    named = request.path_params
    thread, resource = named.get("thread"), named.get("resource")
    if thread is not None and not access.reach.covers(None, thread):
        msg = f"no thread {thread!r}"
        raise NotFoundError(msg)
    if resource is not None and not access.reach.covers_resource(resource):
        msg = f"no resource {resource!r}"
        raise NotFoundError(msg)


def memory_of(state: ApiState, access: Access) -> Memory:
    """Memory of a tenant, as far as a key reaches."""
    return Memory(state.services, access.tenant, waiter=state.waiter).within(access.reach)
