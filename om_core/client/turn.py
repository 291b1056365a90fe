"""A turn over HTTP: each step is one request, with the context in its answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from om_core.client import calls
from om_core.client.transport import context_of
from om_core.turn import parse_messages

if TYPE_CHECKING:
    from collections.abc import Sequence

    from om_core.client.asynchronous import AsyncMemoryClient
    from om_core.client.synchronous import MemoryClient
    from om_core.domain.message import JsonObject, Message
    from om_core.turn import ContextResult


class _Steps:
    """What both forms of a turn share."""

    def __init__(self, thread: str, resource: str | None, model: str | None) -> None:
        self._thread = thread
        self._resource = resource
        self._model = model
        self._started = False
        self.context: ContextResult | None = None

    def _arguments(self, messages: Sequence[JsonObject | Message], format: str, options: JsonObject) -> dict[str, Any]:
        # Messages keep the ids they bring. The request has a key, so a repetition stores nothing twice; without ids of
        # our own, a history that is sent whole is recognised by its content.
        given = list(parse_messages(messages, format))
        shown = calls.context_options(**{"model": self._model, **options})
        return {"messages": given, "resource": self._resource, "model": self._model, "context": shown}

    def _took(self, answer: JsonObject) -> ContextResult:
        self._started = True
        self.context = context_of(answer["context"])
        return self.context


class ClientTurn(_Steps):
    """One turn of a thread: `start` with the user's message, `step` after each model step or tool result."""

    def __init__(self, client: MemoryClient, thread: str, resource: str | None, model: str | None) -> None:
        super().__init__(thread, resource, model)
        self._client = client

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Close the turn. A turn that failed in the caller's code is closed too: its messages are stored."""
        if self._started:
            self._client.append(self._thread, [], resource=self._resource, end_of_turn=True)

    def start(
        self, messages: Sequence[JsonObject | Message], *, format: str = "openai", **options: Any
    ) -> ContextResult:
        """Store the first messages of the turn; the context to answer them with."""
        return self._took(self._client.append(self._thread, **self._arguments(messages, format, options)))

    def step(
        self, messages: Sequence[JsonObject | Message], *, format: str = "openai", **options: Any
    ) -> ContextResult:
        """Store what came since; the context for the next model call."""
        return self.start(messages, format=format, **options)


class AsyncClientTurn(_Steps):
    """The same for an event loop."""

    def __init__(self, client: AsyncMemoryClient, thread: str, resource: str | None, model: str | None) -> None:
        super().__init__(thread, resource, model)
        self._client = client

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close the turn."""
        if self._started:
            await self._client.append(self._thread, [], resource=self._resource, end_of_turn=True)

    async def start(
        self, messages: Sequence[JsonObject | Message], *, format: str = "openai", **options: Any
    ) -> ContextResult:
        """Store the first messages of the turn; the context to answer them with."""
        return self._took(await self._client.append(self._thread, **self._arguments(messages, format, options)))

    async def step(
        self, messages: Sequence[JsonObject | Message], *, format: str = "openai", **options: Any
    ) -> ContextResult:
        """Store what came since; the context for the next model call."""
        return await self.start(messages, format=format, **options)
