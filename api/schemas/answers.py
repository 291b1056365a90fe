"""Answers, for the OpenAPI document. Routes send what the services made; a test holds both together."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Generic, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field

T = TypeVar("T")


class Answer(BaseModel):
    """An object that may gain fields."""

    model_config = ConfigDict(extra="allow")


class FieldProblem(Answer):
    """One field that is wrong."""

    path: str = Field(description="As in `messages.0.role`.")
    where: Literal["body", "query", "path", "header"] = Field(alias="in")
    code: str
    detail: str


class Problem(Answer):
    """An error (RFC 9457)."""

    type: str
    title: str
    status: int
    detail: str
    code: str = Field(description="Stable, for programs.")
    request_id: str = Field(description="Also in the header X-Request-Id and in the service's log.")
    errors: list[FieldProblem] | None = None


class ListOf(BaseModel, Generic[T]):
    """A page; `next_cursor` is null on the last one."""

    items: list[T]
    next_cursor: str | None


class Thread(Answer):
    """A thread; its token windows are in its status."""

    id: str
    resource_id: str
    title: str | None
    metadata: dict[str, Any]
    timezone: str | None
    version: int
    head_seq: int
    observed_seq: int
    pending_tokens: int
    last_model: str | None
    last_activity_at: datetime | None
    created_at: datetime | None


class PutThread(Thread):
    """A thread, and whether this request created it."""

    created: bool


class MessageRef(Answer):
    """A message of the request: where it is stored, and whether this request stored it."""

    id: str
    seq: int
    tokens: int
    created: bool


class JobRef(Answer):
    """A job that became due."""

    id: int
    kind: str


class Block(Answer):
    """One text of the system prompt; a cacheable one is byte-identical until the next prefix change."""

    text: str
    kind: str
    cacheable: bool


class VolatileText(Answer):
    """One text of the volatile tail."""

    kind: str
    text: str


class TokenCounts(Answer):
    """Sizes in tokens."""

    log: int
    messages: int
    total: int


class ContextAnswer(Answer):
    """The prompt: `messages` is the complete list to send, its first `stable_messages` are stable."""

    system: list[Block]
    messages: list[dict[str, Any]]
    stable_messages: int
    volatile: list[VolatileText]
    tokens: TokenCounts
    generation: int
    observed_seq: int
    head_seq: int
    prefix_hash: str
    prefix_changed: str | None
    activated: dict[str, Any] | None
    trimmed: dict[str, Any] | None
    over_budget: bool


class StatusAnswer(Answer):
    """The `data-om-status` data (camelCase inside), and what explains it."""

    thread_id: str = Field(alias="threadId")
    windows: dict[str, Any]
    pending_seq_range: list[int] | None
    oldest_pending_age_s: float | None
    running: list[dict[str, Any]]
    last_error: dict[str, Any] | None
    breaker: str | None
    budget: dict[str, Any] | None
    omitted_positions: list[int] | None
    why_idle: dict[str, str]


class StepAnswer(Answer):
    """What a step did. `status` is null in mode `off`."""

    messages: list[MessageRef]
    duplicates: list[str]
    deleted: list[str]
    ignored: list[str]
    jobs: list[JobRef]
    created: bool
    status: StatusAnswer | None
    context: ContextAnswer | None = None
    diverged_at_seq: int | None = None


class StoredMessage(Answer):
    """A stored message in the canonical form."""

    id: str | None = None
    role: str
    parts: list[dict[str, Any]]
    seq: int
    tokens: int
    turn: int
    continues: int | None
    created_at: datetime


class Observation(Answer):
    """A chunk of notes over `from_seq..to_seq`."""

    id: int
    kind: Literal["observed", "parked", "empty"]
    state: Literal["active", "buffered"]
    stale: bool
    position: int | None
    from_seq: int
    to_seq: int
    from_message_id: str | None
    to_message_id: str | None
    text: str
    tokens: int
    message_tokens: int
    model: str | None
    cost: float | None
    created_at: datetime | None
    activated_at: datetime | None
    hints: dict[str, Any] | None
    extracted: dict[str, Any]


class WorkingMemory(Answer):
    """A document; version 0 and no content where nothing was written."""

    content: str | dict[str, Any] | None
    format: Literal["markdown", "json"]
    version: int
    source: Literal["caller", "agent", "observer"] | None
    updated_at: datetime | None


class Tool(Answer):
    """A tool in the form of the provider that was asked for."""


class JobItem(Answer):
    """A job of the queue."""

    id: int
    kind: str
    queue: str
    state: str
    thread: str
    reason: str
    attempt: int
    failures: int
    error: dict[str, Any] | None
    run_at: datetime | None
    created_at: datetime | None
    started_at: datetime | None
    finished_at: datetime | None


class Asked(Answer):
    """Work asked for by hand: the job and its state, or (`job` null) the reason why there is nothing to do."""

    job: int | None
    state: str | None
    reason: str
    result: JobItem | None


class ActivateAnswer(Answer):
    """What moved into the log; null: nothing was ready."""

    activated: dict[str, Any] | None


class FlushAnswer(ActivateAnswer):
    """The last observation, and what moved into the log after it."""

    observe: Asked


class Health(Answer):
    """The process is alive."""

    status: Literal["ok"]


class Check(Answer):
    """One thing the service needs."""

    state: Literal["ok", "failed", "unknown", "excluded", "not_used"]
    detail: str | None = None


class Readiness(Answer):
    """The service is usable."""

    status: Literal["ready"]
    checks: dict[str, Check]


class Webhook(Answer):
    """A receiver of events; `position` is the id of the last event that it took."""

    id: int
    url: str
    types: list[str]
    resource_id: str | None
    position: str
    failures: int
    last_error: str | None
    due_at: str | None
    created_at: str | None


class CreatedWebhook(Webhook):
    """With the secret that signs the events; it is not shown again."""

    secret: str


class Delivery(Answer):
    """One attempt to send an event."""

    id: int
    event_id: str
    type: str
    attempt: int
    status: int | None
    error: str | None
    duration_ms: int
    created_at: str | None


class Deleted(Answer):
    """It is gone."""

    deleted: Literal[True]


class Key(Answer):
    """A key; the key itself is nowhere stored."""

    id: int
    prefix: str = Field(description="Its first characters, to recognise it by.")
    name: str
    resource_id: str | None = Field(description="Narrowed to this resource; null: the whole tenant.")
    thread: str | None = Field(description="Narrowed to this thread of the resource.")
    read_only: bool
    state: Literal["active", "expired", "revoked"]
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    last_used_at: datetime | None = Field(description="To the minute.")


class NewKey(Key):
    """A key that was made now."""

    key: str = Field(description="The whole key. It cannot be shown again.")


class UsageItem(Answer):
    """Sums of model calls, with a field for each thing they are summed by (`day`, `resource`, `thread`, …)."""

    calls: int
    input_tokens: int
    output_tokens: int
    cost_usd: float


class Removed(Answer):
    """How many messages, chunks and reflections lost their text."""

    messages: int
    chunks: int
    reflections: int


class DeletedThread(Removed):
    """How many rows of each kind are gone."""

    jobs: int
    events: int


class DeletedResource(Answer):
    """How many rows of each kind are gone."""

    threads: int
    messages: int = 0
    chunks: int = 0
    reflections: int = 0
    jobs: int = 0
    events: int = 0
    usage: int
    keys: int
    webhooks: int


class Restored(Answer):
    """The base of the log now, and the tokens of the whole log."""

    generation: int
    log_tokens: int
