"""Optional OpenTelemetry spans from turn to model call; without the SDK, or without a provider, nothing happens.

A step is a PRODUCER span; a job is a CONSUMER span of its own trace, linked to the step that made it due (whose
`traceparent` is stored with the job, because the sweep rings without headers); a model call is a CLIENT span below it.
No span holds content: no prompts, no notes, no texts of errors.
"""

from __future__ import annotations

import os
import re
import sys
from contextlib import contextmanager, nullcontext
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, Final

from om_core.domain.errors import SetupError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from contextlib import AbstractContextManager

    from om_core.domain.job import Job
    from om_core.ports import ModelReply

EXPORTER_VARIABLE: Final = "OTEL_TRACES_EXPORTER"
NAME: Final = "om"
_TRACEPARENT: Final = re.compile(r"00-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})")
_NOTHING: Final[AbstractContextManager[Any]] = nullcontext()


def _trace() -> Any:
    """`opentelemetry.trace`, if this process has a tracer provider. Never imports it: who has one has imported it."""
    trace = sys.modules.get("opentelemetry.trace")
    if trace is None or isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
        return None
    return trace


def step(operation: str) -> AbstractContextManager[Any]:
    """The span of an append (PRODUCER: its commit makes jobs due) or of a context."""
    trace = _trace()
    if trace is None:
        return _NOTHING
    kind = trace.SpanKind.PRODUCER if operation == "append" else trace.SpanKind.INTERNAL
    return _span(trace, f"om {operation}", kind, {})


def job(claimed: Job) -> AbstractContextManager[Any]:
    """The CONSUMER span of one attempt, in a trace of its own, with a link to the step that made the job due."""
    trace = _trace()
    if trace is None:
        return _NOTHING
    attributes = {
        "om.job.id": claimed.id,
        "om.job.kind": claimed.kind.value,
        "om.job.attempt": claimed.attempt,
        "om.job.queue": claimed.queue.value,
        **_range(claimed.from_seq, claimed.to_seq),
    }
    cause = _remote(trace, claimed.traceparent)
    links = [] if cause is None else [trace.Link(cause)]
    return _span(trace, f"om {claimed.kind.value}", trace.SpanKind.CONSUMER, attributes, links=links, root=True)


def note_range(from_seq: int, to_seq: int) -> None:
    """Add to the job's span which messages it reads, once they are chosen."""
    trace = _trace()
    if trace is not None:
        trace.get_current_span().set_attributes(_range(from_seq, to_seq))


def note_outcome(outcome: str) -> None:
    """Add to the job's span how the attempt ended."""
    trace = _trace()
    if trace is not None:
        trace.get_current_span().set_attribute("om.job.outcome", outcome)


def chat(model: str) -> AbstractContextManager[Any]:
    """The CLIENT span of one model call, with the attributes of the conventions for generative AI."""
    trace = _trace()
    if trace is None:
        return _NOTHING
    provider, _, name = model.rpartition("/")
    attributes = {"gen_ai.operation.name": "chat", "gen_ai.request.model": name}
    if provider:
        attributes["gen_ai.provider.name"] = provider
    return _span(trace, f"chat {name}", trace.SpanKind.CLIENT, attributes)


def note_reply(span: Any, reply: ModelReply) -> None:
    """Add to a call's span what it used; `span` is what `chat` gave, None without tracing."""
    if span is None:
        return
    span.set_attributes(
        {"gen_ai.usage.input_tokens": reply.input_tokens, "gen_ai.usage.output_tokens": reply.output_tokens}
    )
    if reply.finish_reason:
        span.set_attribute("gen_ai.response.finish_reasons", (reply.finish_reason,))


def traceparent() -> str:
    """The current span in W3C's form, to be stored with a job; empty without one."""
    trace = _trace()
    context = None if trace is None else trace.get_current_span().get_span_context()
    if context is None or not context.is_valid:
        return ""
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"


def start_tracing(service: str) -> None:
    """Export the spans of this process as `OTEL_TRACES_EXPORTER` says; without it, or with `none`, do nothing.

    Raises:
        SetupError: it names an exporter, and the packages are not installed.
    """
    wanted = os.environ.get(EXPORTER_VARIABLE, "").strip().lower()
    if wanted in {"", "none"}:
        return
    name = "otlp_proto_http" if wanted == "otlp" else wanted
    try:
        from opentelemetry import trace
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        [found, *_] = entry_points(group="opentelemetry_traces_exporter", name=name)
        exporter = found.load()()
    except (ImportError, ValueError) as error:
        package = "opentelemetry-exporter-otlp-proto-http" if wanted == "otlp" else f"the package of {name}"
        what = f"{EXPORTER_VARIABLE} = {wanted!r}: this exporter is not installed"
        msg = f"{what}. Install om-pipeline[otel] and {package}, or unset the variable."
        raise SetupError(msg) from error
    provider = TracerProvider(resource=Resource.create({"service.name": os.environ.get("OTEL_SERVICE_NAME", service)}))
    provider.add_span_processor(BatchSpanProcessor(exporter))
    trace.set_tracer_provider(provider)


def _range(from_seq: int | None, to_seq: int | None) -> dict[str, int]:
    if from_seq is None or to_seq is None:
        return {}
    return {"om.range.from_seq": from_seq, "om.range.to_seq": to_seq}


def _remote(trace: Any, header: str) -> Any:
    """The span that a `traceparent` names; None if it names none."""
    found = _TRACEPARENT.match(header)
    if found is None:
        return None
    trace_id, span_id, flags = (int(part, 16) for part in found.groups())
    return trace.SpanContext(trace_id, span_id, is_remote=True, trace_flags=trace.TraceFlags(flags))


@contextmanager
def _span(
    trace: Any, name: str, kind: Any, attributes: Mapping[str, Any], *, links: Any = (), root: bool = False
) -> Iterator[Any]:
    """A current span; of an error only the class is kept, because its text may quote what was being worked on."""
    from opentelemetry.context import Context

    with trace.get_tracer(NAME).start_as_current_span(
        name,
        context=Context() if root else None,
        kind=kind,
        attributes=attributes,
        links=links,
        record_exception=False,
        set_status_on_exception=False,
    ) as span:
        try:
            yield span
        except BaseException as error:
            span.set_attribute("error.type", type(error).__name__)
            span.set_status(trace.StatusCode.ERROR)
            raise
