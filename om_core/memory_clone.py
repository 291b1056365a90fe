"""The part of `Memory` that forks a thread (API 5)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from om_core.services.clone import CloneRequest, clone

if TYPE_CHECKING:
    from om_core.domain.thread import ThreadState
    from om_core.services.deps import Services


class CloneMethods:
    """Methods of `Memory`, which has the services and the tenant."""

    services: Services
    tenant: str

    def clone(
        self,
        thread: str,
        to_thread: str,
        *,
        resource: str | None = None,
        to_resource: str | None = None,
        to_seq: int | None = None,
    ) -> ThreadState:
        """Fork a thread with its memory, as it is or as it was at `to_seq`; the new thread.

        Raises:
            ConflictError: `to_thread` exists already.
            InvalidInputError: `to_seq` is above the newest message.
            NotFoundError, AmbiguousThreadError: no such thread, or several and no resource given.
        """
        request = CloneRequest(
            thread=thread, resource=resource, to_thread=to_thread, to_resource=to_resource, to_seq=to_seq
        )
        return clone(self.services, self.tenant, request)
