"""`AsyncMemoryClient`: the methods of `Memory` over HTTP, for an event loop."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Self

import httpx

from om_core.client import calls
from om_core.client.stream import EventReader, StreamedEvent
from om_core.client.transport import answer_of, build_headers, context_of, pause_after, request_of, unreachable
from om_core.client.turn import AsyncClientTurn

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from datetime import date

    from om_core.client.calls import Call
    from om_core.domain.message import JsonObject, Message
    from om_core.services.ingest import OnDivergence
    from om_core.turn import ContextResult


class AsyncMemoryClient:
    """Long memory behind an API; answers are the JSON of the HTTP interface, contexts have their forms.

    Args:
        base_url: of the API, as in `http://127.0.0.1:8080`.
        api_key: of `om keys create`; None where the API asks for none.
        http: a client of your own, for proxies and certificates; it is not closed.
    """

    def __init__(self, base_url: str, api_key: str | None = None, *, http: httpx.AsyncClient | None = None) -> None:
        self._base_url = base_url.rstrip("/")
        self._own = http is None
        self._http = http or httpx.AsyncClient()
        self._http.base_url = httpx.URL(self._base_url)
        self._http.headers.update(build_headers(api_key))

    async def close(self) -> None:
        """Give the connections back."""
        if self._own:
            await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _ask(self, call: Call) -> JsonObject:
        """Send a call until it succeeds, is refused, or has had its attempts.

        Raises:
            OmError: as the API refused. RetryLaterError: it did not answer.
        """
        attempt = 1
        while True:
            try:
                response = await self._http.send(request_of(self._http, call))
            except httpx.TransportError as error:
                pause = pause_after(attempt, error)
                if pause is None:
                    raise unreachable(error, self._base_url) from error
            else:
                pause = None if response.is_success else pause_after(attempt, response)
                if pause is None:
                    return answer_of(response)
            await asyncio.sleep(pause)
            attempt += 1

    # Threads

    async def put_thread(self, thread: str, *, resource: str, **changes: Any) -> JsonObject:
        """Create or change a thread: title, metadata, timezone, scope, config, version; None clears."""
        return await self._ask(calls.put_thread(thread, resource, changes))

    async def get_thread(self, thread: str, *, resource: str | None = None) -> JsonObject:
        """One thread. Raises NotFoundError, AmbiguousThreadError."""
        return await self._ask(calls.get(calls.thread_path(thread), resource_id=resource))

    async def threads(self, *, resource: str | None = None, cursor: str | None = None, limit: int = 50) -> JsonObject:
        """A page of threads, newest first: `{items, next_cursor}`."""
        return await self._ask(calls.get("/v1/threads", resource_id=resource, cursor=cursor, limit=limit))

    # A turn

    def turn(self, thread: str, resource: str | None = None, *, model: str | None = None) -> AsyncClientTurn:
        """A turn as a context manager; leaving it closes the turn."""
        return AsyncClientTurn(self, thread, resource, model)

    async def append(
        self,
        thread: str,
        messages: Sequence[JsonObject | Message],
        *,
        resource: str | None = None,
        format: str = "openai",
        model: str | None = None,
        end_of_turn: bool = False,
        on_divergence: OnDivergence = "report",
        context: JsonObject | None = None,
    ) -> JsonObject:
        """Store messages of a step; with `context` (its options) the answer holds the prompt, too."""
        return await self._ask(
            calls.append(
                thread,
                messages,
                resource=resource,
                format=format,
                model=model,
                end_of_turn=end_of_turn,
                on_divergence=on_divergence,
                context=context,
            )
        )

    async def context(self, thread: str, *, resource: str | None = None, **options: Any) -> ContextResult:
        """The prompt for the next model call. Options: model, max_tokens, read_only, ephemeral, now."""
        return context_of(await self._ask(calls.context(thread, resource, calls.context_options(**options))))

    # Looking

    async def status(self, thread: str, *, resource: str | None = None) -> JsonObject:
        """Token windows, cursors, running jobs, errors, and why nothing happens where nothing does."""
        return await self._ask(calls.get(calls.thread_path(thread, "/status"), resource_id=resource))

    async def messages(
        self,
        thread: str,
        *,
        resource: str | None = None,
        after_seq: int | None = None,
        before_seq: int | None = None,
        cursor: str | None = None,
        limit: int = 50,
    ) -> JsonObject:
        """A page of stored messages in order."""
        path = calls.thread_path(thread, "/messages")
        bounds = {"after_seq": after_seq, "before_seq": before_seq}
        return await self._ask(calls.get(path, resource_id=resource, cursor=cursor, limit=limit, **bounds))

    async def observations(
        self,
        thread: str,
        *,
        resource: str | None = None,
        state: str = "active",
        cursor: str | None = None,
        limit: int = 50,
    ) -> JsonObject:
        """A page of chunks: active, buffered or all."""
        path = calls.thread_path(thread, "/observations")
        return await self._ask(calls.get(path, resource_id=resource, state=state, cursor=cursor, limit=limit))

    async def reflections(
        self, thread: str, *, resource: str | None = None, cursor: str | None = None, limit: int = 50
    ) -> JsonObject:
        """A page of generations with their text, newest first."""
        path = calls.thread_path(thread, "/reflections")
        return await self._ask(calls.get(path, resource_id=resource, cursor=cursor, limit=limit))

    async def reflection(
        self, thread: str, generation: int, *, resource: str | None = None, against: int | None = None
    ) -> JsonObject:
        """One generation with the messages behind it and its changes `against` another one, by default its base."""
        path = calls.thread_path(thread, f"/reflections/{generation}")
        return await self._ask(calls.get(path, resource_id=resource, against=against))

    async def events(
        self, thread: str | None = None, *, resource: str | None = None, last_id: str | None = None
    ) -> AsyncIterator[StreamedEvent]:
        """Events as they happen, without end; a broken stream is resumed after the last one seen."""
        reader = EventReader(thread, resource, last_id)
        while True:
            try:
                async with self._http.stream("GET", reader.path, **reader.options()) as response:
                    if not response.is_success:
                        await response.aread()
                        answer_of(response)
                    async for line in response.aiter_lines():
                        if (event := reader.take(line)) is not None:
                            yield event
            except httpx.TransportError as error:
                reader.broke(error, self._base_url)
            await asyncio.sleep(reader.pause_s)

    async def working_memory(self, thread: str | None = None, *, resource: str | None = None) -> JsonObject:
        """The document of a thread, or with a resource alone of that resource: `{content, format, version}`."""
        return await self._ask(calls.working_memory(thread, resource))

    async def set_working_memory(
        self,
        content: str | JsonObject,
        *,
        thread: str | None = None,
        resource: str | None = None,
        format: str | None = None,
        version: int | None = None,
    ) -> JsonObject:
        """Replace the document. Raises ConflictError: `version` is not the one that is stored."""
        return await self._ask(calls.set_working_memory(thread, resource, content, format=format, version=version))

    async def update_working_memory(
        self, memory: str | JsonObject, *, thread: str, resource: str | None = None
    ) -> JsonObject:
        """Do what the agent's tool was called with: text replaces the document, an object is merged into it."""
        body = {"memory": memory, "resource_id": resource}
        return await self._ask(calls.post(calls.thread_path(thread, "/working-memory"), body))

    async def tools(self, format: str = "openai") -> list[JsonObject]:
        """Schemas of the tools that the agent is offered, for `openai` or `anthropic`."""
        found: list[JsonObject] = (await self._ask(calls.get("/v1/tools", format=format)))["items"]
        return found

    # Taking away

    async def delete_message(self, thread: str, message_id: str, *, resource: str | None = None) -> JsonObject:
        """Remove a message and everything derived from it; the counts."""
        path = calls.thread_path(thread, f"/messages/{calls.quoted(message_id)}")
        return await self._ask(calls.delete(path, resource_id=resource))

    async def clone(
        self,
        thread: str,
        to_thread: str,
        *,
        resource: str | None = None,
        to_resource: str | None = None,
        to_seq: int | None = None,
    ) -> JsonObject:
        """Fork a thread with its memory, as it is or as it was at `to_seq`; the new thread."""
        body = {"thread": to_thread, "resource_id": to_resource, "to_seq": to_seq}
        return await self._ask(calls.post(calls.thread_path(thread, "/clone"), body, resource_id=resource))

    async def rewind(self, thread: str, to_seq: int, *, resource: str | None = None) -> JsonObject:
        """Remove everything above `to_seq`, to edit and regenerate; the counts."""
        body = {"to_seq": to_seq, "resource_id": resource}
        return await self._ask(calls.post(calls.thread_path(thread, "/rewind"), body))

    async def restore(self, thread: str, generation: int, *, resource: str | None = None) -> JsonObject:
        """Make an earlier generation the base of the log again. Raises ConflictError: it was erased."""
        path = calls.thread_path(thread, f"/reflections/{generation}/restore")
        return await self._ask(calls.post_to(path, resource_id=resource))

    async def delete_thread(self, thread: str, *, resource: str | None = None) -> JsonObject:
        """Delete a thread with everything derived from it; the counts."""
        return await self._ask(calls.delete(calls.thread_path(thread), resource_id=resource))

    async def delete_resource(self, resource: str) -> JsonObject:
        """Delete everything of a resource; the counts."""
        return await self._ask(calls.delete(f"/v1/resources/{calls.quoted(resource)}"))

    # Work by hand

    async def observe(self, thread: str, *, resource: str | None = None, wait_s: float | None = None) -> JsonObject:
        """Observe everything pending up to the last cut, whatever the thresholds say."""
        return await self._ask(calls.asked(thread, "observe", resource, wait_s))

    async def reflect(
        self, thread: str, *, resource: str | None = None, wait_s: float | None = None, guidance: str | None = None
    ) -> JsonObject:
        """Condense the log now; `guidance` is shown to the Reflector."""
        return await self._ask(calls.asked(thread, "reflect", resource, wait_s, guidance=guidance))

    async def activate(self, thread: str, *, resource: str | None = None) -> JsonObject:
        """Move every ready chunk into the log, and let a finished reflection take effect."""
        return await self._ask(calls.post(calls.thread_path(thread, "/activate"), {"resource_id": resource}))

    async def flush(self, thread: str, *, resource: str | None = None, wait_s: float | None = None) -> JsonObject:
        """Observe everything pending to the last cut, wait, activate."""
        return await self._ask(calls.asked(thread, "flush", resource, wait_s))

    # Jobs

    async def jobs(
        self,
        *,
        state: str | None = None,
        kind: str | None = None,
        thread: str | None = None,
        cursor: str | None = None,
        limit: int = 50,
    ) -> JsonObject:
        """A page of jobs, newest first."""
        return await self._ask(calls.get("/v1/jobs", state=state, kind=kind, thread=thread, cursor=cursor, limit=limit))

    async def job(self, job_id: int) -> JsonObject:
        """One job. Raises NotFoundError."""
        return await self._ask(calls.get(f"/v1/jobs/{job_id}"))

    async def retry_job(self, job_id: int) -> JsonObject:
        """Run a discarded job again. Raises ConflictError."""
        return await self._ask(calls.post(f"/v1/jobs/{job_id}/retry"))

    async def cancel_job(self, job_id: int) -> JsonObject:
        """Cancel a live job. Raises ConflictError."""
        return await self._ask(calls.post(f"/v1/jobs/{job_id}/cancel"))

    async def usage(
        self,
        *,
        by: Sequence[str] = ("day", "kind", "model"),
        resource: str | None = None,
        thread: str | None = None,
        first_day: date | None = None,
        last_day: date | None = None,
        cursor: str | None = None,
        limit: int = 50,
    ) -> JsonObject:
        """A page of what model calls took, summed by day, resource, thread, kind or model; days are UTC."""
        return await self._ask(
            calls.get(
                "/v1/usage",
                by=",".join(by) or "none",
                resource_id=resource,
                thread=thread,
                first_day=first_day,
                last_day=last_day,
                cursor=cursor,
                limit=limit,
            )
        )
