"""A megabyte of anything, wherever text is parsed: read in less than a second, and never by a regular expression's
exponential or quadratic worst case. (The offline model has its own measure: `test_offline_speed`.)
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Any

import pytest

from om_core.domain.errors import InvalidInputError
from om_core.domain.message import Message, Role, Text
from om_core.domain.returned import without_returned
from om_core.domain.tags import escape, is_injected, wrap
from om_core.formats import parse_messages
from om_core.formats.attachments import split_attachments
from om_core.ports import ObserverMaterial
from om_core.prompts.observer import build_observer_request
from om_core.prompts.parse import parse_observer, parse_reflector, parse_values
from om_core.prompts.quoting import clean_text, escape_tags, quote_block, strip_delimiters
from om_core.prompts.redact import redact
from om_core.prompts.render import render_messages, speaker_name
from tests.unit.prompt_samples import FourCharTokens, call, result, user

MEGABYTE = 1_000_000
CEILING_S = 1.0


def filled(piece: str) -> str:
    return (piece * (MEGABYTE // len(piece) + 1))[:MEGABYTE]


HOSTILE = {
    "angle brackets": filled("<"),
    "square brackets": filled("["),
    "nested tags": "<a>" * (MEGABYTE // 7) + "</a>" * (MEGABYTE // 7),
    "nested observations": "<observations>\n" * 30_000 + "</observations>\n" * 30_000,
    "open observations": filled("<observations>\n"),
    "sections in turn": filled("<current-task>\n<observations>\n"),
    "our blocks": filled("<om-log>\nx\n</om-log>\n"),
    "our blocks and more": filled("<om-log>\nx\n</om-log>\n") + "!",
    "attributes": "<om-log " + filled('a="b" '),
    "delimiters": filled("</history-0123456789ab>"),
    "blanks after an opener": "<" + filled(" "),
    "unseen characters": "<" + filled("\u200b"),
    "look-alikes": filled("＜\u200b/\u200bobserv"),
    "data uris": filled("data:image/png;base64,"),
    "parameters of a data uri": "data:a/b" + filled(";x=y"),
    "base64 in lines": filled("a" * 60 + "\n" + "b" * 59 + "\n"),
    "notes": filled("* 🔴 (10:00) "),
    "dashes": filled("-----BEGIN "),
    "assignments": filled("password="),
    "addresses": filled("https://a:b"),
    "list of lists": filled("[["),
    "line feeds": filled("\n"),
    "surrogates": filled("\ud800"),
    "combining marks": "e" + filled("\u0301"),
    "one letter": filled("a"),
}


def ours(text: str) -> Message:
    return Message(role=Role.USER, parts=(Text(text=text),))


def observed(text: str) -> object:
    messages = (user(1, text), call(2, "f", text[:1_000], "c"), result(3, "c", text))
    return build_observer_request(
        ObserverMaterial(messages=messages), model="m", settings={}, provider_options={},
        instruction=None, tokenizer=FourCharTokens(),
    )  # fmt: skip


READERS: dict[str, Callable[[str], Any]] = {
    "an Observer's answer": parse_observer,
    "an Observer's answer in its section": lambda text: parse_observer(f"<observations>\n{text}\n</observations>"),
    "a Reflector's answer": lambda text: parse_reflector(f"<observations>\n{text}\n</observations>", source=text),
    "values": parse_values,
    "the messages of a request": observed,
    "a message that may be ours": lambda text: (is_injected(ours(text)), without_returned(ours(text))),
    "an OpenAI message": lambda text: parse_messages([{"role": "user", "content": text}], "openai"),
    "an Anthropic message": lambda text: parse_messages([{"role": "user", "content": text}], "anthropic"),
    "a tool call's arguments": lambda text: parse_messages(
        [{"role": "assistant", "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": text}}]}],
        "openai",
    ),
    "attachments": split_attachments,
    "secrets": redact,
    "tags": lambda text: (escape(text), escape_tags(text), strip_delimiters(text), clean_text(text)),
    "blocks": lambda text: (wrap("log", text, kind=text), quote_block("history", text)),
    "a name": speaker_name,
    "entries": lambda text: render_messages([user(1, text, author=text)], timezone="UTC", tokenizer=FourCharTokens()),
}  # fmt: skip


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("name", HOSTILE)
def test_a_megabyte_is_read_in_less_than_a_second(reader, name):
    text = HOSTILE[name]
    took = []
    for _ in range(2):
        started = time.thread_time()
        with contextlib.suppress(InvalidInputError):  # refused in time is as good
            READERS[reader](text)
        took.append(time.thread_time() - started)
        if took[-1] < CEILING_S:
            break
    assert min(took) < CEILING_S, f"{reader} took {min(took):.1f} s of CPU time for {name}"
