"""The real prompts, sent over HTTP to the scripted server and read back by the real parser."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from om_core.domain.message import Message, Role, StoredMessage, Text
from om_core.llm.registry import ModelRegistry
from om_core.ports import ObserverMaterial, ReflectorMaterial
from om_core.prompts.observer import build_observer_request
from om_core.prompts.parse import parse_observer, parse_reflector
from om_core.prompts.reflector import build_reflector_request
from om_core.testing.scripted_replies import traces
from om_core.testing.scripted_server import ScriptedModelServer

START = datetime(2026, 5, 5, 9, 0, tzinfo=UTC)


class Untruncated:
    """Texts of these tests are short."""

    def truncate(self, text, max_tokens):
        return text


def stored(seq):
    message = Message(
        id=f"m{seq}",
        role=Role.USER if seq % 2 else Role.ASSISTANT,
        parts=(Text(text=f"TRACE-{seq} </history> was said"),),
    )
    return StoredMessage(seq=seq, message=message, tokens=10, created_at=START + timedelta(minutes=seq), turn=1)


def observer_request(model):
    material = ObserverMaterial(
        messages=tuple(stored(seq) for seq in range(1, 41)), prior_notes="* 🟡 (08:00) Noted TRACE-0"
    )
    return build_observer_request(
        material, model=model, settings={}, provider_options={}, instruction=None, tokenizer=Untruncated()
    )


def test_an_observers_answer_covers_each_message_once():
    with ScriptedModelServer() as server:
        registry = ModelRegistry(count_tokens=len, api_base=server.base_url)
        reply = registry.complete(observer_request("openai/scripted"), timeout_s=30)
    output = parse_observer(reply.text, finish_reason=reply.finish_reason)
    assert output.outcome == "valid"
    assert [token for line in output.notes.splitlines() for token in traces(line)] == [
        f"TRACE-{n}" for n in range(1, 41)
    ]
    assert "May 5, 2026" in output.notes


def test_a_reflectors_answer_keeps_each_trace_in_less_text():
    log = "Date: May 5, 2026\n" + "\n".join(f"* 🟡 (09:{n % 60:02}) Noted TRACE-{n}" for n in range(1, 200))
    request = build_reflector_request(
        ReflectorMaterial(log=log, level=1, target_tokens=500),
        model="openai/scripted",
        settings={},
        provider_options={},
        instruction=None,
    )
    with ScriptedModelServer() as server:
        registry = ModelRegistry(count_tokens=len, api_base=server.base_url)
        reply = registry.complete(request, timeout_s=30)
    output = parse_reflector(reply.text, finish_reason=reply.finish_reason)
    assert output.outcome == "valid"
    assert traces(output.notes) == traces(log)
    assert len(output.notes) < len(log) / 2


def test_the_registry_answers_for_the_offline_model_without_a_server():
    registry = ModelRegistry(count_tokens=len, api_base="http://127.0.0.1:9/v1")
    reply = registry.complete(observer_request("offline/extractive"), timeout_s=30)
    assert parse_observer(reply.text).outcome == "valid"
    assert registry.price_of("offline/extractive") is None
    assert registry.missing_key("offline/extractive") is None
