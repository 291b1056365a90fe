"""The gateway in Anthropic's form: passed on as it came, with breakpoints that fit (API 3)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from api.gateway.anthropic_stream import reply_of
from om_core.testing.scripted_server import Reply
from tests.integration.gateway_world import World, anthropic_reply, gateway
from tests.integration.test_gateway import MEMORY, user

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from om_core.services.deps import Services


@pytest.fixture
def claude(services_with: Callable[..., Services], monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """A gateway before a provider in Anthropic's form."""

    def script(request: dict[str, Any], number: int) -> Reply:
        if "FAIL" in str(request["messages"]):
            return Reply(
                status=529, body={"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
            )
        return anthropic_reply(request, [{"type": "text", "text": f"answer {number}"}])

    with gateway(services_with, script, any_path=True) as world:
        monkeypatch.setenv("ANTHROPIC_API_BASE", f"http://127.0.0.1:{world.provider.port}")
        monkeypatch.setenv("ANTHROPIC_API_KEY", "provider-key")
        yield world


def test_anthropic_s_own_fields_and_headers_arrive_as_they_were_sent(claude: World) -> None:
    asked = {
        "model": "claude-x",
        "max_tokens": 9,
        "messages": [user("hello")],
        "my_own_field": [1],
        "thinking": {"type": "enabled", "budget_tokens": 5},
    }
    headers = {"anthropic-beta": "b1,b2", "anthropic-version": "2023-01-01"}
    response = claude.client.raw("POST", "/v1/messages?beta=true", json=asked, headers=headers)

    call = claude.provider.calls[-1]
    assert response.status_code == 200
    assert call.request == asked
    assert {name: call.headers[name] for name in headers} == headers
    assert call.headers["x-api-key"] == "provider-key"


def test_anthropic_s_errors_arrive_as_they_are(claude: World) -> None:
    for stream in (False, True):
        asked = {"model": "claude-x", "max_tokens": 9, "messages": [user("FAIL")], "stream": stream}
        response = claude.client.raw("POST", "/v1/messages", json=asked, headers=MEMORY)
        assert response.status_code == 529
        assert response.json()["error"] == {"type": "overloaded_error", "message": "Overloaded"}
    wrong = claude.client.raw("POST", "/v1/messages", json={"model": "claude-x"})
    assert wrong.json()["type"] == "error"
    assert wrong.json()["error"]["type"] == "invalid_request_error"


def test_the_client_s_own_breakpoints_leave_room_or_memory_sets_none(claude: World) -> None:
    mark = {"cache_control": {"type": "ephemeral"}}
    system = [{"type": "text", "text": f"part {n}", **mark} for n in range(4)]
    asked = {"model": "claude-x", "max_tokens": 9, "messages": [user("hello")], "system": system}
    assert claude.client.raw("POST", "/v1/messages", json=asked, headers=MEMORY).status_code == 200
    assert str(claude.provider.calls[-1].request).count("cache_control") == 4
    assert claude.provider.calls[-1].request["system"][:4] == system


def test_a_stream_that_breaks_off_gives_no_reply() -> None:
    stream = b'event: message_start\ndata: {"type": "message_start", "message": {"content": []}}\n\n'
    assert reply_of(stream) is None
    assert reply_of(stream + b'data: {"type": "message_stop"}\n\n') == {"content": []}
