"""The scripted model server itself: what tests of coverage and outages rely on."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from om_core.testing.scripted_replies import observer_reply, reflector_reply, traces
from om_core.testing.scripted_server import Reply, ScriptedModelServer

CODE = "0123456789ab"


def prompt(user, **more):
    messages = [{"role": "system", "content": "Example: TRACE-999"}, {"role": "user", "content": user}]
    return {"model": "scripted", "messages": messages, **more}


def block(kind, text):
    return f"<{kind}-{CODE}>\n{text}\n</{kind}-{CODE}>"


HISTORY = "Date: May 5, 2026 (UTC)\n[m1] user: TRACE-2 and TRACE-3\n[m2] assistant: TRACE-2, TRACE-30."
OBSERVE = prompt("\n\n".join([block("earlier-notes", "TRACE-1 noted"), "To note:", block("history", HISTORY)]))
REFLECT = prompt(block("notes", "Date: May 5, 2026\n" + "\n".join(f"* 🟡 (09:00) Noted TRACE-{n}" for n in range(100))))


def post(server, body, **options):
    return httpx.post(f"{server.base_url}/chat/completions", json=body, timeout=20, **options)


def test_the_observers_answer_has_one_note_for_each_traced_message_and_none_for_earlier_notes():
    answer = observer_reply(OBSERVE)
    lines = answer.splitlines()
    assert lines[:2] == ["<observations>", "Date: May 5, 2026"]
    assert lines[-1] == "</observations>"
    assert [traces(line) for line in lines[2:-1]] == [["TRACE-2"], ["TRACE-3"], ["TRACE-30"]]
    assert all(re.fullmatch(r"\* (🔴|🟡) \(\d\d:\d\d\) Noted \S+", line) for line in lines[2:-1])


def test_the_reflectors_answer_keeps_every_trace_in_a_third_of_the_text():
    answer = reflector_reply(REFLECT)
    assert traces(answer) == [f"TRACE-{n}" for n in range(100)]
    assert len(answer) < len(REFLECT["messages"][1]["content"]) / 2


def test_content_blocks_are_read_as_text():
    user = [{"type": "text", "text": block("history", "TRACE-5")}, {"type": "image_url", "image_url": {"url": "data:"}}]
    assert traces(observer_reply(prompt(user))) == ["TRACE-5"]


def test_without_a_script_the_server_tells_observer_and_reflector_apart():
    with ScriptedModelServer() as server:
        answers = [post(server, body).json()["choices"][0]["message"]["content"] for body in (OBSERVE, REFLECT)]
    assert answers == [observer_reply(OBSERVE), reflector_reply(REFLECT)]


def test_the_log_of_calls_has_requests_in_order_with_their_times():
    with ScriptedModelServer(lambda _request, number: f"answer {number}") as server:
        texts = [post(server, prompt(f"question {n}")).json()["choices"][0]["message"]["content"] for n in range(3)]
    assert texts == ["answer 1", "answer 2", "answer 3"]
    assert [call.request["messages"][1]["content"] for call in server.calls] == [f"question {n}" for n in range(3)]
    assert all(call.ended is not None and call.started <= call.ended and not call.client_gone for call in server.calls)


def test_a_stream_has_the_text_in_pieces_then_the_end_then_usage():
    body = prompt("x", stream=True, stream_options={"include_usage": True})
    with ScriptedModelServer(
        lambda _request, _number: Reply(text="a longer answer\nin two lines", input_tokens=5)
    ) as server:
        lines = [line for line in post(server, body).text.splitlines() if line]
    events = [json.loads(line.removeprefix("data: ")) for line in lines[:-1]]
    assert lines[-1] == "data: [DONE]"
    pieces = [event["choices"][0]["delta"].get("content") or "" for event in events if event["choices"]]
    assert "".join(pieces) == "a longer answer\nin two lines"
    assert len(pieces) > 3
    assert events[-2]["choices"][0]["finish_reason"] == "stop"
    assert events[-1]["usage"]["prompt_tokens"] == 5


@pytest.mark.parametrize("stream", [False, True])
def test_tool_calls_are_answered_in_both_forms(stream):
    call = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    with ScriptedModelServer(lambda _request, _number: Reply(text=None, tool_calls=(call,))) as server:
        answer = post(server, prompt("x", stream=stream)).text
    assert '"look"' in answer
    assert '"tool_calls"' in answer


def test_models_are_listed_and_other_paths_are_not_found():
    with ScriptedModelServer() as server:
        assert httpx.get(f"{server.base_url}/models").json()["data"][0]["id"] == "scripted"
        assert httpx.get(f"{server.base_url}/nothing").status_code == 404
        assert httpx.post(f"{server.base_url}/embeddings", json={}).status_code == 404
        assert server.calls == []


def test_64_slow_requests_are_answered_side_by_side():
    everybody = threading.Barrier(64, timeout=30)

    def script(_request, _number):
        everybody.wait()
        return "met"

    with ScriptedModelServer(script) as server, ThreadPoolExecutor(64) as pool:
        answers = list(pool.map(lambda _: post(server, prompt("x")).status_code, range(64)))
    assert answers == [200] * 64


def test_closing_hangs_up_on_waiting_and_on_idle_clients():
    def script(request, _number):
        return Reply(hang=True)

    with (
        ScriptedModelServer(script) as server,
        httpx.Client(timeout=20) as idle,
        ThreadPoolExecutor(1) as pool,
    ):
        assert idle.get(f"{server.base_url}/models").status_code == 200
        waiting = pool.submit(post, server, prompt("hang"))
        assert server.wait_until(bool)
        started = time.monotonic()
        server.close()
        assert time.monotonic() - started < 4
        with pytest.raises(httpx.TransportError):
            waiting.result(timeout=10)
        with pytest.raises(httpx.TransportError):
            idle.get(f"{server.base_url}/models")


def test_a_dropped_request_ends_without_an_answer():
    with (
        ScriptedModelServer(lambda _request, _number: Reply(drop=True)) as server,
        pytest.raises(httpx.TransportError),
    ):
        post(server, prompt("x"))


def test_the_server_runs_as_a_process_that_prints_its_port():
    command = [sys.executable, "-m", "om_core.testing.scripted_server", "--port", "0", "--delay", "0.1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            port = int(process.stdout.readline())
            answer = httpx.post(f"http://127.0.0.1:{port}/v1/chat/completions", json=OBSERVE, timeout=20)
        finally:
            process.terminate()
    assert answer.json()["choices"][0]["message"]["content"] == observer_reply(OBSERVE)
