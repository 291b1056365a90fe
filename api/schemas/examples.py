"""Examples of the OpenAPI document. A test sends every one of them."""

from __future__ import annotations

from typing import Any, Final

Examples = dict[str, Any]


def _example(summary: str, value: Any) -> Any:
    return {"summary": summary, "value": value}


QUESTION: Final = "I moved to Lyon in May 2026. Which bread did I say I like?"

THREAD: Final[Examples] = {
    "create": _example(
        "Create a thread",
        {"resource_id": "user-123", "title": "Baking", "timezone": "Europe/Paris", "metadata": {"channel": "web"}},
    ),
    "configure": _example(
        "Change one option of its memory",
        {"resource_id": "user-123", "config": {"observation": {"message_tokens": 20000}}},
    ),
}
MESSAGES: Final[Examples] = {
    "openai": _example(
        "A user's message in OpenAI's form, and the context to answer it with",
        {
            "resource_id": "user-123",
            "format": "openai",
            "messages": [{"role": "user", "content": QUESTION}],
            "model": "openai/gpt-5-mini",
            "context": {"format": "openai"},
        },
    ),
    "om": _example(
        "A tool call and its result in the canonical form, with the client's ids",
        {
            "resource_id": "user-123",
            "format": "om",
            "messages": [
                {
                    "id": "m-2",
                    "role": "assistant",
                    "parts": [{"type": "tool_call", "call_id": "c-1", "name": "search", "args": {"query": "bread"}}],
                },
                {
                    "id": "m-3",
                    "role": "tool",
                    "parts": [{"type": "tool_result", "call_id": "c-1", "name": "search", "result": "sourdough"}],
                },
            ],
        },
    ),
    "anthropic": _example(
        "An assistant's reply in Anthropic's form, which ends the turn",
        {
            "resource_id": "user-123",
            "format": "anthropic",
            "messages": [{"role": "assistant", "content": [{"type": "text", "text": "Sourdough, with seeds."}]}],
            "end_of_turn": True,
        },
    ),
}
CONTEXT: Final[Examples] = {
    "openai": _example("For a chat completion", {"format": "openai", "model": "openai/gpt-5-mini"}),
    "look": _example("Look without changing anything", {"format": "om", "read_only": True, "max_tokens": 50000}),
    "ephemeral": _example(
        "With a message for this call alone",
        {"format": "openai", "ephemeral": [{"role": "user", "content": "The screen shows the cart."}]},
    ),
}
WORKING_MEMORY: Final[Examples] = {
    "markdown": _example("Replace the text", {"content": "# About the user\n- Name: Eve\n- Location: Lyon"}),
    "json": _example("Replace the object", {"content": {"name": "Eve", "city": "Lyon"}, "format": "json"}),
}
WORKING_MEMORY_CHANGE: Final[Examples] = {
    "text": _example("The agent rewrote the text", {"memory": "# About the user\n- Name: Eve\n- Location: Paris"}),
}
WAIT: Final[Examples] = {
    "start": _example("Start it", {}),
    "one_resource": _example("Name the resource", {"resource_id": "user-123"}),
}
REFLECT: Final[Examples] = {
    "start": _example("Start it", {}),
    "guided": _example("Say what matters", {"guidance": "Keep every date and every price."}),
}
WEBHOOK: Final[Examples] = {
    "all": _example("Every event of the tenant", {"url": "https://example.com/om-events"}),
    "some": _example(
        "Activations of one resource",
        {"url": "https://example.com/om-events", "types": ["data-om-activation"], "resource_id": "user-123"},
    ),
}
KEY: Final[Examples] = {
    "service": _example("A key of the whole tenant, for 90 days", {"name": "my service", "days": 90}),
    "narrow": _example(
        "A key that may read one conversation",
        {"name": "viewer", "resource_id": "user-123", "thread": "conversation-123", "read_only": True},
    ),
}
REWIND: Final[Examples] = {"keep_two": _example("Keep the first message", {"to_seq": 1})}
CLONE: Final[Examples] = {
    "all": _example("Go on from here in another thread", {"thread": "conversation-123-b"}),
}
