"""The gateways: what is passed on untouched, what is stored, and that memory never costs an answer (API 3)."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import psycopg2
import pytest

from api.app import create_app
from api.gateway.turn import GatewayTurn
from om_core.services.keys import create_key
from om_core.testing.scripted_server import Reply, ScriptedModelServer
from tests.integration.api_server import serving
from tests.integration.gateway_world import FACT, World, gateway
from tests.support.jobs import work_off
from tests.support.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import httpx

    from om_core.services.deps import Services

CHAT = "/v1/chat/completions"
MEMORY = {"X-OM-Thread": "t", "X-OM-Resource": "r"}
OTHER_FORM = "every form of a refusal"


def user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def answer(request: dict[str, Any], number: int) -> Reply:
    return Reply(text=f"answer {number}", cached_tokens=2)


@pytest.fixture
def world(services_with: Callable[..., Services]) -> Iterator[World]:
    with gateway(services_with, answer) as opened:
        yield opened


def post(world: World, messages: list[Any], *, headers: dict[str, str] | None = None, **body: Any) -> httpx.Response:
    """Not `client.post`: gateways answer in the provider's form."""
    asked = {"model": "scripted", "messages": messages, **body}
    return world.client.raw("POST", CHAT, json=asked, headers=MEMORY if headers is None else headers)


def test_a_gateway_that_ends_leaves_no_connection_open(services: Services) -> None:
    with ScriptedModelServer(answer) as provider:
        with serving(create_app(services, auth="off", model_api_base=provider.base_url)) as client:
            assert client.raw("POST", CHAT, json={"model": "scripted", "messages": [user("hello")]}).status_code == 200
            assert provider.connections == 1

        eventually(lambda: provider.connections == 0, what="the connection ends")


@pytest.mark.report("B16")
def test_without_a_thread_a_request_passes_untouched_and_nothing_is_stored(world: World) -> None:
    extra = {"temperature": 0.3, "seed": 4, "my_own_field": {"deep": [1]}, "user": "u", "logprobs": None}
    response = post(world, [user("hello")], headers={}, **extra)

    assert (response.status_code, response.headers["x-om-memory"]) == (200, "off")
    sent = world.provider.calls[-1].request
    assert sent["messages"] == [user("hello")]
    assert {name: sent.get(name) for name in extra} == extra
    assert response.json()["choices"][0]["message"]["content"] == "answer 1"
    assert response.json()["usage"]["prompt_tokens_details"]["cached_tokens"] == 2
    assert world.memory.threads().items == ()


@pytest.mark.parametrize("field", ["api_base", "base_url", "api_key", "custom_llm_provider", "mock_response", "proxy"])
def test_a_request_cannot_steer_the_call(world: World, field: str) -> None:
    with ScriptedModelServer(answer) as elsewhere:
        response = post(world, [user("hello")], **{field: elsewhere.base_url})  # type: ignore[arg-type]  # fields of a body
        assert response.json()["choices"][0]["message"]["content"] == "answer 1"
        assert elsewhere.calls == []
    assert world.provider.calls[-1].headers["authorization"] == "Bearer none"


@pytest.mark.conforms("1.1")
@pytest.mark.parametrize("place", ["headers", "body"])
def test_a_thread_switches_memory_on(world: World, place: str) -> None:
    body = {"memory": {"thread": "t", "resource": "r"}} if place == "body" else {}
    response = post(world, [user("hello")], headers=None if place == "headers" else {}, **body)

    assert response.headers["x-om-memory"] == "on"
    assert "memory" not in world.provider.calls[-1].request
    assert world.stored() == [("user", "hello"), ("assistant", "answer 1")]


@pytest.mark.report("C11")
def test_a_history_sent_whole_and_one_sent_in_steps_are_stored_alike(world: World) -> None:
    whole: list[Any] = []
    for n in range(4):
        whole.append(user(f"question {n}"))
        reply = post(world, whole).json()["choices"][0]["message"]
        whole.append({name: reply[name] for name in ("role", "content")})
        post(world, [user(f"question {n}")], headers={**MEMORY, "X-OM-Thread": "steps"})
    assert [text for _, text in world.stored()] == [message["content"] for message in whole]
    assert [role for role, _ in world.stored("steps")] == ["user", "assistant"] * 4


def test_the_reply_closes_the_turn_unless_it_calls_a_tool(services_with: Callable[..., Services]) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "look_up", "arguments": "{}"}}

    def script(request: dict[str, Any], number: int) -> Reply:
        return Reply(text=None, tool_calls=(call,)) if number == 1 else Reply(text="done")

    with gateway(services_with, script) as world:
        first = post(world, [user("price?")]).json()["choices"][0]["message"]
        assert first["tool_calls"][0]["id"] == "c1"
        turns = {row.turn for row in world.memory.messages("t", resource="r")}
        result = {"role": "tool", "tool_call_id": "c1", "content": "7 euros"}
        post(world, [user("price?"), {"role": "assistant", "content": None, "tool_calls": [call]}, result])
        rows = world.memory.messages("t", resource="r")
        assert [row.message.role.value for row in rows] == ["user", "assistant", "tool", "assistant"]
        assert {row.turn for row in rows} == turns
        post(world, [user("thanks")])
        assert world.memory.messages("t", resource="r")[-1].turn not in turns


def test_a_repeated_request_with_the_same_key_stores_its_message_once(world: World) -> None:
    for _ in range(2):
        post(world, [user("hello")], headers={**MEMORY, "Idempotency-Key": "k1"})
    assert [text for role, text in world.stored() if role == "user"] == ["hello"]


def read_events(response: httpx.Response) -> list[str]:
    return [line[6:] for line in response.iter_lines() if line.startswith("data: ")]


def test_a_streamed_reply_is_passed_on_and_stored_before_its_end(world: World) -> None:
    asked = {
        "model": "scripted",
        "messages": [user("hello")],
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    with world.client.stream("POST", CHAT, json=asked, headers=MEMORY) as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        events = read_events(response)
    assert events[-1] == "[DONE]"
    chunks = [json.loads(event) for event in events[:-1]]
    text = "".join(choice["delta"].get("content") or "" for chunk in chunks for choice in chunk["choices"])
    assert text == "answer 1"
    assert chunks[-1]["usage"]["prompt_tokens_details"]["cached_tokens"] == 2
    assert world.stored() == [("user", "hello"), ("assistant", "answer 1")]


def test_a_reply_is_stored_although_the_client_has_hung_up(services_with: Callable[..., Services]) -> None:
    def script(request: dict[str, Any], number: int) -> Reply:
        return Reply(text="a long answer in many pieces", drip_s=0.05)

    with gateway(services_with, script) as world:
        asked = {"model": "scripted", "messages": [user("hello")], "stream": True}
        with world.client.stream("POST", CHAT, json=asked, headers=MEMORY) as response:
            next(response.iter_bytes())
        eventually(lambda: len(world.stored()) == 2, what="the reply is stored")
        assert world.stored()[-1] == ("assistant", "a long answer in many pieces")


def test_a_client_that_answers_before_its_stream_has_ended_makes_no_second_copy(world: World) -> None:
    turn_of_another = [user("hello"), {"role": "assistant", "content": "answer 1"}, user("next")]
    original = GatewayTurn.finish

    async def late(self: GatewayTurn, reply: dict[str, Any], *, end_of_turn: bool) -> None:
        world.memory.append("t", turn_of_another, resource="r")
        await original(self, reply, end_of_turn=end_of_turn)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(GatewayTurn, "finish", late)
        post(world, [user("hello")])
    assert [text for _, text in world.stored()] == ["hello", "answer 1", "next"]


def test_a_provider_s_error_arrives_as_the_provider_gave_it(services_with: Callable[..., Services]) -> None:
    body = {"error": {"message": "slow down", "type": "rate", "param": None, "code": "rl", "extra": OTHER_FORM}}

    def script(request: dict[str, Any], number: int) -> Reply:
        return Reply(status=429, headers={"Retry-After": "7"}, body=body)

    with gateway(services_with, script) as world:
        for stream in (False, True):
            response = post(world, [user("hello")], stream=stream)
            assert (response.status_code, response.headers["retry-after"]) == (429, "7")
            assert response.json() == body
        assert {role for role, _ in world.stored()} == {"user"}


def test_a_provider_that_is_away_is_a_bad_gateway(services_with: Callable[..., Services]) -> None:
    with gateway(services_with, answer) as world:
        world.provider.close()
        response = post(world, [user("hello")])
    assert response.status_code in {500, 502, 503}
    assert response.json()["error"]["type"] == "server_error"
    assert "Traceback" not in response.text


@pytest.mark.report("B15")
def test_a_prompt_that_is_too_long_is_shortened_and_tried_once_more(services_with: Callable[..., Services]) -> None:
    refusal = {"error": {"message": "maximum context length", "code": "context_length_exceeded"}}
    limit = [10**9]

    def script(request: dict[str, Any], number: int) -> Reply:
        too_long = len(str(request["messages"])) > limit[0]
        return Reply(status=400, body=refusal) if too_long else Reply(text=FACT.format(n=number))

    with gateway(services_with, script) as world:
        for n in range(30):
            post(world, [user(FACT.format(n=n) * 2)])
        limit[0] = int(len(str(world.prompts()[-1])) * 0.8)
        before = len(world.provider.calls)

        assert post(world, [user("And the last one?")]).status_code == 200

        first, second = world.prompts()[before:]
        assert len(str(second)) < len(str(first))
        assert "And the last one?" in str(second[-1]) + str(second[-2])
        limit[0] = 10
        assert post(world, [user("hopeless")]).json() == refusal
        assert len(world.provider.calls) <= before + 4


def test_without_its_database_the_gateway_still_answers(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(*_: Any, **__: Any) -> Any:
        raise psycopg2.OperationalError("the server closed the connection unexpectedly")

    monkeypatch.setattr("om_core.services.ingest.append", away)
    response = post(world, [user("hello")])

    assert (response.status_code, response.headers["x-om-memory"]) == (200, "unavailable")
    assert world.prompts() == [[user("hello")]]
    assert response.json()["choices"][0]["message"]["content"] == "answer 1"


def test_a_key_seen_lately_is_good_while_the_database_is_away_and_no_other(
    services_with: Callable[..., Services], monkeypatch: pytest.MonkeyPatch
) -> None:
    services = services_with()
    made = create_key(services, "default", name="agent")
    with ScriptedModelServer(answer) as provider:
        app = create_app(services, auth="keys", model_api_base=provider.base_url)
        with serving(app) as client:
            asked = {"json": {"model": "scripted", "messages": [user("hello")]}}
            own = {"Authorization": f"Bearer {made.secret}"}
            assert client.raw("POST", CHAT, headers=own, **asked).status_code == 200
            assert client.raw("POST", CHAT, headers={"x-api-key": made.secret}, **asked).status_code == 200
            wrong = client.raw("POST", CHAT, headers={"Authorization": "Bearer om_live_wrong"}, **asked)
            assert (wrong.status_code, wrong.json()["error"]["type"]) == (401, "authentication_error")

            def away(*_: Any, **__: Any) -> Any:
                raise psycopg2.OperationalError("the server closed the connection unexpectedly")

            monkeypatch.setattr("om_core.store.system.find_key", away)
            assert client.raw("POST", CHAT, headers=own, **asked).status_code == 200
            other = create_key(services, "default", name="other").secret
            refused = client.raw("POST", CHAT, headers={"Authorization": f"Bearer {other}"}, **asked)
            assert (refused.status_code, refused.json()["error"]["code"]) == (503, "database_unavailable")


def test_a_history_that_was_rewritten_is_passed_on_unchanged_and_not_stored(world: World) -> None:
    history: list[Any] = []
    for n in range(3):
        history.append(user(f"question {n}"))
        history.append(
            {"role": "assistant", "content": post(world, history).json()["choices"][0]["message"]["content"]}
        )
    stored = world.stored()
    rewritten = [*history[:3], {"role": "assistant", "content": "edited"}, user("other question")]

    response = post(world, rewritten)

    assert (response.status_code, response.headers["x-om-memory"]) == (200, "diverged")
    assert world.prompts()[-1] == rewritten
    assert world.stored() == stored


def test_read_only_reads_memory_and_stores_nothing(world: World) -> None:
    post(world, [user("My colour is blue.")])
    stored = world.stored()
    response = post(world, [user("What is my colour?")], headers={**MEMORY, "X-OM-Mode": "read_only"})

    assert response.headers["x-om-memory"] == "read_only"
    assert "My colour is blue." in str(world.prompts()[-1])
    assert "What is my colour?" in str(world.prompts()[-1])
    assert world.stored() == stored
    post(world, [user("secret")], headers={**MEMORY, "X-OM-Mode": "off"})
    assert world.prompts()[-1] == [user("secret")]
    assert world.stored() == stored


@pytest.mark.parametrize(
    ("body", "path"),
    [
        ({"memory": "t"}, "memory"),
        ({"memory": {"thread": "a/b"}}, "memory.thread"),
        ({"memory": {"thread": "t", "colour": 1}}, "memory.colour"),
        ({"memory": {"resource": "r"}}, "memory.thread"),
        ({"memory": {"thread": "t", "mode": "loud"}}, "memory.mode"),
        ({"memory": {"thread": "other"}, "headers": MEMORY}, "memory.thread"),
        ({"model": 7}, "model"),
        ({"messages": "hello"}, "messages"),
        ({"memory": {"thread": "t", "resource": "r"}, "messages": [{"role": "wizard", "content": "x"}]}, "role"),
    ],
)
def test_what_is_wrong_is_named_in_the_provider_s_form(world: World, body: dict[str, Any], path: str) -> None:
    headers = body.pop("headers", {})
    asked = {"model": "scripted", "messages": [user("hello")], **body}
    response = world.client.raw("POST", CHAT, json=asked, headers=headers)

    assert response.status_code == 422
    assert path in response.json()["error"]["message"]
    assert response.json()["error"]["type"] == "invalid_request_error"
    assert world.provider.calls == []


def test_the_notes_and_not_the_whole_history_are_sent_once_there_are_notes(world: World) -> None:
    history: list[Any] = [{"role": "system", "content": "Be brief."}]
    for n in range(40):
        history.append(user(FACT.format(n=n) * 2))
        history.append(
            {"role": "assistant", "content": post(world, history).json()["choices"][0]["message"]["content"]}
        )
        work_off(world.memory.services)
    [own, notes, *rest] = world.prompts()[-1]
    assert own == {"role": "system", "content": "Be brief."}
    assert notes["role"] == "system"
    assert "euros" in notes["content"]
    assert len(str(rest)) < len(str(history)) / 2


def test_the_models_that_can_be_asked_for_are_listed(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    found = world.client.raw("GET", "/v1/models").json()
    assert found["object"] == "list"
    assert any("gpt" in item["id"] for item in found["data"])
    assert all(item["object"] == "model" for item in found["data"])


def test_anthropic_s_form_reaches_a_model_of_another_provider_too(world: World) -> None:
    asked = {"model": "openai/scripted", "max_tokens": 50, "messages": [user("hello")]}
    response = world.client.raw("POST", "/v1/messages", json=asked, headers=MEMORY)

    assert (response.status_code, response.headers["x-om-memory"]) == (200, "on")
    assert response.json()["content"] == [{"type": "text", "text": "answer 1"}]
    assert world.provider.calls[-1].path.endswith("/chat/completions")
    assert world.stored() == [("user", "hello"), ("assistant", "answer 1")]
