"""What the services work with: one value, built once per process by a composition root."""

from __future__ import annotations

import json
import threading
import uuid
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from om_core.clock import SystemClock
from om_core.domain.errors import PolicyError
from om_core.domain.policy import DEFAULT_MODEL
from om_core.domain.ttl import auto_ttl_s
from om_core.options import policy_to_json, resolve_policy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from om_core.domain.job import JobRef
    from om_core.domain.message import JsonObject, StoredMessage
    from om_core.domain.policy import MemoryPolicy, Ttl
    from om_core.domain.thread import MemoryState
    from om_core.ports import Clock, JobDispatcher, LanguageModel, Store, TextTokenizer, TokenCounter


class SilentDispatcher:
    """Rings nobody: the sweep of any worker finds the jobs."""

    def ring(self, jobs: Iterable[JobRef]) -> None:
        pass

    def close(self) -> None:
        pass


@dataclass(frozen=True, slots=True)
class Policies:
    """Resolved policies: the installation's options, overridden by a memory's own configuration."""

    options: JsonObject
    default_model: str = DEFAULT_MODEL
    """Where the options name no model: `OM_MODEL`, or the offline model of a trial."""
    _cache: dict[str, MemoryPolicy] = field(default_factory=dict)
    _json: dict[int, tuple[MemoryPolicy, JsonObject]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def of(self, memory: MemoryState) -> MemoryPolicy:
        """The policy of one memory as it is now: with a shared budget, the threshold depends on the log."""
        return self.given(memory).with_shared_budget(memory.log_tokens)

    def given(self, memory: MemoryState) -> MemoryPolicy:
        """The policy as configured. A configuration that the installation's options have made invalid does not apply:
        no turn fails because of memory; `problem` tells of it.
        """
        try:
            return self.resolve(memory.config)
        except PolicyError:
            return self.resolve()

    def problem(self, memory: MemoryState) -> str | None:
        """What is wrong with a memory's own configuration under the options of now."""
        try:
            self.resolve(memory.config)
        except PolicyError as error:
            return str(error)
        return None

    def resolve(self, config: JsonObject | None = None) -> MemoryPolicy:
        """The policy for a configuration, resolved once per distinct configuration."""
        key = json.dumps(config, sort_keys=True) if config else ""
        found = self._cache.get(key)
        if found is None:
            found = resolve_policy(self.options, overrides=config or None, default_model=self.default_model)
            with self._lock:
                if len(self._cache) > 1000:
                    self._cache.clear()
                self._cache[key] = found
        return found

    def as_json(self, policy: MemoryPolicy) -> JsonObject:
        """The form stored with a job; made once per policy."""
        cached = self._json.get(id(policy))
        if cached is None or cached[0] is not policy:
            with self._lock:
                if len(self._json) > 1000:
                    self._json.clear()
                cached = self._json[id(policy)] = (policy, policy_to_json(policy))
        return cached[1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """The adapters behind the use cases. `owner` names this process in leases."""

    store: Store
    counter: TokenCounter
    tokenizer: TextTokenizer
    model: LanguageModel
    extract: Callable[[Sequence[StoredMessage], int, str], str]
    """(messages, about how many tokens, IANA zone) -> the short extract that stands for a parked range."""
    policies: Policies
    reads: Callable[[str, str], bool | None] = lambda _model, _mime_type: None
    """Whether a model reads attachments of a MIME type; None: not known."""
    dispatcher: JobDispatcher = field(default_factory=SilentDispatcher)
    clock: Clock = field(default_factory=SystemClock)
    lease_s: float = 60.0
    prices: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    """US dollars per input and output token of the models, where money is limited."""
    owner: str = field(default_factory=lambda: uuid.uuid4().hex[:12])


def ttl_seconds(ttl: Ttl, model: str | None) -> float | None:
    """An idle time in seconds: `auto` depends on the actor's provider."""
    if ttl == "auto":
        return auto_ttl_s(model)
    return ttl


def utc_iso(moment: datetime) -> str:
    """RFC 3339 in UTC with `Z` (API: times)."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def optional_iso(moment: datetime | None) -> str | None:
    """The same for a time that may be missing."""
    return None if moment is None else utc_iso(moment)
