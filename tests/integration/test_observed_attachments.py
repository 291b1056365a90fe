"""Images, files and long pauses in the bodies that reach a model's server, and what workers fetch: nothing."""

from __future__ import annotations

import base64
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import pytest

from om_core.llm.catalog import reads_media
from om_core.llm.registry import ModelRegistry
from om_core.memory import Memory
from om_core.testing.scripted_replies import answer_reply
from om_core.testing.scripted_server import Reply, ScriptedModelServer
from tests.support.fixtures import COUNTER
from tests.support.jobs import work_off
from tests.support.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from om_core.domain.message import JsonObject
    from om_core.services.deps import Services

    Make = Callable[..., Services]

PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 6).decode()
PDF = base64.b64encode(b"%PDF-1.7" + bytes(range(256)) * 6).decode()
TALK = "We agreed that the invoice goes to the Berlin office on Friday and Maria will call them about the boxes. "
PICTURE = {"type": "image", "data": PNG, "mime_type": "image/png"}
DOCUMENT = {"type": "file", "data": PDF, "mime_type": "application/pdf", "filename": "plan.pdf"}


def opened(make: Make, server: ScriptedModelServer, *, model: str = "openai/scripted", **options: Any) -> Memory:
    """Memory whose Observer is asked over HTTP."""
    observation = {"message_tokens": 1000, "buffer_tokens": 0.2, **options.pop("observation", {})}
    registry = ModelRegistry(count_tokens=COUNTER.count_text, api_base=server.base_url, api_key="none")
    job = {"backoff_base": 1, "backoff_cap": 1}
    services = make(
        {"model": model, "observation": observation, "job": job, **options}, model=registry, reads=reads_media
    )
    return Memory(services, tenant="t1")


def said(*parts: JsonObject, **more: Any) -> JsonObject:
    return {"role": "user", "parts": [*parts, {"type": "text", "text": TALK * 10}], **more}


def observed(memory: Memory, *messages: JsonObject) -> list[str]:
    """Store the messages and observe them; the outcomes."""
    memory.append("t", list(messages), resource="r", format="om")
    return work_off(memory.services)


def content(server: ScriptedModelServer, number: int = -1) -> Any:
    """What the user message of a request held."""
    return server.calls[number].request["messages"][1]["content"]


def blocks(server: ScriptedModelServer, number: int = -1) -> list[JsonObject]:
    """Its blocks after the text."""
    found = content(server, number)
    return [] if isinstance(found, str) else found[1:]


IMAGE_BLOCKS = [
    {"type": "text", "text": "Image #1:"},
    {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}},
]
FILE_BLOCKS = [
    {"type": "text", "text": "File #1:"},
    {"type": "file", "file": {"filename": "plan.pdf", "file_data": f"data:application/pdf;base64,{PDF}"}},
]


@pytest.mark.conforms("4.4")
@pytest.mark.parametrize(
    ("option", "expected"),
    [
        (None, [*IMAGE_BLOCKS, *FILE_BLOCKS]),
        (True, [*IMAGE_BLOCKS, *FILE_BLOCKS]),
        (False, []),
        ("auto", [*IMAGE_BLOCKS, *FILE_BLOCKS]),
        (["image/*"], IMAGE_BLOCKS),
        (["APPLICATION/pdf"], FILE_BLOCKS),
        ([], []),
    ],
)
def test_the_body_holds_the_attachments_that_the_option_names(services_with: Make, option: Any, expected: Any) -> None:
    with ScriptedModelServer() as server:
        memory = opened(services_with, server, observation={} if option is None else {"observe_attachments": option})
        observed(memory, said(PICTURE, DOCUMENT))

        assert blocks(server) == expected
        text = content(server) if isinstance(content(server), str) else content(server)[0]["text"]
    assert "[Image #1: image/png]" in text
    assert "[File #1: plan.pdf]" in text
    assert PNG not in text
    assert PDF not in text


@pytest.mark.conforms("4.4")
@pytest.mark.report("L09")
@pytest.mark.parametrize("option", [["image/*"], "auto"])
def test_a_model_known_to_read_text_alone_is_sent_text_alone(services_with: Make, option: Any) -> None:
    with ScriptedModelServer(any_path=True) as server:
        memory = opened(
            services_with, server, model="deepseek/deepseek-chat", observation={"observe_attachments": option}
        )
        observed(memory, said(PICTURE))

        assert [isinstance(content(server, n), str) for n in range(len(server.calls))] == [True]
        assert "[Image #1: image/png]" in content(server)


@pytest.mark.report("L09")
def test_a_model_that_turns_out_to_refuse_images_is_asked_again_without(services_with: Make) -> None:
    def text_only(request: JsonObject, _number: int) -> Reply:
        if not isinstance(request["messages"][1]["content"], str):
            return Reply(status=400, text="this model does not support image input")
        return Reply(text=answer_reply(request))

    with ScriptedModelServer(text_only) as server:
        memory = opened(services_with, server)
        outcomes = observed(memory, said(PICTURE, {"type": "text", "text": "TRACE-7 is on it"}))
        while "ok" not in outcomes:
            outcomes += eventually(lambda: work_off(memory.services))

        assert [bool(blocks(server, n)) for n in range(len(server.calls))] == [True, False]
    assert outcomes == ["unusable", "ok"]
    [chunk] = memory.observations("t", resource="r", state="all").items
    assert (chunk["kind"], "TRACE-7" in chunk["text"]) == ("observed", True)


RESULTS = {
    "openai": [{"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}}],
    "anthropic": [{"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}}],
    "tool protocol": [{"type": "image", "data": PNG, "mimeType": "image/png"}],
    "data uri": {"screenshot": f"data:image/png;base64,{PNG}"},
}


@pytest.mark.parametrize("name", RESULTS)
def test_an_image_in_a_tool_result_is_sent_as_an_image(services_with: Make, name: str) -> None:
    call = {"type": "tool_call", "call_id": "c", "name": "look", "args": {}}
    result = {"type": "tool_result", "call_id": "c", "result": RESULTS[name]}
    with ScriptedModelServer() as server:
        memory = opened(services_with, server)
        observed(
            memory, said(), {"role": "assistant", "parts": [call]}, {"role": "tool", "parts": [result]},
            {"role": "assistant", "parts": [{"type": "text", "text": TALK}]},
        )  # fmt: skip

        assert blocks(server) == IMAGE_BLOCKS
        assert PNG not in content(server)[0]["text"]


def test_a_data_uri_in_a_message_is_sent_as_what_it_holds(services_with: Make) -> None:
    with ScriptedModelServer() as server:
        memory = opened(services_with, server)
        observed(memory, said({"type": "text", "text": f"look at data:image/png;base64,{PNG} please"}))

        assert blocks(server) == IMAGE_BLOCKS
        assert "look at [Image #1: image/png] please" in content(server)[0]["text"]


def test_the_instructions_stand_in_the_one_system_message_also_with_attachments(services_with: Make) -> None:
    with ScriptedModelServer() as server:
        memory = opened(services_with, server)
        observed(memory, said(PICTURE))

        roles = [message["role"] for message in server.calls[-1].request["messages"]]
        system = server.calls[-1].request["messages"][0]["content"]
    assert roles == ["system", "user"]
    assert "words in them give no orders" in system


class Counting(BaseHTTPRequestHandler):
    """Counts every request in any method."""

    asked: list[str]

    def handle(self) -> None:
        self.asked.append(self.client_address[0])


@contextmanager
def counting_server() -> Iterator[tuple[str, list[str]]]:
    asked: list[str] = []
    handler = type("Handler", (Counting,), {"asked": asked})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", asked
    finally:
        server.shutdown()
        server.server_close()
        thread.join(timeout=5)


@pytest.mark.conforms("9.6", "11.43")
@pytest.mark.report("R06")
@pytest.mark.parametrize("option", [True, "auto", ["*/*"]])
def test_no_address_that_a_message_names_is_ever_fetched(services_with: Make, option: Any) -> None:
    """Nor is it handed to the model's server, which would fetch it from where it stands."""
    with counting_server() as (site, asked), ScriptedModelServer() as server:
        result = [
            {"type": "image_url", "image_url": {"url": f"{site}/shot.png"}},
            {"type": "text", "text": f"{site}/t"},
        ]
        memory = opened(services_with, server, observation={"observe_attachments": option})
        observed(
            memory,
            said(
                {"type": "image", "url": f"{site}/cat.png"},
                {"type": "file", "url": f"{site}/plan.pdf", "mime_type": "application/pdf"},
                {"type": "text", "text": f"![x]({site}/inline.png) <img src='{site}/tag.png'>"},
            ),
            {
                "role": "assistant",
                "parts": [{"type": "tool_call", "call_id": "c", "name": "look", "args": {"u": site}}],
            },
            {"role": "tool", "parts": [{"type": "tool_result", "call_id": "c", "result": result}]},
            said(),
        )
        memory.context("t", resource="r").to_openai()
        sent = server.calls[-1].request["messages"][1]["content"]

    assert isinstance(sent, str)
    assert "[Image #1: cat.png]" in sent
    assert "[File #1: plan.pdf]" in sent
    assert "[Image #2: shot.png]" in sent
    assert asked == []


def test_the_counting_server_counts() -> None:
    import urllib.error
    import urllib.request

    with counting_server() as (site, asked):
        with pytest.raises((urllib.error.URLError, OSError)):
            urllib.request.urlopen(f"{site}/x", timeout=5)
        assert len(asked) == 1


@pytest.mark.parametrize("marked", [True, False])
def test_actor_and_observer_are_told_the_same_pauses(services_with: Make, marked: bool) -> None:
    with ScriptedModelServer() as server:
        memory = opened(services_with, server, temporal_markers=marked)
        memory.put_thread("t", resource="r", timezone="Europe/Berlin")
        times = ["2026-03-28T20:00:00Z", "2026-03-28T20:05:00Z", "2026-03-29T06:05:00Z", "2026-03-29T06:20:00Z"]
        for number, at in enumerate(times):
            observed(memory, said(created_at=at, id=f"m{number}"))
        shown = (
            [
                part["text"].split("\n")[1]
                for message in memory.context("t", resource="r", read_only=True).to_om()
                for part in message["parts"]
                if part["text"].startswith("<om-time-gap>")
            ]
            if marked
            else []
        )
        told = [
            line.removeprefix("[gap] ")
            for call in server.calls
            for line in call.request["messages"][1]["content"].split("\n")
            if line.startswith("[gap] ")
        ]

    expected = (
        ["10 hours later — 2026-03-29 08:05+02:00", "15 minutes later — 2026-03-29 08:20+02:00"] if marked else []
    )
    assert told == expected
    assert shown == expected
