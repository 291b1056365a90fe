"""Spans from turn to model call, in memory; nothing without a provider, and no content in any of them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from om_core import tracing
from om_core.domain.errors import RetryLaterError, SetupError
from om_core.memory import Memory
from om_core.services.run_jobs import JobRunner
from tests.integration.api_server import api_of
from tests.support.fixtures import SMALL
from tests.support.jobs import work_off
from tests.support.services import conversation

if TYPE_CHECKING:
    from collections.abc import Callable
    from threading import Event

    from opentelemetry.sdk.trace import ReadableSpan

    from om_core.ports import ModelReply, ModelRequest
    from om_core.services.deps import Services

CALLER = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture
def exporter(monkeypatch: pytest.MonkeyPatch) -> InMemorySpanExporter:
    """Spans of this test. The provider is put in place for it only: a real one could not be taken away again."""
    found = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(found))
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: provider)
    return found


def spans(exporter: InMemorySpanExporter, name: str) -> list[ReadableSpan]:
    return [span for span in exporter.get_finished_spans() if span.name == name]


def attributes(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


def test_a_job_is_a_trace_of_its_own_linked_to_the_step_that_made_it_due(
    services: Services, exporter: InMemorySpanExporter
) -> None:
    [job] = Memory(services).append("thread-secret", conversation(8), resource="person-secret").jobs
    work_off(services)

    [step] = spans(exporter, "om append")
    [run] = spans(exporter, "om observe")
    assert step.kind is trace.SpanKind.PRODUCER
    assert run.kind is trace.SpanKind.CONSUMER
    assert run.parent is None
    assert run.context.trace_id != step.context.trace_id
    assert [link.context.span_id for link in run.links] == [step.context.span_id]
    assert [link.context.trace_id for link in run.links] == [step.context.trace_id]
    assert attributes(run) == {
        "om.job.id": job.id,
        "om.job.kind": "observe",
        "om.job.attempt": 1,
        "om.job.queue": "buffering",
        "om.range.from_seq": 1,
        "om.range.to_seq": 8,
        "om.job.outcome": "ok",
    }


def test_a_model_call_is_a_client_span_below_its_job_with_what_it_used(
    services: Services, exporter: InMemorySpanExporter
) -> None:
    Memory(services).append("t", conversation(8), resource="r")
    work_off(services)

    [run], [chat] = spans(exporter, "om observe"), spans(exporter, "chat extractive")
    assert chat.kind is trace.SpanKind.CLIENT
    assert chat.parent is not None
    assert chat.parent.span_id == run.context.span_id
    found = attributes(chat)
    assert (found["gen_ai.operation.name"], found["gen_ai.provider.name"]) == ("chat", "offline")
    assert found["gen_ai.request.model"] == "extractive"
    assert found["gen_ai.usage.input_tokens"] > 0
    assert found["gen_ai.usage.output_tokens"] > 0


def test_every_job_is_linked_to_what_made_it_due_whatever_that_was(
    services: Services, exporter: InMemorySpanExporter
) -> None:
    memory = Memory(services)
    for start in range(1, 60, 4):
        memory.append("t", conversation(4, start=start), resource="r")
        work_off(services)
        memory.context("t")
    work_off(services)
    names = {span.context.span_id: span.name for span in exporter.get_finished_spans()}
    causes = {
        (run.name, names[link.context.span_id])
        for run in exporter.get_finished_spans()
        for link in run.links
        if run.kind is trace.SpanKind.CONSUMER
    }
    assert ("om observe", "om append") in causes
    assert {name for name, _ in causes} == {"om observe", "om reflect"}
    assert all(len(run.links) == 1 for run in exporter.get_finished_spans() if run.kind is trace.SpanKind.CONSUMER)


class Failing:
    """A model whose error quotes the prompt."""

    def complete(self, request: ModelRequest, *, timeout_s: float, cancelled: Event | None) -> ModelReply:
        raise RetryLaterError("".join(str(message.content) for message in request.prompt))

    def window_tokens(self, model: str) -> int | None:
        return None


def test_no_span_holds_content_or_names_a_person_also_where_an_error_quotes_the_prompt(
    services_with: Callable[..., Services], exporter: InMemorySpanExporter
) -> None:
    services = services_with(SMALL, model=Failing())
    memory = Memory(services)
    memory.append("thread-secret", conversation(8), resource="person-secret")
    runner = JobRunner(services)
    assert runner.run("buffering") == "retry_later"
    runner.close()
    memory.context("thread-secret")

    [chat] = spans(exporter, "chat extractive")
    assert chat.status.status_code is trace.StatusCode.ERROR
    assert attributes(chat)["error.type"] == "RetryLaterError"
    everything = "".join(json.dumps(json.loads(span.to_json())) for span in exporter.get_finished_spans())
    assert "om context" in everything
    for word in ("TRACE-1", "Lisbon", "secret"):
        assert word not in everything


def test_a_request_goes_on_with_the_trace_of_its_caller(services: Services, exporter: InMemorySpanExporter) -> None:
    body = {"resource_id": "r", "format": "openai", "messages": conversation(2), "context": {}}
    with api_of(services) as client:
        assert client.post("/v1/threads/t/messages", json=body, headers={"traceparent": CALLER}).status_code == 200
        assert client.post("/v1/threads/u/messages", json=body, headers={"traceparent": "junk"}).status_code == 200
    [first, second] = spans(exporter, "om append")
    assert f"{first.context.trace_id:032x}" == CALLER.split("-")[1]
    assert f"{second.context.trace_id:032x}" != CALLER.split("-")[1]
    [context, _] = spans(exporter, "om context")
    assert context.context.trace_id == first.context.trace_id


def test_without_a_provider_nothing_is_stored_and_no_span_is_made(services: Services) -> None:
    Memory(services).append("t", conversation(8), resource="r")
    claimed = services.store.system.claim(queue="buffering", owner="w", lease_s=60)
    assert claimed is not None
    assert claimed.job.traceparent == ""
    with tracing.job(claimed.job) as span:
        assert span is None
    assert tracing.traceparent() == ""


@pytest.mark.parametrize("header", ["", "junk", f"00-{'0' * 32}-b7ad6b7169203331-01", f"01{CALLER[2:]}"])
def test_a_traceparent_that_names_no_span_links_to_nothing(
    services: Services, exporter: InMemorySpanExporter, header: str
) -> None:
    assert tracing._remote(trace, header) is None


def test_an_exporter_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "carrier-pigeon")
    with pytest.raises(SetupError, match="OTEL_TRACES_EXPORTER = 'carrier-pigeon'"):
        tracing.start_tracing("om-test")


@pytest.mark.parametrize("value", ["", "none"])
def test_without_an_exporter_no_provider_is_installed(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", value)
    tracing.start_tracing("om-test")
    assert isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider)
