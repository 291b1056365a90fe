"""A gateway over real HTTP: scripted providers behind it, a worker beside it, the providers' own clients before it."""

from __future__ import annotations

import itertools
import json
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from api.app import create_app
from om_core.memory import Memory
from om_core.services.local import LocalDispatcher, LocalWorker
from om_core.testing.scripted_server import Reply, ScriptedModelServer
from tests.integration.api_server import ApiClient, serving

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from om_core.services.deps import Services
    from om_core.testing.scripted_server import Script

TOOL = {"name": "look_up", "description": "Looks a price up.", "input_schema": {"type": "object", "properties": {}}}
FACT = "Box {n} goes to the Berlin office on Friday and costs {n} euros, says Maria, who will call them about it. "


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """What a test of a gateway holds."""

    client: ApiClient
    memory: Memory
    provider: ScriptedModelServer

    @property
    def url(self) -> str:
        """As an OpenAI client wants it."""
        return f"{str(self.client.base_url).rstrip('/')}/v1"

    def stored(self, thread: str = "t") -> list[tuple[str, str]]:
        """(role, text or what stands for it) of every stored message."""
        rows = self.memory.messages(thread, resource="r", limit=1_000)
        return [(row.message.role.value, _text(row.message.parts)) for row in rows]

    def prompts(self) -> list[list[dict[str, Any]]]:
        """The messages of each request that the provider got."""
        return [call.request["messages"] for call in self.provider.calls]


def _text(parts: Any) -> str:
    return " ".join(getattr(part, "text", None) or getattr(part, "name", None) or part.call_id for part in parts)


@contextmanager
def gateway(
    services_with: Callable[..., Services], script: Script, *, work: bool = False, any_path: bool = False
) -> Iterator[World]:
    """A gateway whose `openai/NAME` is the scripted provider; `work` runs a worker beside it."""
    dispatcher = LocalDispatcher()
    services = services_with(None, dispatcher=dispatcher) if work else services_with()
    worker = LocalWorker(services, dispatcher, period_s=0.2) if work else None
    if worker:
        worker.start()
    with ScriptedModelServer(script, any_path=any_path) as provider:
        app = create_app(services, auth="off", model_api_base=provider.base_url)
        with serving(app) as client:
            yield World(client=client, memory=Memory(services), provider=provider)
    if worker:
        worker.stop()


def anthropic_reply(request: dict[str, Any], blocks: list[dict[str, Any]]) -> Reply:
    """An Anthropic message of these blocks, streamed if the request asks for it."""
    stop = "tool_use" if any(block["type"] == "tool_use" for block in blocks) else "end_turn"
    usage = {"input_tokens": 9, "output_tokens": 3, "cache_read_input_tokens": 5}
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": request["model"], "stop_sequence": None}
    if not request.get("stream"):
        return Reply(body={**message, "content": blocks, "stop_reason": stop, "usage": usage})
    events: list[dict[str, Any]] = [
        {"type": "message_start", "message": {**message, "content": [], "stop_reason": None, "usage": usage}}
    ]
    for index, block in enumerate(blocks):
        is_text = block["type"] == "text"
        empty = {"type": "text", "text": ""} if is_text else {**block, "input": {}}
        events.append({"type": "content_block_start", "index": index, "content_block": empty})
        pieces = [block["text"][at : at + 9] for at in range(0, len(block["text"]), 9)] if is_text else []
        deltas = [{"type": "text_delta", "text": piece} for piece in pieces] or [
            {"type": "input_json_delta", "partial_json": json.dumps(block.get("input", {}))}
        ]
        events += [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
        events.append({"type": "content_block_stop", "index": index})
    end = {"stop_reason": stop, "stop_sequence": None}
    events += [{"type": "message_delta", "delta": end, "usage": {"output_tokens": 3}}, {"type": "message_stop"}]
    return Reply(body="".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events))


def is_tail(message: dict[str, Any]) -> bool:
    """Whether a message is of the volatile tail: memory's own, not the conversation's."""
    content = message.get("content")
    text = content if isinstance(content, str) else "".join(str(block.get("text", "")) for block in content or [])
    return message["role"] == "user" and text.lstrip().startswith("<om-")


def broken_prefixes(prompts: list[tuple[Any, list[dict[str, Any]]]]) -> tuple[int, int]:
    """Of successive prompts (instructions, messages): how often the notes changed, and how often, where they did not,
    the earlier prompt without its tail is not the beginning of the later one.
    """
    changed = broken = 0
    for (notes, before), (next_notes, after) in itertools.pairwise(prompts):
        kept = list(before)
        while kept and is_tail(kept[-1]):
            kept.pop()
        if notes != next_notes:
            changed += 1
        elif json.dumps(after[: len(kept)]) != json.dumps(kept):
            broken += 1
    return changed, broken
