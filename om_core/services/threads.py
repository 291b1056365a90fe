"""Creating and changing threads (API 3, `PUT /v1/threads/{thread}`)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

from om_core.domain.errors import ConflictError, InvalidInputError
from om_core.formats.fields import check_id, is_timezone
from om_core.formats.sanitise import sanitise_json, sanitise_text
from om_core.options import resolve_policy
from om_core.ports import NewThread

if TYPE_CHECKING:
    from om_core.domain.thread import ThreadState
    from om_core.ports import Transaction
    from om_core.services.deps import Services

METADATA_BYTES = 16_384


class Unset(Enum):
    """The type of `UNSET`."""

    UNSET = "unset"


UNSET: Final = Unset.UNSET
"""Not given: keep what is stored. None clears it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadChange:
    """What to set on a thread; `metadata` is merged by key, a key with None is removed."""

    thread: str
    resource: str
    title: str | Unset | None = UNSET
    metadata: dict[str, Any] | Unset | None = UNSET
    timezone: str | Unset | None = UNSET
    scope: str | Unset | None = UNSET
    config: dict[str, Any] | Unset | None = UNSET
    version: int | None = None


def put_thread(services: Services, tenant: str, change: ThreadChange) -> tuple[ThreadState, bool]:
    """Create the thread or change it; the state after, and whether it came to be.

    Raises:
        InvalidInputError: an id, zone or size is wrong. PolicyError: an option in `config` is.
        ConflictError: `version` is stale, or `scope` differs from the one fixed at creation.
    """
    _check(services, change)
    change = _repaired(change)
    with services.store.transaction(tenant) as tx:
        found = tx.threads.get(change.resource, change.thread)
        created = found is None and tx.threads.create(
            NewThread(
                external_id=change.thread,
                resource_id=change.resource,
                scope=_scope(services, change),
                title=_given(change.title),
                metadata=_merged({}, change.metadata),
                timezone=_given(change.timezone),
                config=_given(change.config) or {},
            )
        )
        if not created:
            _change(tx, change)
        state = tx.threads.get(change.resource, change.thread)
    if state is None:
        msg = f"thread {change.thread!r} was deleted meanwhile: try again"
        raise ConflictError(msg)
    return state, created


def _check(services: Services, change: ThreadChange) -> None:
    check_id(change.thread, "thread")
    check_id(change.resource, "resource_id")
    if isinstance(change.timezone, str) and not is_timezone(change.timezone):
        msg = f"{change.timezone!r} is not an IANA time zone, as in Europe/Paris"
        raise InvalidInputError(msg, path="timezone")
    if isinstance(change.scope, str) and change.scope not in {"thread", "resource"}:
        msg = f"{change.scope!r} is not a scope: thread or resource"
        raise InvalidInputError(msg, path="scope")
    if isinstance(change.config, dict):
        resolve_policy(services.policies.options, overrides=change.config)


def _repaired(change: ThreadChange) -> ThreadChange:
    """The change without what Postgres cannot hold, wherever it stands."""
    return replace(
        change,
        title=sanitise_text(change.title) if isinstance(change.title, str) else change.title,
        metadata=sanitise_json(change.metadata, "metadata") if isinstance(change.metadata, dict) else change.metadata,
        config=sanitise_json(change.config, "config") if isinstance(change.config, dict) else change.config,
    )


def _scope(services: Services, change: ThreadChange) -> Any:
    return _given(change.scope) or services.policies.resolve(_given(change.config)).scope


def _given(value: Any) -> Any:
    return None if value is UNSET else value


def _merged(stored: dict[str, Any], change: dict[str, Any] | Unset | None) -> dict[str, Any]:
    if change is UNSET:
        return stored
    if change is None:
        return {}
    merged = {**stored, **change}
    result = {key: value for key, value in merged.items() if value is not None}
    if len(str(result)) > METADATA_BYTES:
        msg = f"metadata is larger than {METADATA_BYTES} bytes"
        raise InvalidInputError(msg, path="metadata")
    return result


def _change(tx: Transaction, change: ThreadChange) -> None:
    """Change an existing thread under its lock."""
    locked = tx.threads.lock(change.resource, change.thread)
    if locked is None:
        return
    thread, memory = locked.thread, locked.memory
    if change.version is not None and change.version != thread.version:
        msg = f"version {change.version} is stale: the thread is at version {thread.version}; read it again"
        raise ConflictError(msg)
    if isinstance(change.scope, str) and change.scope != memory.scope:
        msg = f"scope is fixed at creation: this thread has {memory.scope!r}"
        raise ConflictError(msg)
    changes: dict[str, Any] = {}
    if change.title is not UNSET:
        changes |= {"title": change.title, "title_seq": None}  # the caller's own: the Observer leaves it alone
    if change.timezone is not UNSET and change.timezone != thread.timezone:
        changes |= {"timezone": change.timezone, "prefix_reason": "configuration"}
        changes["prefix_version"] = thread.prefix_version + 1
    if change.metadata is not UNSET:
        changes["metadata"] = _merged(thread.metadata, change.metadata)
    if change.config is not UNSET and (change.config or {}) != memory.config:
        tx.memories.lock(memory.id)
        tx.memories.update(memory.id, config=change.config or {})
    tx.threads.update(thread.id, version=thread.version + 1, **changes)
