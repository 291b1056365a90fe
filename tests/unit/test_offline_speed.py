"""The offline model takes linear time, whatever is said to it."""

import json
import time

import pytest

from om_core.domain.policy import OFFLINE_MODEL
from om_core.llm.offline import OfflineModel
from om_core.ports import ModelRequest, ObserverMaterial
from tests.unit.prompt_samples import call, count, result, user

MODEL = OfflineModel(count_tokens=count)


def chat(turns):
    return tuple(
        user(n, f"Ticket {n} concerns room {n * 7}. We decided to paint it in colour {n % 9}.") for n in range(turns)
    )


def answer(material):
    request = ModelRequest(phase="observe", model=OFFLINE_MODEL, prompt=(), material=material)
    return MODEL.complete(request, timeout_s=1)


PLAIN = "The quick brown fox visited town number 12 and bought apples. It rained near the river all day.\n" * 10_000
HOSTILE = {
    "openers": "<" * 1_000_000,
    "brackets": "[" * 1_000_000,
    "nested tags": "<a><b>" * 160_000,
    "slashes": "/a" * 500_000,
    "stops": ". " * 500_000,
    "blanks": " " * 1_000_000,
    "letters": "a" * 1_000_000,
    "line feeds": "\n" * 1_000_000,
    "relative days": "a couple of " * 80_000,
    "backticks": "`" * 1_000_000,
    "characters of Chinese": "上" * 500_000,
    "wide JSON": json.dumps({f"key{n}": n for n in range(60_000)}),
}


def seconds(*messages):
    start = time.thread_time()
    answer(ObserverMaterial(messages=messages))
    return time.thread_time() - start


def said(text):
    return (user(1, text),)


def returned(text):
    return call(2, "bash", {"command": text[:2_000], "x": text}, "c"), result(3, "c", text)


@pytest.fixture(scope="module")
def plain_seconds():
    return {form: min(seconds(*form(PLAIN)) for _ in range(2)) for form in (said, returned)}


@pytest.mark.parametrize("form", [said, returned])
@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_text_takes_no_longer_than_plain_text(name, form, plain_seconds):
    assert seconds(*form(HOSTILE[name])) < 10 * plain_seconds[form]


def test_a_thousand_speakers_take_about_as_long_as_one():
    text = "abc, def, ghi, jkl, " * 40

    def work(speakers):
        return min(seconds(*(user(n, text, author=f"speaker {n % speakers}") for n in range(1_000))) for _ in range(2))

    assert work(1_000) < 5 * work(1)


def test_twice_the_messages_take_about_twice_the_time():
    def work(turns):
        messages = chat(turns)
        start = time.thread_time()
        answer(ObserverMaterial(messages=messages))
        return time.thread_time() - start

    small = min(work(2_000) for _ in range(3))

    assert min(work(8_000) for _ in range(2)) < 4 * 3 * small
