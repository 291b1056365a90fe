"""Values beside the notes (behaviour 6): which are asked for, what of an answer is kept, and where.

A failing extractor fails nothing but itself: its failure is kept beside the value before, and told in the event.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from om_core.domain.errors import ConflictError, InvalidInputError, PolicyError, SetupError
from om_core.domain.extraction import ERROR_CHARS, Extraction, Outcome, bounded, value_text
from om_core.domain.policy import ExtractorSpec
from om_core.domain.working_memory import DEFAULT_TEMPLATE
from om_core.formats.sanitise import sanitise_text
from om_core.options.functions import load
from om_core.options.json_schema import mismatch, resolve_schema
from om_core.ports import AskedValue
from om_core.prompts.degenerate import degenerate_reason
from om_core.prompts.extract import working_memory_instructions
from om_core.prompts.redact import redact, redact_values
from om_core.services.extraction_event import ExtractionRequest, call_function
from om_core.services.working_memory import Origin, merge_in

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from om_core.domain.extraction import Source
    from om_core.domain.job import Job
    from om_core.domain.message import Json, JsonObject
    from om_core.domain.policy import MemoryPolicy
    from om_core.domain.thread import Snapshot, ThreadState
    from om_core.ports import Kept, Transaction
    from om_core.prompts.parse import ObserverOutput, ReflectorOutput

WORKING_MEMORY = "working-memory"
"""Slug of the document that the Observer keeps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What one run asks for, besides the notes."""

    specs: tuple[ExtractorSpec, ...] = ()
    values: tuple[AskedValue, ...] = ()
    failures: Mapping[str, str] = field(default_factory=dict)
    """By slug: what kept a value from being asked for."""
    shown_chunks: tuple[int, ...] = ()
    """Chunks whose values are shown: deletion follows these ids (DESIGN 3.3)."""

    @property
    def slugs(self) -> tuple[str, ...]:
        return tuple(value.slug for value in self.values)


def specs_of(policy: MemoryPolicy, source: Source) -> tuple[ExtractorSpec, ...]:
    """The extractors of a phase; of the Observer also the working memory, where it keeps that."""
    if source == "reflector":
        return policy.reflection.extract
    specs = policy.observation.extract
    managed = policy.observation.manage_working_memory and policy.working_memory.enabled
    if not managed or any(spec.slug == WORKING_MEMORY for spec in specs):
        return specs
    options = policy.working_memory
    template = None if options.schema is not None else options.template or DEFAULT_TEMPLATE
    document = ExtractorSpec(
        slug=WORKING_MEMORY,
        name="Working Memory",
        instructions=working_memory_instructions(template),
        schema=None if options.schema is None else _change_of(options.schema),
        retry_structured_extraction_on_empty_object=True,
    )
    return (*specs, document)


def _change_of(schema: JsonObject) -> JsonObject:
    """What a change of the document looks like: no field is required, and null deletes."""
    return {name: value for name, value in schema.items() if name != "required"}


def want(
    specs: Iterable[ExtractorSpec],
    kept: Kept,
    snapshot: Snapshot,
    policy: MemoryPolicy,
    source: Source,
    *,
    timeout_s: float,
) -> Wanted:
    """What to ask for of these extractors; runs the functions that say it, so never within a transaction."""
    asked: list[AskedValue] = []
    failures: dict[str, str] = {}
    shown: list[int] = []
    chosen = tuple(specs)
    for spec in chosen:
        if not spec.is_asked:
            continue
        previous, chunk = _previous(spec, kept, policy)
        if not spec.include_previous_extraction:
            previous, chunk = None, None
        try:
            asked.append(_asked(spec, previous, _request(spec, previous, snapshot, source), timeout_s))
        except Exception as error:  # a function of the installation's own
            failures[spec.slug] = failure(error)
            continue
        if chunk is not None:
            shown.append(chunk)
    return Wanted(
        specs=chosen, values=redact_values(asked), failures=failures, shown_chunks=tuple(dict.fromkeys(shown))
    )


def previous_value(spec: ExtractorSpec, kept: Kept, policy: MemoryPolicy) -> Json:
    """The value as it is kept, or None."""
    return _previous(spec, kept, policy)[0]


def _previous(spec: ExtractorSpec, kept: Kept, policy: MemoryPolicy) -> tuple[Json, int | None]:
    """The value as it is kept, and the chunk it was made from."""
    if is_working_memory(spec):
        scope = policy.working_memory.scope
        document = next((found for found in kept.working_memory if found.scope == scope), None)
        return (None, None) if document is None else (document.value() or None, document.chunk_id)
    found = next((found for found in kept.extractions if found.slug == spec.slug), None)
    return (None, None) if found is None else (found.value, found.chunk_id)


def is_working_memory(spec: ExtractorSpec) -> bool:
    """Whether this is the document, and not an extractor of the installation's own by that name."""
    return spec.slug == WORKING_MEMORY and spec.metadata_key_path is None and spec.on_extracted is None


def _request(spec: ExtractorSpec, previous: Json, snapshot: Snapshot, source: Source) -> ExtractionRequest:
    thread = snapshot.thread
    return ExtractionRequest(
        source=source,
        slug=spec.slug,
        name=spec.name,
        tenant=thread.tenant_id,
        thread=thread.external_id,
        resource=thread.resource_id,
        timezone=thread.timezone or "UTC",
        previous=previous,
    )


def _asked(spec: ExtractorSpec, previous: Json, request: ExtractionRequest, timeout_s: float) -> AskedValue:
    """The value with its instructions and schema, made by functions where they are.

    Raises:
        InvalidInputError, PolicyError: a function gave something else than a text, or than a schema.
    """
    instructions: Any = spec.instructions
    if spec.instructions_from is not None:
        instructions = call_function(load(spec.instructions_from), request, timeout_s=timeout_s)
        if not isinstance(instructions, str) or not instructions.strip():
            raise InvalidInputError("gave no text", path=spec.instructions_from)
    schema = spec.schema
    if spec.schema_from is not None:
        made = call_function(load(spec.schema_from), request, timeout_s=timeout_s)
        schema = resolve_schema(made, spec.schema_from)
    # The document is shown whole: what is not shown of it would be lost with the text that replaces it.
    known = value_text(previous)
    return AskedValue(
        slug=spec.slug,
        name=spec.name,
        instructions=instructions,
        previous=known if is_working_memory(spec) else bounded(known),
        schema=schema,
    )


def failure(error: BaseException) -> str:
    """A failure in one line, without secrets."""
    ours = isinstance(error, InvalidInputError | PolicyError | SetupError | ConflictError)
    text = str(error) if ours else f"{type(error).__name__}: {error}"
    return redact(sanitise_text(" ".join(text.split())))[:ERROR_CHARS]


def judge(spec: ExtractorSpec, value: Json, schema: JsonObject | None, policy: MemoryPolicy) -> Outcome:
    """A value as it came, if it fits; nothing for None and blank texts."""
    if value is None or (isinstance(value, str) and not value.strip()):
        return Outcome(slug=spec.slug)
    # A change of the document is held against the schema with all the rest of it, when it is merged.
    if schema is not None and not is_working_memory(spec) and (problem := mismatch(value, schema)) is not None:
        return Outcome(slug=spec.slug, error=redact(sanitise_text(f"does not fit its schema: {problem}"))[:ERROR_CHARS])
    if isinstance(value, str) and (reason := degenerate_reason(value)) is not None:
        return Outcome(slug=spec.slug, error=redact(reason)[:ERROR_CHARS])
    size = len(value_text(value).encode())
    if not is_working_memory(spec) and size > policy.limits.extracted_bytes:
        most = policy.limits.extracted_bytes
        return Outcome(slug=spec.slug, error=f"{size:,} bytes; limits.extracted_bytes allows {most:,}")
    return Outcome(slug=spec.slug, value=value)


def answered(wanted: Sequence[str], output: ObserverOutput | ReflectorOutput) -> JsonObject:
    """What one answer gave for each slug, as it is saved with the call: an answer that stopped at the model's limit may
    have lost its last words, and its values come last.
    """
    if output.truncated:
        return {"values": {}, "failures": dict.fromkeys(wanted, "the answer stopped at the model's output limit")}
    return {"values": dict(output.extra), "failures": {}}


def with_known(values: Sequence[AskedValue], done: Sequence[JsonObject]) -> tuple[AskedValue, ...]:
    """The values as the calls before gave them: a range in slices is asked slice by slice."""
    found: JsonObject = {}
    for item in done:
        found |= item.get("values", {})
    return tuple(replace(value, previous=found.get(value.slug, value.previous)) for value in values)


@dataclass(frozen=True, slots=True, kw_only=True)
class InlineValues:
    """What the sections of one or more answers gave for the inline extractors, functions not yet run."""

    policy: MemoryPolicy
    specs: tuple[ExtractorSpec, ...]
    outcomes: tuple[Outcome, ...]
    shown_chunks: tuple[int, ...]

    @property
    def extracted(self) -> JsonObject:
        """The values by slug, for the chunk."""
        documents = {spec.slug for spec in self.specs if is_working_memory(spec)}
        return {
            found.slug: found.value
            for found in self.outcomes
            if found.value is not None and found.slug not in documents
        }

    @property
    def settled(self) -> list[Outcome]:
        """Those that no function has to see first."""
        late = {spec.slug for spec in self.specs if spec.is_late}
        return [found for found in self.outcomes if found.slug not in late or found.error is not None]

    @property
    def late(self) -> bool:
        """Whether values are left to be made by a job of their own."""
        return any(spec.is_late for spec in self.specs)


def inline_values(policy: MemoryPolicy, source: Source, replies: Sequence[JsonObject]) -> InlineValues:
    """The values of saved calls, judged; of several calls the last that gave one."""
    specs = specs_of(policy, source)
    values: JsonObject = {}
    failures: JsonObject = {}
    shown: list[int] = []
    for item in replies:
        values |= item.get("values", {})
        failures |= item.get("failures", {})
        shown += item.get("values_of", ())
    outcomes: list[Outcome] = []
    for spec in specs:
        if not spec.is_inline:
            continue
        if spec.slug in failures and spec.slug not in values:
            outcomes.append(Outcome(slug=spec.slug, error=failures[spec.slug]))
        else:
            outcomes.append(judge(spec, values.get(spec.slug), None, policy))
    return InlineValues(policy=policy, specs=specs, outcomes=tuple(outcomes), shown_chunks=tuple(dict.fromkeys(shown)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What an event says of the values of a run."""

    values: JsonObject = field(default_factory=dict)
    failures: tuple[JsonObject, ...] = ()


def keep(
    tx: Transaction,
    policy: MemoryPolicy,
    thread: ThreadState,
    job: Job,
    specs: Sequence[ExtractorSpec],
    outcomes: Iterable[Outcome],
    where: Extraction,
) -> Told:
    """Store what a run gave: values, failures, the document. `where` says from which messages or generation."""
    by_slug = {spec.slug: spec for spec in specs}
    values: JsonObject = {}
    failures: list[JsonObject] = []
    for given in outcomes:
        spec = by_slug[given.slug]
        document = is_working_memory(spec)
        outcome = _into_document(tx, policy, thread, job, given, where) if document else given
        if outcome.error is not None:
            failures.append({"slug": spec.slug, "error": outcome.error})
        elif outcome.value is not None and not document:
            values[spec.slug] = outcome.value
        if outcome.says_something:
            # A value without a place of its own only takes back the failure before.
            value = None if document or spec.metadata_key_path is None else outcome.value
            new = replace(where, slug=spec.slug, value=value, signal=outcome.signal, error=outcome.error)
            tx.extractions.put(thread.memory_id, new)
    return Told(values=values, failures=tuple(failures))


def _into_document(
    tx: Transaction, policy: MemoryPolicy, thread: ThreadState, job: Job, outcome: Outcome, where: Extraction
) -> Outcome:
    """Write the working memory, unless nothing was said of it."""
    if outcome.value is None:
        return outcome
    origin = Origin(
        source="observer",
        thread=thread,
        job_id=job.id,
        from_seq=where.from_seq,
        to_seq=where.to_seq,
        cycle_id=job.cycle_id,
        chunk_id=job.chunk_id,
    )
    try:
        merge_in(tx, policy, thread, outcome.value, origin, path=WORKING_MEMORY)
    except (InvalidInputError, ConflictError) as error:
        return Outcome(slug=outcome.slug, error=failure(error))
    return outcome
