"""Reading and writing working memory: by a caller, by the agent's tool, by the Observer (behaviour 6.6).

A version is never changed. A write adds the next one; of two writers who read the same version one is told so, or
merges into what the other wrote.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from om_core.domain.errors import ConflictError, InvalidInputError
from om_core.domain.working_memory import DEFAULT_TEMPLATE, WorkingMemory, cache_key, json_text, merge, same_lines
from om_core.formats.fields import check_id
from om_core.formats.sanitise import sanitise_json, sanitise_text
from om_core.options.json_schema import mismatch
from om_core.prompts.redact import redact, redact_json
from om_core.services import events
from om_core.services.context import find_snapshot
from om_core.services.deps import utc_iso

if TYPE_CHECKING:
    from collections.abc import Callable

    from om_core.domain.message import Json, JsonObject
    from om_core.domain.policy import MemoryPolicy, Scope, WorkingMemoryPolicy
    from om_core.domain.thread import ThreadState
    from om_core.domain.working_memory import MemoryFormat, WrittenBy
    from om_core.ports import Transaction
    from om_core.services.deps import Services

TRIES: Final = 5
"""Times that a change is merged anew because somebody else wrote meanwhile."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Who writes, and from which messages; `cycle_id` is the run that an event names."""

    source: WrittenBy
    thread: ThreadState | None = None
    job_id: int | None = None
    from_seq: int | None = None
    to_seq: int | None = None
    cycle_id: str | None = None
    chunk_id: int | None = None
    """The chunk, where it is made late or again; None for the newest."""


def read(services: Services, tenant: str, thread: str | None, resource: str | None) -> JsonObject:
    """The working memory of a thread, or without one of a resource; version 0 where nothing was ever written.

    Raises:
        NotFoundError, AmbiguousThreadError: as for every thread. InvalidInputError: neither is named.
    """
    with services.store.reading(tenant) as tx:
        scope, key, state = _place(tx, thread, resource)
        policy = services.policies.resolve() if state is None else _policy(tx, services, state)
        return view(tx.working_memory.latest(scope, key), policy)


def write(
    services: Services,
    tenant: str,
    content: Json,
    *,
    thread: str | None = None,
    resource: str | None = None,
    format: str | None = None,
    version: int | None = None,
) -> JsonObject:
    """Replace the working memory of a thread, or without one of a resource.

    Args:
        services: the adapters.
        tenant: whose.
        content: text, or an object for JSON; an empty one clears it.
        thread: whose document; it has to exist.
        resource: whose document, or whose thread.
        format: `markdown` or `json`; by default as the content is.
        version: the version that was read, 0 for none; None replaces whatever is there.

    Raises:
        ConflictError: `version` is stale. InvalidInputError: the content is too large or of the wrong form.
    """
    with services.store.transaction(tenant) as tx:
        scope, key, state = _place(tx, thread, resource)
        policy = services.policies.resolve() if state is None else _policy(tx, services, state)
        wanted, text = checked(content, format, policy)

        def made(latest: WorkingMemory | None) -> tuple[MemoryFormat, str]:
            current = latest.version if latest else 0
            if version is not None and version != current:
                msg = f"version {version} is stale: the working memory is at version {current}; read it again"
                raise ConflictError(msg)
            return wanted, text

        return view(_add(tx, scope, key, made, Origin(source="caller", thread=state)), policy)


def change(services: Services, tenant: str, memory: Json, *, thread: str, resource: str | None = None) -> JsonObject:
    """A call of the agent's tool: text replaces the document, an object is merged into it.

    Raises:
        ConflictError: the agent is not to write it, or others keep writing. InvalidInputError: as for `write`.
    """
    with services.store.transaction(tenant) as tx:
        state = find_snapshot(tx, thread, resource).thread
        policy = _policy(tx, services, state)
        if policy.working_memory.enabled and not policy.working_memory.agent_managed:
            msg = "the Observer keeps this working memory, not the agent: set working_memory.agent_managed"
            raise ConflictError(msg)
        new = merge_in(tx, policy, state, memory, Origin(source="agent", thread=state), path="memory")
        return view(new, policy)


def merge_in(
    tx: Transaction, policy: MemoryPolicy, thread: ThreadState, value: Json, origin: Origin, *, path: str
) -> WorkingMemory | None:
    """Put a change into the document of the policy's scope, in a transaction of the caller.

    Nothing, blanks and the template that was never filled in say nothing: the document stays as it is (None: there is
    none).

    Raises:
        ConflictError, InvalidInputError: as for `change`.
    """
    options = policy.working_memory
    key = thread.resource_id if options.scope == "resource" else str(thread.id)
    if value is None or (isinstance(value, str) and (not value.strip() or _is_empty_form(value, options))):
        return tx.working_memory.latest(options.scope, key)
    if origin.chunk_id is not None:
        newest = tx.working_memory.latest(options.scope, key)
        newer = newest is not None and newest.thread_id == thread.id and (newest.chunk_id or 0) > origin.chunk_id
        if newer:  # what a newer range of the thread has written is not put back to what was true before
            return newest

    def made(latest: WorkingMemory | None) -> tuple[MemoryFormat, str]:
        if options.schema is None:
            return checked(value, "markdown", policy, path=path)
        stored = latest.value() if latest is not None and latest.format == "json" else {}
        return checked(merge(stored, _object(value, path), options.schema), "json", policy, path=path)

    return _add(tx, options.scope, key, made, origin)


def _is_empty_form(text: str, options: WorkingMemoryPolicy) -> bool:
    return options.schema is None and same_lines(text, options.template or DEFAULT_TEMPLATE)


def checked(
    content: Json, format: str | None, policy: MemoryPolicy, *, path: str = "content"
) -> tuple[MemoryFormat, str]:
    """Format and text of a document, sanitised and without secrets.

    Raises:
        InvalidInputError: another form than the options say, a value that the schema refuses, or too large.
    """
    schema = policy.working_memory.schema
    wanted = format or ("markdown" if isinstance(content, str) and schema is None else "json")
    if policy.working_memory.enabled and (wanted == "json") != (schema is not None):
        configured = "json" if schema is not None else "markdown"
        raise InvalidInputError(f"this working memory is {configured}, by working_memory.schema", path="format")
    if wanted == "json":
        value = redact_json(sanitise_json(_object(content, path), path))
        problem = None if schema is None or not value else mismatch(value, schema)
        if problem is not None:
            raise InvalidInputError(f"does not fit working_memory.schema: {redact(problem)}", path=path)
        text = json_text(value) if value else ""
    elif isinstance(content, str):
        text = redact(sanitise_text(content))
    else:
        raise InvalidInputError("markdown is a text", path=path)
    size, most = len(text.encode()), policy.limits.working_memory_bytes
    if size > most:
        raise InvalidInputError(f"{size:,} bytes; limits.working_memory_bytes allows {most:,}", path=path)
    return ("json" if wanted == "json" else "markdown"), text


def _object(content: Json, path: str) -> Json:
    """A JSON object, also one written as text."""
    if isinstance(content, str):
        try:
            content = json.loads(content) if content.strip() else {}
        except ValueError as error:
            raise InvalidInputError(f"not JSON: {error}", path=path) from error
    if not isinstance(content, dict):
        raise InvalidInputError("JSON working memory is an object", path=path)
    return content


def _place(tx: Transaction, thread: str | None, resource: str | None) -> tuple[Scope, str, ThreadState | None]:
    if thread is not None:
        state = find_snapshot(tx, thread, resource).thread
        return "thread", str(state.id), state
    if resource is None:
        raise InvalidInputError("name a thread or a resource", path="resource_id")
    return "resource", check_id(resource, "resource"), None


def _policy(tx: Transaction, services: Services, thread: ThreadState) -> MemoryPolicy:
    return services.policies.of(tx.memories.get(thread.memory_id))


def _add(
    tx: Transaction,
    scope: Scope,
    key: str,
    made: Callable[[WorkingMemory | None], tuple[MemoryFormat, str]],
    origin: Origin,
) -> WorkingMemory | None:
    """Add the next version, made from the newest; the newest itself where nothing changes."""
    for _ in range(TRIES):
        latest = tx.working_memory.latest(scope, key)
        format, content = made(latest)
        unchanged = latest is not None and cache_key(latest.format, latest.content) == cache_key(format, content)
        if unchanged or (latest is None and not content.strip()):
            return latest
        new = WorkingMemory(
            scope=scope,
            scope_key=key,
            version=latest.version + 1 if latest else 1,
            format=format,
            content=content,
            source=origin.source,
            base_version=latest.version if latest else None,
            thread_id=origin.thread.id if origin.thread else None,
            job_id=origin.job_id,
            from_seq=origin.from_seq,
            to_seq=origin.to_seq,
            created_at=tx.now(),
        )
        if tx.working_memory.add(new):
            if origin.thread is not None:
                tx.events.add([events.working_memory(origin.thread, new, latest, cycle_id=origin.cycle_id)])
            return new
    msg = "others keep writing this working memory: read it again and retry"
    raise ConflictError(msg)


def view(document: WorkingMemory | None, policy: MemoryPolicy) -> JsonObject:
    """A document as the API shows it."""
    configured = "json" if policy.working_memory.schema is not None else "markdown"
    if document is None:
        return {"content": None, "format": configured, "version": 0, "source": None, "updated_at": None}
    content: Any = document.value() or None
    return {
        "content": content,
        "format": document.format,
        "version": document.version,
        "source": document.source,
        "updated_at": utc_iso(document.created_at),
    }
