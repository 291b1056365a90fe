"""The part of `Memory` that takes content away again (API 5, DESIGN 3.3)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from om_core.services import forget, remove
from om_core.services.restore import restore

if TYPE_CHECKING:
    from om_core.domain.message import JsonObject
    from om_core.services.deps import Services


class RemovalMethods:
    """Methods of `Memory`, which has the services and the tenant."""

    services: Services
    tenant: str

    def delete_message(self, thread: str, message_id: str, *, resource: str | None = None) -> JsonObject:
        """Remove a message and everything derived from it; the counts. Its id stays known: nothing is stored under it.

        Raises:
            NotFoundError, AmbiguousThreadError: no such thread or message, or several threads and no resource given.
        """
        return remove.delete_message(self.services, self.tenant, thread, message_id, resource).to_json()

    def rewind(self, thread: str, to_seq: int, *, resource: str | None = None) -> JsonObject:
        """Remove everything above `to_seq` (0: everything), to edit and regenerate; the counts. The ids are free again.

        Raises:
            InvalidInputError: `to_seq` is above the newest message. NotFoundError, AmbiguousThreadError: as above.
        """
        return remove.rewind(self.services, self.tenant, thread, to_seq, resource).to_json()

    def restore(self, thread: str, generation: int, *, resource: str | None = None) -> JsonObject:
        """Make an earlier generation the base of the log again; nothing is erased.

        Raises:
            ConflictError: it never took effect, or a removal has erased it.
            NotFoundError, AmbiguousThreadError: as above.
        """
        return restore(self.services, self.tenant, thread, generation, resource)

    def delete_thread(self, thread: str, *, resource: str | None = None) -> JsonObject:
        """Delete a thread with everything derived from it; the counts.

        Raises:
            NotFoundError, AmbiguousThreadError: as above.
        """
        return forget.delete_thread(self.services, self.tenant, thread, resource)

    def delete_resource(self, resource: str) -> JsonObject:
        """Delete everything of a resource; the counts.

        Raises:
            NotFoundError: nothing of it is stored.
        """
        return forget.delete_resource(self.services, self.tenant, resource)
