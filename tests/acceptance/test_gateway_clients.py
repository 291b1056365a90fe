"""The `openai` and `anthropic` packages with only the address changed: long conversations with tools and streaming."""

from __future__ import annotations

import subprocess
import sys
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import anthropic
import openai
import pytest

from om_core.testing.scripted_server import Reply
from tests.acceptance.test_readme import blocks
from tests.integration.gateway_world import FACT, TOOL, World, anthropic_reply, broken_prefixes, gateway
from tests.support.fixtures import services_with, store

if TYPE_CHECKING:
    from collections.abc import Callable

    from om_core.services.deps import Services

__all__ = ["services_with", "store"]

TURNS = 60
HEADERS = {"X-OM-Thread": "t", "X-OM-Resource": "r"}


def asked_for_tool(request: dict[str, Any]) -> bool:
    """Every fourth question needs the tool, until its result is there."""
    last = request["messages"][-1]
    texts = [str(message["content"]) for message in request["messages"] if "question" in str(message["content"])]
    return bool(texts) and "use the tool" in texts[-1] and "the price is" not in str(last) and last["role"] == "user"


def openai_script(request: dict[str, Any], number: int) -> Reply:
    said = [message for message in request["messages"] if "<om-" not in str(message.get("content"))[:4]]
    if "use the tool" in str(said[-1].get("content")) and said[-1]["role"] == "user":
        call = {"id": f"call_{number}", "type": "function", "function": {"name": "look_up", "arguments": "{}"}}
        return Reply(text=None, tool_calls=(call,))
    return Reply(text=f"Answer {number}. " + FACT.format(n=number), cached_tokens=7)


@pytest.mark.slow
def test_sixty_turns_of_the_openai_package(services_with: Callable[..., Services]) -> None:
    with gateway(services_with, openai_script, work=True) as world, ExitStack() as stack:
        client = stack.enter_context(
            openai.OpenAI(base_url=world.url, api_key="om_any", default_headers=HEADERS, max_retries=0)
        )
        history: list[Any] = [{"role": "system", "content": "You are a careful clerk."}]
        tools = [{"type": "function", "function": {"name": "look_up", "parameters": TOOL["input_schema"]}}]
        for n in range(TURNS):
            wish = " Please use the tool." if n % 4 == 3 else ""
            history.append({"role": "user", "content": f"question {n}: " + FACT.format(n=n) + wish})
            reply = openai_reply(client, history, tools, stream=n % 2 == 1)
            history.append(reply)
            if reply.get("tool_calls"):
                call_id = reply["tool_calls"][0]["id"]
                history.append({"role": "tool", "tool_call_id": call_id, "content": f"the price is {n}"})
                history.append(openai_reply(client, history, tools, stream=n % 8 == 3))
        check_openai(world, history)


def test_the_readme_s_client_has_memory(services_with: Callable[..., Services]) -> None:
    [example] = [block for block in blocks("python") if "openai.OpenAI(" in block]
    question = [{"role": "user", "content": "What did we agree on?"}]
    with gateway(services_with, lambda request, number: Reply(text="On Friday.")) as world:
        program = f"""import openai
{example.replace("http://localhost:8080/v1", world.url)}
print(client.chat.completions.create(model="scripted", messages={question}).choices[0].message.content)
"""
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
        assert (done.returncode, done.stdout) == (0, "On Friday.\n"), done.stderr
        rows = world.memory.messages("conversation-123", resource="user-123")
        assert [row.message.role.value for row in rows] == ["user", "assistant"]


def openai_reply(client: openai.OpenAI, history: list[Any], tools: Any, *, stream: bool) -> dict[str, Any]:
    if not stream:
        made = client.chat.completions.create(model="scripted", messages=history, tools=tools)
        assert made.usage is not None
        message = made.choices[0].message.model_dump(exclude_none=True)
        if not message.get("tool_calls"):
            assert made.usage.prompt_tokens_details is not None
            assert made.usage.prompt_tokens_details.cached_tokens == 7
        return message
    with client.chat.completions.stream(model="scripted", messages=history, tools=tools) as events:
        for _ in events:
            pass
        final = events.get_final_completion().choices[0].message
    kept = {"role", "content", "tool_calls"}
    return {name: value for name, value in final.model_dump(exclude_none=True).items() if name in kept}


def check_openai(world: World, history: list[Any]) -> None:
    spoken = [message for message in history if message["role"] != "system"]
    assert [role for role, _ in world.stored()] == [message["role"] for message in spoken]
    texts = [message.get("content") or "" for message in spoken if message["role"] != "tool"]
    assert [text for role, text in world.stored() if role != "tool"] == [text or "look_up" for text in texts]
    prompts = [(str([m for m in prompt if m["role"] == "system"]), prompt) for prompt in world.prompts()]
    changed, broken = broken_prefixes(prompts)
    report(world, "openai", len(prompts), changed, broken)
    assert changed >= 3
    assert broken == 0
    assert all(prompt[0] == {"role": "system", "content": "You are a careful clerk."} for _, prompt in prompts)
    assert max(len(str(prompt)) for _, prompt in prompts) < len(str(history)) / 2


def report(world: World, name: str, requests: int, changed: int, broken: int) -> None:
    status = world.memory.status("t", resource="r")
    print(
        f"{name}: {TURNS} turns, {requests} requests, {changed} changes of the notes, {broken} prompts that did not extend"
        f" the one before; generation {status['generationCount']}, head {status['head_seq']}"
    )


def anthropic_script(request: dict[str, Any], number: int) -> Reply:
    said = [message for message in request["messages"] if "<om-" not in str(message["content"])[:60]]
    if "use the tool" in str(said[-1]["content"]) and "tool_result" not in str(said[-1]["content"]):
        return anthropic_reply(request, [{"type": "tool_use", "id": f"toolu_{number}", "name": "look_up", "input": {}}])
    return anthropic_reply(request, [{"type": "text", "text": f"Answer {number}. " + FACT.format(n=number)}])


@pytest.mark.slow
def test_sixty_turns_of_the_anthropic_package(
    services_with: Callable[..., Services], monkeypatch: pytest.MonkeyPatch
) -> None:
    with gateway(services_with, anthropic_script, work=True, any_path=True) as world, ExitStack() as stack:
        monkeypatch.setenv("ANTHROPIC_API_BASE", f"http://127.0.0.1:{world.provider.port}")
        monkeypatch.setenv("ANTHROPIC_API_KEY", "provider-key")
        address = str(world.client.base_url)
        client = stack.enter_context(
            anthropic.Anthropic(base_url=address, api_key="om_any", default_headers=HEADERS, max_retries=0)
        )
        history: list[Any] = []
        for n in range(TURNS):
            wish = " Please use the tool." if n % 4 == 3 else ""
            history.append({"role": "user", "content": f"question {n}: " + FACT.format(n=n) + wish})
            blocks = anthropic_blocks(client, history, stream=n % 2 == 1)
            history.append({"role": "assistant", "content": blocks})
            if blocks[0]["type"] == "tool_use":
                result = {"type": "tool_result", "tool_use_id": blocks[0]["id"], "content": f"the price is {n}"}
                history.append({"role": "user", "content": [result]})
                history.append({"role": "assistant", "content": anthropic_blocks(client, history, stream=n % 8 == 3)})
        check_anthropic(world, history)


def anthropic_blocks(client: anthropic.Anthropic, history: list[Any], *, stream: bool) -> list[dict[str, Any]]:
    arguments: dict[str, Any] = {
        "model": "claude-scripted",
        "max_tokens": 500,
        "system": "You are a careful clerk.",
        "messages": history,
        "tools": [TOOL],
    }
    if stream:
        with client.messages.stream(**arguments) as events:
            message = events.get_final_message()
    else:
        message = client.messages.create(**arguments)
        assert message.usage.cache_read_input_tokens == 5
    return [
        {name: value for name, value in block.model_dump(exclude_none=True).items() if name in BLOCK_FIELDS}
        for block in message.content
    ]


BLOCK_FIELDS = {"type", "text", "id", "name", "input"}


def check_anthropic(world: World, history: list[Any]) -> None:
    roles = ["tool" if "tool_result" in str(message["content"]) else message["role"] for message in history]
    assert [role for role, _ in world.stored()] == roles
    prompts = [(str(call.request["system"]), call.request["messages"]) for call in world.provider.calls]
    unmarked = [(notes, [without_marks(message) for message in prompt]) for notes, prompt in prompts]
    changed, broken = broken_prefixes(unmarked)
    report(world, "anthropic", len(prompts), changed, broken)
    assert changed >= 3
    assert broken == 0
    for call in world.provider.calls:
        assert call.request["system"][0] == {"type": "text", "text": "You are a careful clerk."}
        assert str(call.request).count("cache_control") <= 4
    assert "cache_control" in str(world.provider.calls[-1].request["system"])
    assert world.provider.calls[-1].headers["x-api-key"] == "provider-key"


def without_marks(message: dict[str, Any]) -> dict[str, Any]:
    """Breakpoints move with the stable part; a text with one is a list of one block."""
    content = message["content"]
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
    return {**message, "content": [{k: v for k, v in block.items() if k != "cache_control"} for block in blocks]}
