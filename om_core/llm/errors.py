"""One classifier for everything a model call can raise. The class of the result is the whole retry policy (DESIGN 5).

Exceptions are told apart by the names of their classes, so that classifying imports neither LiteLLM nor an SDK.
LiteLLM reports refused connections, missing keys and missing packages as server errors: texts are looked at first.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterator, Mapping
from email.utils import parsedate_to_datetime
from typing import Final

from om_core.domain.errors import GiveUpError, OmError, RetryLaterError, SetupError
from om_core.llm.error_rules import API, CLASSES, LIMIT_TEXTS, NETWORK, REFUSED, STATUSES, TEXTS, Rule
from om_core.llm.loop import CallCancelledError
from om_core.llm.redaction import excerpt

MOST_AFTER_S: Final = 86_400.0
UNREACHABLE: Final = "the provider cannot be reached"
MOST_LOOKED_AT: Final = 4_000
"""Characters of a foreign text that are looked at; bodies may quote whole prompts."""


def classify(error: BaseException, *, model: str = "") -> OmError:
    """Translate what a model call raised into what the caller has to do.

    Args:
        error: an exception of LiteLLM, an SDK, httpx, asyncio or this package.
        model: the model called, for the text.

    Returns:
        `RetryLaterError` with `after_s` where the provider named a pause, `GiveUpError` where this input is the cause,
        `SetupError` where somebody has to repair the installation. A text of at most 2,000 characters without keys.
    """
    if isinstance(error, OmError):
        return error
    kind, sentence = _verdict(error)
    status = _status(error)
    made_up = status == 500 and (kind is SetupError or sentence == UNREACHABLE)  # by LiteLLM, without an answer
    shown = "" if status is None or made_up else f" ({status})"
    details = excerpt(_text(error))
    text = f"{model[:200]}: {sentence}{shown}" if model else f"{sentence}{shown}"
    text = f"{text}. {type(error).__name__}"
    full = f"{text}: {details}" if details else text
    found = RetryLaterError(full, after_s=retry_after_s(error)) if kind is RetryLaterError else kind(full)
    found.log_text = text  # a provider's own words may quote the prompt
    return found


def _verdict(error: BaseException) -> tuple[type[OmError], str]:
    names = {base.__name__ for base in type(error).__mro__}
    if isinstance(error, CallCancelledError | asyncio.CancelledError):
        return RetryLaterError, "the call was cancelled"
    if isinstance(error, TimeoutError):
        return RetryLaterError, "no answer in time"
    if isinstance(error, ImportError):
        return SetupError, "a package that this provider needs is not installed"
    for base in type(error).__mro__:
        if base.__name__ in CLASSES:
            return CLASSES[base.__name__]
    text, status = _text(error).lower(), _status(error)
    if names & API or status is not None:
        by_text = _by_text(text, LIMIT_TEXTS if status == 429 else TEXTS)
        if by_text is not None:
            return by_text
    if names & NETWORK or (status == 500 and text.endswith(REFUSED)):
        return RetryLaterError, UNREACHABLE
    if status is not None:
        return _by_status(status)
    if names & API:
        return RetryLaterError, "the provider failed"
    return GiveUpError, "an unexpected error"


def _by_status(status: int) -> tuple[type[OmError], str]:
    if status in STATUSES:
        return STATUSES[status]
    if status >= 500:
        return RetryLaterError, "the provider failed"
    if status >= 400:
        return GiveUpError, "the provider refuses the input"
    return SetupError, "the address is not that of a model server"


def _by_text(text: str, rules: tuple[Rule, ...]) -> tuple[type[OmError], str] | None:
    """What texts tell more exactly than statuses; None for all others."""
    for markers, kind, sentence in rules:
        if any(marker in text for marker in markers):
            return kind, sentence
    return None


def retry_after_s(error: BaseException) -> float | None:
    """The pause a provider asked for, in seconds from its answer (at most a day); None when it named none.

    The headers of the error, of its response and of its causes are looked at. An HTTP date is compared with the
    answer's own `Date`, so a wrong clock on this side does no harm.
    """
    for headers in _headers(error):
        lowered = {str(key).lower(): str(value).strip() for key, value in headers.items()}
        milliseconds = _number(lowered.get("retry-after-ms"))
        seconds = _number(lowered.get("retry-after")) if milliseconds is None else milliseconds / 1000
        if seconds is None:
            seconds = _difference(lowered.get("retry-after"), lowered.get("date"))
        if seconds is not None:
            return min(max(0.0, seconds), MOST_AFTER_S)
    return None


def _number(value: str | None) -> float | None:
    try:
        number = float(value or "")
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _difference(until: str | None, since: str | None) -> float | None:
    try:
        return (parsedate_to_datetime(until or "") - parsedate_to_datetime(since or "")).total_seconds()
    except (ValueError, TypeError):  # no date, or one with a zone and one without
        return None


def _headers(error: BaseException) -> Iterator[Mapping[str, str]]:
    for link in _chain(error):
        for owner in (link, getattr(link, "response", None)):
            for name in ("headers", "litellm_response_headers"):
                headers = getattr(owner, name, None)
                if isinstance(headers, Mapping):
                    yield headers


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The error and its causes, each once."""
    seen: set[int] = set()
    link: BaseException | None = error
    while link is not None and id(link) not in seen:
        seen.add(id(link))
        yield link
        link = link.__cause__ or link.__context__ or getattr(link, "original_exception", None)


def _status(error: BaseException) -> int | None:
    """The HTTP status the provider answered with, if the exception carries one."""
    for owner in (error, getattr(error, "response", None)):
        status = getattr(owner, "status_code", None)
        if isinstance(status, int) and not isinstance(status, bool):
            return status
    return None


def _text(error: BaseException) -> str:
    message = getattr(error, "message", None)
    return (message if isinstance(message, str) and message else str(error))[:MOST_LOOKED_AT]
