"""What both clients do with a request: headers, time limits, which failures are tried again, errors by their class."""

from __future__ import annotations

import math
import random  # jitter of the pauses
from typing import TYPE_CHECKING, Final

import httpx

from om_core.domain.context import Activated, Context, ContextTokens, SystemBlock, VolatileBlock
from om_core.domain.errors import (
    AmbiguousThreadError,
    ConflictError,
    GiveUpError,
    InvalidInputError,
    LostRaceError,
    NotFoundError,
    OmError,
    RetryLaterError,
    SetupError,
)
from om_core.formats.canonical import parse_message
from om_core.turn import ContextResult

if TYPE_CHECKING:
    from om_core.client.calls import Call
    from om_core.domain.message import JsonObject

TIMEOUT_S: Final = 30.0
"""For the server's part of a request, in seconds, beside what it waits for on request."""
ATTEMPTS: Final = 4
FIRST_PAUSE_S: Final = 0.2
LONGEST_PAUSE_S: Final = 20.0
_AGAIN: Final = frozenset({429, 502, 503, 504})
_CLASSES: Final[dict[str, type[OmError]]] = {
    kind.code: kind
    for kind in (
        NotFoundError,
        AmbiguousThreadError,
        ConflictError,
        GiveUpError,
        LostRaceError,
        RetryLaterError,
        SetupError,
    )
}


class ApiError(OmError):
    """The API refused for a reason that has no class of its own; `status` and `problem` are its answer."""

    code = "api_error"

    def __init__(self, message: str, *, status: int, problem: JsonObject) -> None:
        super().__init__(message)
        self.status = status
        self.problem = problem


def build_headers(api_key: str | None) -> dict[str, str]:
    """Sent with every request."""
    return {"Authorization": f"Bearer {api_key}"} if api_key else {}


def request_of(client: httpx.Client | httpx.AsyncClient, call: Call) -> httpx.Request:
    """The request of a call."""
    return client.build_request(
        call.method,
        call.path,
        params=call.query,
        json=call.body,
        headers={"Idempotency-Key": call.key} if call.key else {},
        timeout=TIMEOUT_S + call.wait_s,
    )


def pause_after(attempt: int, failed: httpx.Response | httpx.TransportError) -> float | None:
    """Seconds until a failed request is tried again; None: it is not.

    Every request may be repeated: messages carry ids or a key, and the rest does the same when it is done twice.
    """
    if attempt >= ATTEMPTS or (isinstance(failed, httpx.Response) and failed.status_code not in _AGAIN):
        return None
    asked = _retry_after(failed) if isinstance(failed, httpx.Response) else None
    if asked is not None:
        return asked if asked <= LONGEST_PAUSE_S else None
    return min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2.0 ** (attempt - 1)) * random.uniform(0.5, 1.0)


def _retry_after(response: httpx.Response) -> float | None:
    try:
        seconds = float(response.headers.get("retry-after", ""))
    except ValueError:
        return None
    return seconds if math.isfinite(seconds) and seconds >= 0 else None


def answer_of(response: httpx.Response) -> JsonObject:
    """The JSON of a successful answer.

    Raises:
        OmError: of the class that the problem document's code names, else `ApiError`.
    """
    if response.is_success:
        answer: JsonObject = response.json()
        return answer
    raise error_of(response)


def error_of(response: httpx.Response) -> OmError:
    """The error that an answer reports."""
    try:
        problem: JsonObject = response.json()
        code, detail = str(problem["code"]), str(problem["detail"])
    except (ValueError, KeyError, TypeError):
        return ApiError(f"the API answered {response.status_code}", status=response.status_code, problem={})
    if code == "invalid_input":
        first = (problem.get("errors") or [{}])[0]
        return InvalidInputError(str(first.get("detail", detail)), path=str(first.get("path", "")))
    if code in _CLASSES:
        return _CLASSES[code](detail)
    return ApiError(f"{code}: {detail}", status=response.status_code, problem=problem)


def unreachable(error: httpx.TransportError, base_url: str) -> RetryLaterError:
    """The error for an API that does not answer."""
    return RetryLaterError(f"the API at {base_url} does not answer: {type(error).__name__}: {error}")


def context_of(answer: JsonObject) -> ContextResult:
    """A context from its canonical JSON, with the same forms to send as `Memory.context` gives."""
    activated = answer.get("activated")
    return ContextResult(
        Context(
            system=tuple(SystemBlock(**block) for block in answer["system"]),
            messages=tuple(
                parse_message(message, f"messages.{index}") for index, message in enumerate(answer["messages"])
            ),
            stable_messages=answer["stable_messages"],
            volatile=tuple(VolatileBlock(**block) for block in answer["volatile"]),
            tokens=ContextTokens(**answer["tokens"]),
            generation=answer["generation"],
            observed_seq=answer["observed_seq"],
            head_seq=answer["head_seq"],
            prefix_hash=answer["prefix_hash"],
            prefix_changed=answer["prefix_changed"],
            activated=Activated(**{**activated, "cycle_ids": tuple(activated["cycle_ids"])}) if activated else None,
            trimmed=answer["trimmed"],
            over_budget=answer["over_budget"],
            waited_s=answer["waited_s"],
        )
    )
