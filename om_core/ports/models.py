"""The small interfaces between the memory and the world. Adapters live in `store`, `llm` and `workers`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime
    from threading import Event

    from om_core.domain.job import JobRef
    from om_core.domain.message import JsonObject, Message, OpenCall, StoredMessage


class Clock(Protocol):
    """Time of this process: for pauses and deadlines. What is stored comes from the database's clock."""

    def now(self) -> datetime:
        """The current time, aware, in UTC."""

    def monotonic(self) -> float:
        """Seconds that never go back."""


class TokenCounter(Protocol):
    """Counts once, at ingest; the count is stored with the message. Never raises, never negative."""

    def count_text(self, text: str) -> int:
        """Tokens of a text."""

    def count_message(self, message: Message, *, model: str | None = None) -> int:
        """What the actor's model sees of a message: text, calls, results, images and files by the provider's rules."""


class JobDispatcher(Protocol):
    """Rings: tells the workers of a queue that there is work. Losing or doubling a ring is harmless."""

    def ring(self, jobs: Iterable[JobRef]) -> None:
        """Hand over and return at once; never raises, never waits."""

    def close(self) -> None:
        """Stop the background publisher."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedValue:
    """A value that a model is asked for besides the notes. Without a schema it is a text."""

    slug: str
    name: str
    instructions: str
    previous: str = ""
    """What is believed of it so far, in words."""
    schema: JsonObject | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ObserverMaterial:
    """What the Observer is to read, as data. A prompt is rendered from it; the offline model works on it directly.

    `messages` hold the range in order; `open_calls` those of them without a result yet; `prior_notes` the newest
    earlier notes within their token limit, oldest line first. `timezone` is an IANA name.
    """

    messages: tuple[StoredMessage, ...]
    prior_notes: str = ""
    open_calls: tuple[OpenCall, ...] = ()
    timezone: str = "UTC"
    ask_current_task: bool = True
    ask_suggested_response: bool = False
    ask_thread_title: bool = False
    current_task: str | None = None
    thread_title: str | None = None
    values: tuple[AskedValue, ...] = ()
    """Asked for in sections of the same answer."""
    gaps: tuple[tuple[int, str], ...] = ()
    """Long pauses in words, by the seq of the message that ended one."""
    target_tokens: int | None = None
    """About how long the notes should be; None: as long as they need."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReflectorMaterial:
    """A log to condense: the base generation's text followed by notes, and how strongly (level 0 to 4)."""

    log: str
    level: int
    target_tokens: int
    guidance: str | None = None
    timezone: str = "UTC"
    values: tuple[AskedValue, ...] = ()
    """Asked for in sections of the same answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtractMaterial:
    """What values are to be worked out from: notes of a piece of conversation, and its messages if there are any."""

    values: tuple[AskedValue, ...]
    notes: str
    messages: tuple[StoredMessage, ...] = ()
    timezone: str = "UTC"
    most_tokens: int | None = None
    """Of the messages, as they are rendered; the rest is cut off."""
    again: bool = False
    """Whether this was asked before, without any value in the answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptMessage:
    """One message of a request to a model; content is text, or content blocks in OpenAI form."""

    role: Literal["system", "user"]
    content: str | list[JsonObject]


Phase: TypeAlias = Literal["observe", "reflect", "extract"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRequest:
    """One model call: the rendered prompt and the material it was rendered from (DESIGN 7).

    `failures`: how often this input had no usable answer before; the adapter asks differently then.
    """

    phase: Phase
    model: str
    prompt: tuple[PromptMessage, ...]
    material: ObserverMaterial | ReflectorMaterial | ExtractMaterial
    settings: JsonObject = field(default_factory=dict)
    provider_options: JsonObject = field(default_factory=dict)
    prompt_version: str = ""
    failures: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelReply:
    """A model's answer and its price. `cost_usd` is None for a model without a price."""

    text: str
    model: str
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    cost_usd: float | None = None
    finish_reason: str | None = None


class LanguageModel(Protocol):
    """Calls a model. Synchronous for the caller, who gets its thread blocked for at most `timeout_s`."""

    def complete(self, request: ModelRequest, *, timeout_s: float, cancelled: Event | None = None) -> ModelReply:
        """Answer within `timeout_s`, whatever the server does; stop early when `cancelled` is set.

        Raises:
            RetryLaterError: an outage, a limit, a time-out, or `cancelled`.
            GiveUpError: this input cannot be processed by this model (too long, refused by policy).
            SetupError: a missing or wrong key, an unknown model.
        """

    def window_tokens(self, model: str) -> int | None:
        """The model's input window in tokens, or None when it is not known."""


class SecretRedactor(Protocol):
    """Replaces secrets in a text before it reaches a model or the log."""

    def redact(self, text: str) -> str:
        """The text with every recognised secret replaced by a fixed mark."""


class TextTokenizer(Protocol):
    """Bounded cutting by tokens, for rendering."""

    def truncate(self, text: str, max_tokens: int) -> str:
        """The longest prefix of at most `max_tokens` tokens, never splitting a character."""


def total_usage(replies: Sequence[ModelReply]) -> tuple[int, int, float]:
    """Input tokens, output tokens and cost of several calls; calls without a price count as 0."""
    return (
        sum(reply.input_tokens for reply in replies),
        sum(reply.output_tokens for reply in replies),
        sum(reply.cost_usd or 0.0 for reply in replies),
    )
