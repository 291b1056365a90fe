"""How far a caller reaches within a tenant: everything, one resource, or one thread of it; and whether it may write."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """What a key is narrowed to (API 3). A thread is named with its resource: two resources may have its id."""

    resource: str | None = None
    thread: str | None = None
    read_only: bool = False

    @property
    def narrowed(self) -> bool:
        """Whether something of the tenant is out of reach."""
        return self.resource is not None

    def covers(self, resource: str | None, thread: str) -> bool:
        """Whether a thread is within reach; no resource: the one that this is narrowed to."""
        return not self.narrowed or (resource in {None, self.resource} and self.thread in {None, thread})

    def covers_resource(self, resource: str) -> bool:
        """Whether all of a resource is within reach."""
        return not self.narrowed or (self.resource == resource and self.thread is None)


EVERYTHING: Final = Reach()
"""A tenant's own reach."""
