"""The part of `Memory` that reads and writes working memory (API 5)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from om_core.services import working_memory
from om_core.services.tools import tools

if TYPE_CHECKING:
    from om_core.domain.message import JsonObject
    from om_core.services.deps import Services


class WorkingMemoryMethods:
    """Methods of `Memory`, which has the services and the tenant."""

    services: Services
    tenant: str

    def working_memory(self, thread: str | None = None, *, resource: str | None = None) -> JsonObject:
        """The document of a thread, or without one of a resource: `content`, `format`, `version` (0: never written)."""
        return working_memory.read(self.services, self.tenant, thread, resource)

    def set_working_memory(
        self,
        content: str | JsonObject,
        *,
        thread: str | None = None,
        resource: str | None = None,
        format: str | None = None,
        version: int | None = None,
    ) -> JsonObject:
        """Replace the document; see `services.working_memory.write` for arguments and errors."""
        return working_memory.write(
            self.services,
            self.tenant,
            content,
            thread=thread,
            resource=resource,
            format=format,
            version=version,
        )

    def update_working_memory(
        self, memory: str | JsonObject, *, thread: str, resource: str | None = None
    ) -> JsonObject:
        """Do what the agent's tool was called with: text replaces the document, an object is merged into it.

        Raises:
            ConflictError: the agent does not keep this memory. InvalidInputError: too large, or of the wrong form.
        """
        return working_memory.change(self.services, self.tenant, memory, thread=thread, resource=resource)

    def tools(self, format: str = "openai") -> list[JsonObject]:
        """Schemas of the tools that the agent is offered under this configuration, for `openai` or `anthropic`.

        Raises:
            InvalidInputError: an unknown format.
        """
        return tools(self.services.policies.resolve(), format)
