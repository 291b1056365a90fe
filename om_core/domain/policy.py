"""The numbers of one memory, resolved: absolute, validated together, with the unit in the name (DESIGN 6).

`om_core.options.resolve_policy` turns the user's option tree into this; nothing below reads options.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal, TypeAlias

from om_core.domain.errors import GiveUpError

if TYPE_CHECKING:
    from om_core.domain.message import JsonObject

Scope: TypeAlias = Literal["thread", "resource"]
Ttl: TypeAlias = float | Literal["auto"] | None
"""Seconds, `auto` (from the actor's provider) or None for never."""

DEFAULT_MODEL = "google/gemini-2.5-flash"
OFFLINE_MODEL = "offline/extractive"


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseModel:
    """Which model a phase calls, and how. `max_attempt_s` bounds one call, whatever the server does."""

    name: str = DEFAULT_MODEL
    fallbacks: tuple[str, ...] = ()
    settings: JsonObject = field(default_factory=dict)
    provider_options: JsonObject = field(default_factory=dict)
    max_attempt_s: float = 120.0
    window_tokens: int | None = None
    """Input window, if the user sets it; else the model's own is looked up."""
    by_input_tokens: tuple[tuple[int, str], ...] = ()
    """Rising input sizes and the model to use up to each (`ModelByInputTokens`); empty: always `name`."""

    def model_for(self, input_tokens: int) -> str:
        """The model for an input of this size: the first limit that is not below it.

        Raises:
            GiveUpError: the input is larger than the largest limit. `window_tokens` never exceeds that limit, so
                an input cut to the window does not get here.
        """
        for limit, name in self.by_input_tokens:
            if input_tokens <= limit:
                return name
        if self.by_input_tokens:
            largest = self.by_input_tokens[-1][0]
            raise GiveUpError(f"input of {input_tokens} tokens: the largest up_to limit of this model is {largest}")
        return self.name


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtractorSpec:
    """One value that the Observer or Reflector extracts besides its notes, as data (behaviour 6.1).

    Without `schema` the value is a text in the same answer (inline); with one (JSON Schema) it takes one more call;
    with neither instructions nor schema a function makes it (hook). Functions are names (`package.module:function`):
    a job is stored, and a worker imports what it names.
    """

    slug: str
    name: str
    instructions: str = ""
    schema: JsonObject | None = None
    include_previous_extraction: bool = True
    metadata_key_path: str | None = None
    """Where the value stands in the tree that `status` shows; None: it is not kept, only handed to `on_extracted`."""
    retry_structured_extraction_on_empty_object: bool = False
    instructions_from: str | None = None
    """Function that gives the instructions when they are needed."""
    schema_from: str | None = None
    """Function that gives the schema when it is needed."""
    on_extracted: str | None = None
    """Function that is told the value before it is kept, and may replace it."""

    @property
    def is_structured(self) -> bool:
        """Whether it has a schema."""
        return self.schema is not None or self.schema_from is not None

    @property
    def is_asked(self) -> bool:
        """Whether a model is asked for it; else only a function makes it."""
        return bool(self.instructions or self.instructions_from)

    @property
    def is_inline(self) -> bool:
        """Whether it is a section of the notes' own answer."""
        return self.is_asked and not self.is_structured

    @property
    def is_late(self) -> bool:
        """Whether it is made after the notes are stored: by a call of its own, or with a function."""
        return self.is_structured or self.on_extracted is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkingMemoryPolicy:
    """The document that is always shown (behaviour 6.6). With a `schema` it is a JSON object, else markdown."""

    enabled: bool = False
    scope: Scope = "resource"
    template: str | None = None
    schema: JsonObject | None = None
    agent_managed: bool = True
    """Whether the agent is offered the tool that changes it."""


def _default_observer() -> PhaseModel:
    return PhaseModel(
        settings={"max_output_tokens": 100_000},
        provider_options={"google": {"thinkingConfig": {"thinkingBudget": 215}}},
    )


def _default_reflector() -> PhaseModel:
    return PhaseModel(
        settings={"max_output_tokens": 100_000},
        provider_options={"google": {"thinkingConfig": {"thinkingBudget": 1024}}},
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservationPolicy:
    """When and how messages become notes. Token counts are absolute; the reference's names, resolved."""

    model: PhaseModel = field(default_factory=_default_observer)
    message_tokens: int = 30_000
    buffer_tokens: int | None = 6_000
    """Unbuffered tokens that make an observe job due; None: buffering is off."""
    retention_tokens: int = 6_000
    """The floor F that activation leaves raw: threshold x (1 - buffer_activation), or the absolute option.

    0 when buffering is off: everything observed leaves the prompt, as in the reference.
    """
    block_after_tokens: int = 36_000
    """From here on a context call may wait (DESIGN 6.4); equal to the threshold when buffering is off."""
    block_timeout_s: float = 30.0
    previous_observer_tokens: int | None = 2_000
    """Most tokens of earlier notes shown to the Observer; None: as many as half of its input has room for, 0: none."""
    buffer_on_idle: bool = False
    buffer_max_age_s: float = 3_600.0
    open_call_max_age_s: float = 3_600.0
    activate_after_idle_s: Ttl = None
    activate_on_provider_change: bool = False
    instruction: str | None = None
    thread_title: bool = False
    current_task: bool = True
    suggested_response: bool = True
    observe_attachments: bool | Literal["auto"] | tuple[str, ...] = ("image/*", "application/pdf")
    """All, none, as the model can, or lower-case MIME patterns: exact, `type/*`, `*` or `*/*`."""
    max_tokens_per_batch: int = 10_000
    """Most tokens that one job takes of a thread in resource scope, so that the threads of a resource take turns."""
    extract: tuple[ExtractorSpec, ...] = ()
    manage_working_memory: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ReflectionPolicy:
    """When and how the log is condensed."""

    model: PhaseModel = field(default_factory=_default_reflector)
    observation_tokens: int = 40_000
    buffer_at_tokens: int | None = 20_000
    """Log size at which a background reflection is due; None: only at the threshold itself."""
    block_after_tokens: int = 48_000
    activate_after_idle_s: Ttl = None
    activate_on_provider_change: bool = False
    instruction: str | None = None
    current_task: bool = True
    suggested_response: bool = True
    extract: tuple[ExtractorSpec, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPolicy:
    """Limits of background work (DESIGN 2.9). Times in seconds."""

    max_failures: int = 3
    max_expired_leases: int = 5
    backoff_base_s: float = 5.0
    backoff_cap_s: float = 300.0
    breaker_failures: int = 5
    """Outages of a model in a row, of all workers together, that open its breaker."""
    breaker_base_s: float = 30.0
    """How long it stays open first; twice as long after each probe that fails."""
    breaker_cap_s: float = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitsPolicy:
    """Bounds on what background work may use at once and per day (UTC), of the whole installation (DESIGN 5)."""

    in_flight: int = 256
    """Running jobs of one tenant."""
    tokens_per_day: JsonObject = field(default_factory=dict)
    """Most tokens, in and out, by scope: `thread`, `resource`, `tenant`. A scope that is not there has no limit."""
    usd_per_day: JsonObject = field(default_factory=dict)
    """The same in US dollars."""
    prices: JsonObject = field(default_factory=dict)
    """US dollars per million tokens of models without a list price: {model: {"input": …, "output": …}}."""
    extracted_bytes: int = 8_192
    """Most UTF-8 bytes of one extracted value; a larger one is a failure of its extractor."""
    working_memory_bytes: int = 16_384
    """Most UTF-8 bytes of a working memory; a larger one is refused."""
    other_threads_tokens: int = 2_000
    """Most tokens of a context for what other threads of a shared memory said that is not in the log yet; 0: none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetrievalPolicy:
    """Whether the actor gets the `recall` tool, how far it sees, and whether notes are indexed for it."""

    enabled: bool = False
    vector: bool = False
    scope: Scope = "resource"
    instructions: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryPolicy:
    """Everything `decide`, activation and context need to know, in absolute numbers."""

    scope: Scope = "thread"
    observation: ObservationPolicy = field(default_factory=ObservationPolicy)
    reflection: ReflectionPolicy = field(default_factory=ReflectionPolicy)
    job: JobPolicy = field(default_factory=JobPolicy)
    limits: LimitsPolicy = field(default_factory=LimitsPolicy)
    enabled: bool = True
    share_token_budget: bool = False
    """One budget for messages and log: the threshold grows to message_tokens + observation_tokens less the log."""
    temporal_markers: bool = False
    retrieval: RetrievalPolicy = field(default_factory=RetrievalPolicy)
    working_memory: WorkingMemoryPolicy = field(default_factory=WorkingMemoryPolicy)
    obscure_thread_ids: bool = False
    hook_execution: Literal["non_blocking", "await"] = "non_blocking"

    def with_shared_budget(self, log_tokens: int) -> MemoryPolicy:
        """This policy where messages may take what a log of this size leaves of the common budget; never less than
        `message_tokens`. The same policy without `share_token_budget`.
        """
        if not self.share_token_budget:
            return self
        budget = self.observation.message_tokens + self.reflection.observation_tokens
        threshold = max(self.observation.message_tokens, budget - log_tokens)
        shared = replace(self.observation, message_tokens=threshold, block_after_tokens=threshold)
        return replace(self, observation=shared)

    @property
    def buffering(self) -> bool:
        """Whether notes are made ahead of the threshold."""
        return self.observation.buffer_tokens is not None
