"""The classifier on errors that need no LiteLLM, and what may be stored of a foreign text."""

from __future__ import annotations

import asyncio
import concurrent.futures
import time

import httpx
import pytest

from om_core.domain.errors import GiveUpError, LostRaceError, RetryLaterError, SetupError
from om_core.llm.errors import classify, retry_after_s
from om_core.llm.loop import CallCancelledError
from om_core.llm.redaction import MOST_EXCERPT, excerpt, redact

REQUEST = httpx.Request("POST", "http://127.0.0.1/v1")


def status_error(status, text="", headers=None):
    response = httpx.Response(status, request=REQUEST, headers=headers or {})
    return httpx.HTTPStatusError(text, request=REQUEST, response=response)


STATUSES = [
    (302, SetupError), (400, GiveUpError), (401, SetupError), (402, SetupError), (403, SetupError), (404, SetupError),
    (405, SetupError), (408, RetryLaterError), (409, RetryLaterError), (413, GiveUpError), (418, GiveUpError),
    (422, GiveUpError), (425, RetryLaterError), (429, RetryLaterError), (500, RetryLaterError), (502, RetryLaterError),
    (503, RetryLaterError), (504, RetryLaterError), (529, RetryLaterError),
]  # fmt: skip


@pytest.mark.conforms("4.7")
@pytest.mark.report("K03")
@pytest.mark.parametrize("status, expected", STATUSES)
def test_a_status_decides_what_has_to_be_done(status, expected):
    assert type(classify(status_error(status))) is expected


RAW = [
    (httpx.ConnectError("refused"), RetryLaterError),
    (httpx.ConnectTimeout("slow"), RetryLaterError),
    (httpx.ReadTimeout("slow"), RetryLaterError),
    (httpx.RemoteProtocolError("hung up"), RetryLaterError),
    (httpx.UnsupportedProtocol("ftp"), SetupError),
    (httpx.InvalidURL("what"), SetupError),
    (TimeoutError(), RetryLaterError),
    (concurrent.futures.TimeoutError(), RetryLaterError),
    (ConnectionResetError(), RetryLaterError),
    (OSError("no route"), RetryLaterError),
    (asyncio.CancelledError(), RetryLaterError),
    (CallCancelledError(), RetryLaterError),
    (ModuleNotFoundError("No module named 'boto3'"), SetupError),
    (TypeError("a mistake in an adapter"), GiveUpError),
]


@pytest.mark.conforms("4.7")
@pytest.mark.report("K03")
@pytest.mark.parametrize("error, expected", RAW, ids=lambda value: getattr(value, "__name__", type(value).__name__))
def test_raw_errors_are_classified(error, expected):
    assert type(classify(error)) is expected


def test_an_error_of_ours_is_kept_as_it_is():
    error = LostRaceError("fence")
    assert classify(error) is error


TEXTS = [
    (500, "the request exceeds the available context size", GiveUpError),
    (400, "This model's maximum context length is 8192 tokens", GiveUpError),
    (400, "prompt is too long: 250000 tokens > 200000 maximum", GiveUpError),
    (400, "API key not valid. Please pass a valid API key.", SetupError),
    (500, "Missing credentials. Please pass an api_key", SetupError),
    (500, "No module named 'google'", SetupError),
    (400, "Your credit balance is too low to access the API", SetupError),
    (429, "You exceeded your current quota (insufficient_quota)", SetupError),
    (429, "Rate limit reached: too many tokens per minute, maximum context length does not matter", RetryLaterError),
    (429, "Request too large for gpt-x on tokens per min: Limit 30000, Requested 40000", GiveUpError),
    (400, "Unsupported parameter: 'temperature'", SetupError),
    (400, "The response was filtered: content management policy", GiveUpError),
    (400, "model_not_found", SetupError),
]


@pytest.mark.parametrize("status, text, expected", TEXTS)
def test_a_text_that_tells_more_than_the_status_decides(status, text, expected):
    assert type(classify(status_error(status, text))) is expected


DATE, LATER = "Wed, 21 Oct 2026 07:28:00 GMT", "Wed, 21 Oct 2026 07:29:30 GMT"
PAUSES = [
    ({"Retry-After": "7"}, 7.0),
    ({"retry-after": "0.5"}, 0.5),
    ({"retry-after-ms": "1500", "retry-after": "9"}, 1.5),
    ({"Retry-After": LATER, "Date": DATE}, 90.0),
    ({"Retry-After": DATE, "Date": LATER}, 0.0),
    ({"Retry-After": LATER}, None),
    ({"Retry-After": "soon"}, None),
    ({"Retry-After": "nan"}, None),
    ({"Retry-After": "inf"}, None),
    ({"Retry-After": "-3"}, 0.0),
    ({"Retry-After": "9999999"}, 86_400.0),
    ({}, None),
]


@pytest.mark.parametrize("headers, expected", PAUSES)
def test_the_pause_a_provider_asks_for_is_read_in_both_forms(headers, expected):
    error = status_error(429, headers=headers)
    assert retry_after_s(error) == expected
    classified = classify(error)
    assert isinstance(classified, RetryLaterError)
    assert classified.after_s == expected


def test_the_pause_is_found_on_the_cause_too():
    outer = RuntimeError("wrapped")
    outer.__cause__ = status_error(503, headers={"Retry-After": "4"})
    assert retry_after_s(outer) == 4


SECRETS = [
    "sk-proj-abcDEF123456", "sk-ant-api03-AbCdEf_123", "gsk_1234567890abcdef", "AIzaSyA1234567890abcdefg",
    "Bearer abcdef1234567890", "AKIAIOSFODNN7EXAMPLE", "ghp_abcdefghijklmnop1234", "eyJhbGciOiJ9.eyJzdWIi.c2ln",
    "hunter2secret",
]  # fmt: skip
SHAPES = [
    "failed with {}",
    "https://host/v1?key={}&alt=json",
    '{{"api_key": "{}"}}',
    "Authorization: {}",
    "Incorrect API key provided: {}.",
    "https://user:{}@host/",
    "password={}",
]


@pytest.mark.parametrize("secret", SECRETS[:-1])
@pytest.mark.parametrize("shape", SHAPES)
def test_known_kinds_of_secrets_are_redacted_anywhere(secret, shape):
    assert secret.removeprefix("Bearer ") not in redact(shape.format(secret))


@pytest.mark.parametrize("shape", SHAPES[1:])
def test_an_unknown_kind_of_secret_is_redacted_behind_a_name_that_gives_it_away(shape):
    assert SECRETS[-1] not in redact(shape.format(SECRETS[-1]))


@pytest.mark.parametrize(
    "text",
    [
        "maximum context length is 8192 tokens",
        "limit 30000 tokens: requested 40000",
        "key points of the task",
        "risk-averse",
    ],
)
def test_ordinary_words_are_left_alone(text):
    assert redact(text) == text


def test_a_text_holds_neither_secret_nor_body_and_is_bounded():
    body = '{"error": {"message": "bad key sk-abcdefgh1234", "prompt": "' + "private words " * 1000 + '"}}'
    text = str(classify(status_error(400, f"litellm.BadRequestError: OpenAIException - {body}"), model="m" * 5000))
    assert "bad key" in text
    assert "sk-abc" not in text
    assert "private" not in text
    assert len(text) <= 2000


@pytest.mark.parametrize(
    "text, expected",
    [
        ("litellm.RateLimitError: RateLimitError: OpenAIException - slow down", "slow down"),
        ('OpenAIException - {"error": {"message": "slow down"}}', "slow down"),
        ("Bad gateway <html><body>private</body></html>", "Bad gateway"),
        ("broken\nTraceback (most recent call last):\n  File x", "broken"),
        ("{'error': {'message': 'slow down', 'code': 1}}", "slow down"),
        ("{not json", ""),
        ("", ""),
    ],
)
def test_only_the_readable_message_of_a_foreign_text_is_kept(text, expected):
    assert excerpt(text) == expected


def test_a_long_text_is_cut():
    assert len(excerpt("word " * 1000)) <= MOST_EXCERPT


@pytest.mark.parametrize("character", ["a", "_", " ", "{", "-"])
def test_a_text_of_a_megabyte_is_redacted_in_linear_time(character):
    text = character * 1_000_000
    started = time.process_time()

    redact(text)
    excerpt(text)

    assert time.process_time() - started < 3
