"""Reading server-sent events line by line, and knowing where to resume."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import httpx

from om_core.client.calls import thread_path
from om_core.client.transport import ATTEMPTS, FIRST_PAUSE_S, LONGEST_PAUSE_S, unreachable

if TYPE_CHECKING:
    from om_core.domain.message import JsonObject

SILENCE_S: Final = 60.0
"""The API says something every quarter of a minute; after so long the connection is taken for dead."""


@dataclass(frozen=True, slots=True)
class StreamedEvent:
    """An event: its id, from which a stream resumes, its type (`data-om-…`) and its fields."""

    id: str
    type: str
    data: JsonObject


class EventReader:
    """The state of one stream over all its connections."""

    def __init__(self, thread: str | None, resource: str | None, last_id: str | None) -> None:
        self.path = "/v1/events" if thread is None else thread_path(thread, "/events")
        self._resource = resource
        self._last_id = last_id
        self._fields: dict[str, str] = {}
        self._failures = 0

    def options(self) -> dict[str, Any]:
        """Arguments of `httpx.Client.stream`."""
        self._fields.clear()
        headers = {} if self._last_id is None else {"Last-Event-ID": self._last_id}
        query = {} if self._resource is None else {"resource_id": self._resource}
        return {"headers": headers, "params": query, "timeout": httpx.Timeout(10.0, read=SILENCE_S)}

    def take(self, line: str) -> StreamedEvent | None:
        """The event that a line completes."""
        self._failures = 0
        if line:
            name, _, value = line.partition(":")
            if name:  # a comment has none
                self._fields[name] = value.removeprefix(" ")
            return None
        fields, self._fields = self._fields, {}
        if "data" not in fields:
            return None
        self._last_id = fields.get("id", self._last_id)
        return StreamedEvent(self._last_id or "", fields.get("event", "message"), json.loads(fields["data"]))

    def broke(self, error: httpx.TransportError, base_url: str) -> None:
        """Count a broken connection.

        Raises:
            RetryLaterError: several in a row came to nothing.
        """
        self._failures += 1
        if self._failures > ATTEMPTS:
            raise unreachable(error, base_url) from error

    @property
    def pause_s(self) -> float:
        """Before the next connection."""
        return min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2.0**self._failures)
