"""LiteLLM against a real HTTP server that does what providers do on bad days."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from om_core.domain.errors import GiveUpError, RetryLaterError, SetupError
from om_core.llm.catalog import ModelPrice, facts_of
from om_core.llm.litellm_model import LiteLlmModel
from om_core.llm.loop import LoopThread
from om_core.llm.registry import ModelRegistry
from om_core.ports import ModelRequest, ObserverMaterial, PromptMessage
from om_core.testing.scripted_server import Reply, ScriptedModelServer
from tests.support.waiting import eventually

CONTEXT_ERROR = {
    "error": {
        "message": "This model's maximum context length is 8192 tokens. However, you sent 9000 tokens.",
        "type": "invalid_request_error",
        "code": "context_length_exceeded",
    }
}


@pytest.fixture(scope="module", autouse=True)
def _imported():
    """LiteLLM takes seconds to import, which would count against the deadline of the first call."""
    LiteLlmModel().warm_up()


def request(text="hello", model="openai/scripted", **options):
    prompt = (PromptMessage(role="system", content="Note."), PromptMessage(role="user", content=text))
    return ModelRequest(phase="observe", model=model, prompt=prompt, material=ObserverMaterial(messages=()), **options)


def ask(server, text="hello", *, model="openai/scripted", timeout_s=20.0, cancelled=None, **options):
    adapter = LiteLlmModel(api_base=server.base_url, api_key="none")
    return adapter.complete(request(text, model, **options), timeout_s=timeout_s, cancelled=cancelled)


def scripted(reply):
    return ScriptedModelServer(lambda _request, _number: reply)


def test_an_answer_comes_back_with_its_usage():
    with scripted(Reply(text="noted", input_tokens=100, output_tokens=7, cached_tokens=60)) as server:
        reply = ask(server)
    assert (reply.text, reply.model, reply.finish_reason) == ("noted", "openai/scripted", "stop")
    assert (reply.input_tokens, reply.output_tokens, reply.cached_tokens) == (100, 7, 60)
    assert reply.cost_usd is None  # nobody knows a price for this model


def test_a_loop_that_ends_leaves_no_connection_open():
    with scripted("noted") as server:
        loop = LoopThread("ending")
        adapter = LiteLlmModel(api_base=server.base_url, api_key="none", loop=loop)
        assert adapter.complete(request(), timeout_s=20.0).text == "noted"
        assert server.connections == 1

        loop.close()

        eventually(lambda: server.connections == 0, what="the connection ends")
        assert ask(server).text == "noted"  # the clients of other loops go on


def test_a_known_model_has_a_cost():
    price = facts_of("openai/gpt-4o-mini").price
    assert price is not None
    with scripted(Reply(text="noted", input_tokens=1000, output_tokens=10, cached_tokens=400)) as server:
        reply = ask(server, model="openai/gpt-4o-mini")
    expected = price.cost_usd(input_tokens=1000, output_tokens=10, cached_tokens=400)
    assert reply.cost_usd == pytest.approx(expected)


def test_a_configured_price_is_used():
    with scripted(Reply(text="noted", input_tokens=10, output_tokens=1)) as server:
        prices = {"openai/scripted": ModelPrice(input=2.0, output=5.0)}
        adapter = LiteLlmModel(api_base=server.base_url, prices=prices)
        assert adapter.complete(request(), timeout_s=20).cost_usd == 25.0


@pytest.mark.parametrize("reply", [Reply(text=None), Reply(choices=False), Reply(text="")])
def test_an_answer_without_content_is_an_empty_text(reply):
    with scripted(reply) as server:
        assert ask(server).text == ""


def test_the_request_carries_prompt_and_settings_and_nothing_the_model_does_not_take():
    with scripted(Reply(text="x")) as server:
        ask(server, settings={"max_output_tokens": 50, "colour": "red"})
        ask(server, model="openai/gpt-5-mini", settings={"temperature": 0})
    plain, reasoning = (call.request for call in server.calls)
    assert plain["messages"] == [{"role": "system", "content": "Note."}, {"role": "user", "content": "hello"}]
    assert (plain["temperature"], plain["max_tokens"]) == (0.3, 50)
    assert "colour" not in plain
    assert "temperature" not in reasoning


def test_32_slow_calls_wait_side_by_side():
    delay_s = 1.0
    with scripted(Reply(text="x", delay_s=delay_s)) as server, ThreadPoolExecutor(32) as pool:
        started = time.monotonic()
        replies = list(pool.map(lambda _: ask(server).text, range(32)))
        took_s = time.monotonic() - started
    assert replies == ["x"] * 32
    assert took_s < 32 * delay_s / 4, "the calls waited one after another"
    times = [(call.started, call.ended or 0.0) for call in server.calls]
    assert max(start for start, _ in times) < min(end for _, end in times), "not all were in flight together"


@pytest.mark.report("K06")
@pytest.mark.parametrize(
    "reply", [Reply(hang=True), Reply(text="x" * 1000, drip_s=0.3)], ids=["never answers", "drips byte by byte"]
)
def test_the_total_deadline_holds_and_the_connection_is_closed(reply):
    with scripted(reply) as server:
        with pytest.raises(RetryLaterError, match="no answer within 2 s"):
            ask(server, timeout_s=2)
        assert server.wait_until(lambda calls: all(call.ended for call in calls))
        assert all(call.client_gone for call in server.calls)


def test_an_event_ends_a_call_early_and_closes_its_connection():
    stop = threading.Event()
    with scripted(Reply(hang=True)) as server, ThreadPoolExecutor(1) as pool:
        call = pool.submit(ask, server, timeout_s=60, cancelled=stop)
        assert server.wait_until(bool)
        stop.set()
        with pytest.raises(RetryLaterError, match="cancelled"):
            call.result(timeout=10)
        assert server.wait_until(lambda calls: calls[0].client_gone)


FAILURES = [
    (Reply(status=429, headers={"Retry-After": "7"}), RetryLaterError, 7.0),
    (Reply(status=429), RetryLaterError, None),
    (Reply(status=503, headers={"Retry-After": "3"}), RetryLaterError, 3.0),
    (Reply(status=500), RetryLaterError, None),
    (Reply(status=502, body="<html>bad gateway</html>"), RetryLaterError, None),
    (Reply(status=529), RetryLaterError, None),
    (Reply(drop=True), RetryLaterError, None),
    (Reply(status=400, body=CONTEXT_ERROR), GiveUpError, None),
    (Reply(status=400, text="no"), GiveUpError, None),
    (Reply(status=413), GiveUpError, None),
    (Reply(status=401), SetupError, None),
    (Reply(status=403), SetupError, None),
    (Reply(status=404), SetupError, None),
]


@pytest.mark.parametrize("reply, expected, after_s", FAILURES, ids=lambda value: getattr(value, "status", None))
def test_a_failure_is_classified_and_never_retried_here(reply, expected, after_s):
    with scripted(reply) as server:
        with pytest.raises(expected) as caught:
            ask(server)
        assert len(server.calls) == 1
    assert type(caught.value) is expected
    assert getattr(caught.value, "after_s", None) == after_s
    assert str(caught.value).startswith("openai/scripted: ")


def test_a_key_does_not_appear_in_an_error():
    key = "sk-secret-1234567890"
    with scripted(Reply(status=401, text=f"Incorrect API key provided: {key}.")) as server:
        adapter = LiteLlmModel(api_base=server.base_url, api_key=key)
        with pytest.raises(SetupError) as caught:
            adapter.complete(request(), timeout_s=20)
    assert "secret" not in str(caught.value)


def test_a_refused_connection_is_an_outage():
    with scripted(Reply()) as server:
        pass
    with pytest.raises(RetryLaterError, match="cannot be reached") as caught:
        ask(server)
    assert caught.value.after_s is None


@pytest.mark.parametrize(
    "model, variable",
    [
        ("openai/gpt-5-mini", "OPENAI_API_KEY"),
        ("google/gemini-2.5-flash", "GEMINI_API_KEY"),
        ("anthropic/claude-sonnet-4-5", "ANTHROPIC_API_KEY"),
    ],
)
def test_a_missing_key_is_a_set_up_error_that_names_the_variable(model, variable, monkeypatch):
    for name in ("OPENAI_API_KEY", "GEMINI_API_KEY", "GOOGLE_API_KEY", "ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(SetupError, match=variable):
        LiteLlmModel().complete(request(model=model), timeout_s=20)


def test_an_unknown_provider_is_a_set_up_error():
    with pytest.raises(SetupError, match="not known"):
        LiteLlmModel().complete(request(model="nosuchprovider/x"), timeout_s=20)


def test_a_server_of_ones_own_needs_no_key(monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with scripted(Reply(text="x")) as server:
        assert LiteLlmModel(api_base=server.base_url).complete(request(), timeout_s=20).text == "x"


def test_geminis_request_has_its_thinking_budget_and_its_answer_its_usage():
    answer = {
        "candidates": [{"content": {"role": "model", "parts": [{"text": "noted"}]}, "finishReason": "STOP"}],
        "usageMetadata": {
            "promptTokenCount": 12, "candidatesTokenCount": 3, "totalTokenCount": 15, "cachedContentTokenCount": 5,
        },
    }  # fmt: skip
    options = {"google": {"thinkingConfig": {"thinkingBudget": 215}}}
    with ScriptedModelServer(lambda _request, _number: Reply(body=answer), any_path=True) as server:
        reply = ask(
            server,
            model="google/gemini-2.5-flash",
            settings={"max_output_tokens": 100_000},
            provider_options=options,
        )
    [call] = server.calls
    sent = call.request["generationConfig"]
    assert call.path.endswith("/models/gemini-2.5-flash:generateContent")
    assert (sent["temperature"], sent["thinkingConfig"]["thinkingBudget"]) == (0.3, 215)
    assert 0 < sent["max_output_tokens"] < 100_000  # more than the model can make would be refused
    assert (reply.text, reply.input_tokens, reply.output_tokens, reply.cached_tokens) == ("noted", 12, 3, 5)
    assert reply.cost_usd is not None


def test_the_registry_sends_other_models_to_its_server():
    with scripted(Reply(text="remote")) as server:
        registry = ModelRegistry(count_tokens=len, api_base=server.base_url)
        assert registry.complete(request(), timeout_s=20).text == "remote"
        assert registry.missing_key("openai/scripted") is None


IN_FLIGHT = """
import sys, threading
from om_core.llm.litellm_model import LiteLlmModel
from om_core.llm.loop import LoopThread
from om_core.ports import ModelRequest, ObserverMaterial, PromptMessage
model = LiteLlmModel(api_base=sys.argv[1])
text = "word " * 20_000
request = ModelRequest(phase="observe", model="openai/scripted", material=ObserverMaterial(messages=()),
                       prompt=(PromptMessage(role="user", content=text),))
model.warm_up()
threads = [threading.Thread(target=model.complete, args=(request,), kwargs={"timeout_s": 60}) for _ in range(32)]
for thread in threads: thread.start()
sys.stdin.readline()
print(open("/proc/self/status").read())
for thread in threads: thread.join()
"""


def test_a_process_with_32_calls_in_flight_stays_under_400_mb():
    release = threading.Event()

    def script(_request, _number):
        release.wait(30)
        return Reply(text="x")

    with ScriptedModelServer(script) as server:
        command = [sys.executable, "-c", IN_FLIGHT, server.base_url]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            arrived = server.wait_until(lambda calls: len(calls) == 32, timeout_s=60)
            release_timer = threading.Timer(0.5, release.set)
            release_timer.start()
            output, _ = process.communicate("\n", timeout=60)
            release_timer.join()
    found = re.search(r"VmHWM:\s+(\d+) kB", output)
    assert arrived
    assert found is not None
    assert int(found.group(1)) < 400 * 1024
