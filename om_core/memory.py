"""The Python entry (API 5): give an agent long memory in a few lines.

memory = Memory.open()
with memory.turn(thread="conversation-123", resource="user-123") as turn:
context = turn.start([{"role": "user", "content": "My favourite colour is blue."}])
reply = call_model(context.to_openai())
turn.step([reply])
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

from om_core.domain.job import JobKind
from om_core.domain.reach import EVERYTHING, Reach
from om_core.formats.fields import check_id
from om_core.memory_clone import CloneMethods
from om_core.memory_documents import WorkingMemoryMethods
from om_core.memory_generations import GenerationMethods
from om_core.memory_removal import RemovalMethods
from om_core.memory_usage import UsageMethods
from om_core.ports import Page
from om_core.services import context as contexts
from om_core.services import ingest, manual, views
from om_core.services.activate import activate
from om_core.services.redrive import cancel, find_job, redrive, redrive_all
from om_core.services.status import status
from om_core.services.threads import UNSET, ThreadChange, Unset, put_thread
from om_core.services.waiting import CLOSED, JobWaiter
from om_core.turn import ContextResult, Turn, parse_messages

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from om_core.domain.context import Activated
    from om_core.domain.message import JsonObject, Message, StoredMessage
    from om_core.domain.thread import ThreadState
    from om_core.ports import EventRow
    from om_core.services.deps import Services
    from om_core.services.ingest import OnDivergence, StepResult

FLUSH_WAIT_S = 120.0
"""Seconds that `flush` waits unless told otherwise."""


class Memory(GenerationMethods, WorkingMemoryMethods, RemovalMethods, CloneMethods, UsageMethods):
    """Long memory of one tenant. Thread-safe; make one per process and `for_tenant` for others."""

    def __init__(
        self,
        services: Services,
        tenant: str = "default",
        *,
        waiter: JobWaiter | None = None,
        on_close: Sequence[Callable[[], None]] = (),
        reach: Reach = EVERYTHING,
    ) -> None:
        self.services = services
        self.tenant = tenant
        self.reach = reach
        self._waiter = waiter or JobWaiter(services.store)
        self._on_close = tuple(on_close)

    @classmethod
    def open(
        cls,
        url: str | None = None,
        *,
        redis: str | None = None,
        tenant: str = "default",
        options: JsonObject | None = None,
    ) -> Memory:
        """Open memory on a database; without a URL on embedded servers under `.om/`, with a worker beside them.

        Args:
            url: any PostgreSQL URL.
            redis: broker of the rings; without it the workers' sweep finds the jobs.
            tenant: whose memory.
            options: the option tree (`docs`: README, options).

        Raises:
            SetupError: the schema is old, a server is missing, a model has no key; the text says how to fix it.
            PolicyError: an option is out of its range.
        """
        from om_core.bootstrap import open_memory

        return open_memory(url, redis=redis, tenant=tenant, options=options)

    def for_tenant(self, tenant: str) -> Memory:
        """The same servers for another tenant; closing it closes nothing."""
        return Memory(self.services, tenant, waiter=self._waiter)

    def within(self, reach: Reach) -> Memory:
        """The same memory for a caller who reaches less: what is beyond is not found, and a reader cannot write."""
        if reach == EVERYTHING:
            return self
        services = replace(self.services, store=self.services.store.within(reach))
        return Memory(services, self.tenant, waiter=self._waiter, reach=reach)

    def close(self) -> None:
        """Stop what `open` started."""
        if self._on_close:
            self._waiter.close()
        for close in self._on_close:
            close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # Threads

    def put_thread(
        self,
        thread: str,
        *,
        resource: str,
        title: str | Unset | None = UNSET,
        metadata: JsonObject | Unset | None = UNSET,
        timezone: str | Unset | None = UNSET,
        scope: str | Unset | None = UNSET,
        config: JsonObject | Unset | None = UNSET,
        version: int | None = None,
    ) -> tuple[ThreadState, bool]:
        """Create or change a thread; what is not given is kept, None clears."""
        change = ThreadChange(
            thread=thread,
            resource=resource,
            title=title,
            metadata=metadata,
            timezone=timezone,
            scope=scope,
            config=config,
            version=version,
        )
        return put_thread(self.services, self.tenant, change)

    def get_thread(self, thread: str, *, resource: str | None = None) -> ThreadState:
        """One thread.

        Raises:
            NotFoundError, AmbiguousThreadError: no such thread, or several and no resource given.
        """
        with self.services.store.reading(self.tenant) as tx:
            return contexts.find_snapshot(tx, thread, resource).thread

    def threads(
        self, *, resource: str | None = None, search: str | None = None, cursor: str | None = None, limit: int = 50
    ) -> Page[ThreadState]:
        """Threads, newest first; `search` is looked for in ids, titles and resources."""
        with self.services.store.reading(self.tenant) as tx:
            return tx.threads.page(resource_id=resource, search=search, cursor=cursor, limit=limit)

    # A turn

    def turn(self, thread: str, resource: str | None = None, *, model: str | None = None) -> Turn:
        """A turn as a context manager; leaving it closes the turn."""
        return Turn(self, thread, resource, model)

    def append(
        self,
        thread: str,
        messages: Sequence[JsonObject | Message],
        *,
        resource: str | None = None,
        format: str = "openai",
        model: str | None = None,
        end_of_turn: bool = False,
        on_divergence: OnDivergence = "report",
    ) -> StepResult:
        """Store messages of a step; see `services.ingest.append` for what it raises."""
        return self.store(
            ingest.StepRequest(
                thread=thread,
                resource=resource,
                messages=parse_messages(messages, format),
                model=model,
                end_of_turn=end_of_turn,
                on_divergence=on_divergence,
            )
        )

    def store(self, request: ingest.StepRequest) -> StepResult:
        """`append` of messages that are parsed already."""
        check_id(request.thread, "thread")
        if request.resource is not None:
            check_id(request.resource, "resource_id")
        return ingest.append(self.services, self.tenant, request)

    def context(self, thread: str, *, resource: str | None = None, **options: Any) -> ContextResult:
        """The prompt for the next model call: activates what is due, waits only as DESIGN 6.4 allows.

        Options: `model`, `max_tokens`, `read_only`, `ephemeral` (canonical messages), `now`, `wait`.
        """
        request = self._context_request(thread, resource, options)
        return ContextResult(contexts.get_context(self.services, self._waiter, self.tenant, request))

    async def context_async(self, thread: str, *, resource: str | None = None, **options: Any) -> ContextResult:
        """`context` for an event loop."""
        request = self._context_request(thread, resource, options)
        found = await contexts.get_context_async(self.services, self._waiter, self.tenant, request)
        return ContextResult(found)

    def _context_request(self, thread: str, resource: str | None, options: dict[str, Any]) -> contexts.ContextRequest:
        """A reader's contexts are read-only, whatever is asked for."""
        read_only = {"read_only": True} if self.reach.read_only else {}
        return contexts.ContextRequest(thread=thread, resource=resource, **{**options, **read_only})

    # Looking

    def status(self, thread: str, *, resource: str | None = None) -> JsonObject:
        """Token windows, cursors, running jobs, errors, and why nothing happens where nothing does."""
        return status(self.services, self.tenant, thread, resource)

    def messages(
        self,
        thread: str,
        *,
        resource: str | None = None,
        after_seq: int | None = None,
        before_seq: int | None = None,
        limit: int = 50,
    ) -> tuple[StoredMessage, ...]:
        """Stored messages in order."""
        with self.services.store.reading(self.tenant) as tx:
            found = contexts.find_snapshot(tx, thread, resource).thread
            return tx.messages.page(found.id, after_seq=after_seq, before_seq=before_seq, limit=limit)

    def observations(
        self,
        thread: str,
        *,
        resource: str | None = None,
        state: str = "active",
        cursor: str | None = None,
        limit: int = 50,
    ) -> Page[JsonObject]:
        """Chunks of a thread, by range, with the ids of their first and last messages."""
        with self.services.store.reading(self.tenant) as tx:
            found = contexts.find_snapshot(tx, thread, resource).thread
            page = tx.chunks.page(found.id, state=state, cursor=cursor, limit=limit)
            ends = {seq for chunk in page.items for seq in (chunk.from_seq, chunk.to_seq)}
            ids = {row.seq: row.message.id for row in tx.messages.at(found.id, ends)}
        return Page(tuple(views.chunk_view(chunk, ids) for chunk in page.items), page.next_cursor)

    def events(
        self,
        thread: str | None = None,
        *,
        resource: str | None = None,
        last_id: str | None = None,
        limit: int = 200,
    ) -> tuple[EventRow, ...]:
        """Events after `last_id`, oldest first; without it the newest."""
        with self.services.store.reading(self.tenant) as tx:
            thread_id = None if thread is None else contexts.find_snapshot(tx, thread, resource).thread.id
            return tx.events.after(
                thread_id=thread_id, resource_id=None if thread else resource, last_id=last_id, limit=limit
            )

    # Work by hand

    def observe(self, thread: str, *, resource: str | None = None, wait_s: float | None = None) -> JsonObject:
        """Observe everything pending up to the last cut, whatever the thresholds say."""
        return self._ask(JobKind.OBSERVE, thread, resource, wait_s)

    def reflect(
        self, thread: str, *, resource: str | None = None, wait_s: float | None = None, guidance: str | None = None
    ) -> JsonObject:
        """Condense the log now; `guidance` is shown to the Reflector."""
        return self._ask(JobKind.REFLECT, thread, resource, wait_s, guidance)

    def activate(self, thread: str, *, resource: str | None = None) -> JsonObject:
        """Move every ready chunk into the log, and let a finished reflection take effect."""
        found = self.get_thread(thread, resource=resource)
        result = activate(self.services, self.tenant, found.id, forced="manual")
        return {"activated": _activated_json(result.activated)}

    def flush(self, thread: str, *, resource: str | None = None, wait_s: float | None = None) -> JsonObject:
        """Observe everything pending to the last cut, wait, activate."""
        deadline = self.services.clock.monotonic() + (FLUSH_WAIT_S if wait_s is None else wait_s)
        asked: JsonObject = {"job": None, "state": None, "reason": "nothing is pending"}
        while (left := deadline - self.services.clock.monotonic()) > 0:
            step = self._ask(JobKind.OBSERVE, thread, resource, left)
            asked = step if step["job"] is not None else asked
            if step["job"] is None or step["state"] != "completed":
                break
        return {**self.activate(thread, resource=resource), "observe": asked}

    def _ask(
        self,
        kind: JobKind,
        thread: str,
        resource: str | None,
        wait_s: float | None,
        guidance: str | None = None,
    ) -> JsonObject:
        asked = manual.ask_for(self.services, self.tenant, kind, thread, resource, guidance=guidance)
        if asked.job_id is None:
            return manual.asked_view(asked, None)
        state = self._wait(asked.job_id, wait_s) if wait_s else None
        view = manual.asked_view(asked, state)
        return {**view, "result": self.job(asked.job_id)} if state else view

    def _wait(self, job_id: int, wait_s: float) -> str | None:
        future = self._waiter.watch(job_id)
        try:
            state = future.result(wait_s)
        except TimeoutError:
            future.cancel()
            return None
        return None if state == CLOSED else state

    # Jobs

    def jobs(
        self,
        *,
        state: str | None = None,
        kind: str | None = None,
        thread: str | None = None,
        resource: str | None = None,
        cursor: str | None = None,
        limit: int = 50,
    ) -> Page[JsonObject]:
        """Jobs, newest first."""
        with self.services.store.reading(self.tenant) as tx:
            thread_id = None if thread is None else contexts.find_snapshot(tx, thread, resource).thread.id
            page = tx.jobs.page(
                state=state, kind=kind, thread_id=thread_id, cursor=cursor, limit=limit, resource_id=resource
            )
        return Page(tuple(map(views.job_view, page.items)), page.next_cursor)

    def job(self, job_id: int) -> JsonObject:
        """One job.

        Raises:
            NotFoundError: this tenant has no such job.
        """
        with self.services.store.reading(self.tenant) as tx:
            found = find_job(tx, job_id)
        return views.job_view(found)

    def retry_job(self, job_id: int) -> JsonObject:
        """Run a discarded job again (redrive).

        Raises:
            ConflictError: it is not discarded, or a live job does its work already.
        """
        return self.job(redrive(self.services, self.tenant, job_id).id)

    def retry_discarded(self) -> list[JsonObject]:
        """Redrive every discarded job that has no live one in its place."""
        return [self.job(ref.id) for ref in redrive_all(self.services, self.tenant)]

    def cancel_job(self, job_id: int) -> JsonObject:
        """Cancel a live job; a worker that holds it writes nothing.

        Raises:
            ConflictError: it is not live any more.
        """
        cancel(self.services, self.tenant, job_id)
        return self.job(job_id)


def _activated_json(activated: Activated | None) -> JsonObject | None:
    if activated is None:
        return None
    return {
        "reason": activated.reason,
        "chunks": activated.chunks,
        "messages": activated.messages,
        "tokens": activated.tokens,
        "observation_tokens": activated.observation_tokens,
        "generation": activated.generation,
    }
