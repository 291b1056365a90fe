"""Every error as an RFC 9457 problem document; the table says which error class is which status (API, opening)."""

from __future__ import annotations

import json
import logging
import math
import re
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

import psycopg2
from fastapi.exceptions import RequestValidationError
from sqlalchemy import exc as sa_exc
from starlette.exceptions import HTTPException
from starlette.responses import Response

from api.requests import HEADER, request_id
from om_core.domain.errors import (
    AmbiguousThreadError,
    ConflictError,
    ForbiddenError,
    GiveUpError,
    InvalidInputError,
    LostRaceError,
    NotFoundError,
    OmError,
    PolicyError,
    RetryLaterError,
    SetupError,
    shown,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from fastapi import FastAPI
    from starlette.requests import Request

    from om_core.domain.message import JsonObject

log = logging.getLogger("om.api")

MEDIA_TYPE: Final = "application/problem+json"
RETRY_AFTER_S: Final = 1
"""Pause asked for when the database is away and nothing better is known."""
BAD_REQUEST, UNAUTHORIZED, FORBIDDEN, NOT_FOUND, CONFLICT = 400, 401, 403, 404, 409
NOT_ALLOWED, TOO_LARGE, UNPROCESSABLE, TOO_MANY, INTERNAL, UNAVAILABLE = 405, 413, 422, 429, 500, 503


class UnauthorizedError(OmError):
    """No key, or one that is not known."""

    code = "unauthorized"


class TooManyRequestsError(RetryLaterError):
    """A key is used more often than it may be; again after `after_s`."""

    code = "rate_limited"


@dataclass(frozen=True, slots=True)
class FieldError:
    """One field that is wrong: its path as in `messages.0.role`, where it stands (body, query, path, header), why."""

    path: str
    detail: str
    where: str = "body"
    code: str = "invalid"

    def to_json(self) -> JsonObject:
        return {"path": self.path, "in": self.where, "code": self.code, "detail": self.detail}


class InvalidRequestError(OmError, ValueError):
    """Several fields are wrong at once."""

    code = "invalid_input"

    def __init__(self, errors: Iterable[FieldError]) -> None:
        self.errors = tuple(errors)
        super().__init__(
            "; ".join(f"{error.path}: {error.detail}" if error.path else error.detail for error in self.errors)
        )


STATUS_OF: Final[Mapping[type[OmError], int]] = {
    InvalidInputError: UNPROCESSABLE,
    InvalidRequestError: UNPROCESSABLE,
    PolicyError: UNPROCESSABLE,
    GiveUpError: UNPROCESSABLE,
    UnauthorizedError: UNAUTHORIZED,
    ForbiddenError: FORBIDDEN,
    NotFoundError: NOT_FOUND,
    AmbiguousThreadError: CONFLICT,
    ConflictError: CONFLICT,
    LostRaceError: CONFLICT,
    TooManyRequestsError: TOO_MANY,
    RetryLaterError: UNAVAILABLE,
    SetupError: UNAVAILABLE,
    OmError: INTERNAL,
}
"""Subclasses have their nearest base's status."""

TITLES: Final[Mapping[str, str]] = {
    "ambiguous_thread": "Several resources have this thread",
    "bad_request": "The request cannot be read",
    "conflict": "The request contradicts what is stored",
    "database": "The database could not do it now",
    "database_busy": "The database is busy",
    "database_unavailable": "The database does not answer",
    "forbidden": "This key may not do that",
    "give_up": "The work was given up",
    "internal_error": "Something went wrong in the service",
    "invalid_input": "The request is not valid",
    "invalid_option": "An option is out of its range",
    "lost_race": "Somebody else was faster",
    "method_not_allowed": "This path does not have that method",
    "not_found": "Not found",
    "not_ready": "The service is not ready",
    "payload_too_large": "The request body is too large",
    "rate_limited": "Too many requests with this key",
    "retry_later": "Try again later",
    "schema_version": "The database schema has another version",
    "setup": "The installation is not complete",
    "unauthorized": "A key is needed",
    "unusable_output": "The model's answer cannot be used",
}
_HTTP_CODES: Final = {
    BAD_REQUEST: "bad_request",
    NOT_FOUND: "not_found",
    NOT_ALLOWED: "method_not_allowed",
    TOO_LARGE: "payload_too_large",
}
_AWAY: Final = ("08", "53300", "57P")
"""SQLSTATEs of a server that cannot be reached: connection lost, no connection left, shutting down or starting."""
DATABASE_ERRORS: Final = (
    psycopg2.OperationalError,
    psycopg2.InterfaceError,
    sa_exc.OperationalError,
    sa_exc.InterfaceError,
    sa_exc.TimeoutError,
)


def problem(
    status: int,
    code: str,
    detail: str,
    *,
    errors: Iterable[FieldError] = (),
    headers: Mapping[str, str] | None = None,
    more: JsonObject | None = None,
) -> Response:
    """A problem document as a response; `more` are extension members."""
    body: JsonObject = {
        "type": f"urn:om:problem:{code}",
        "title": TITLES.get(code) or HTTPStatus(status).phrase,
        "status": status,
        "detail": detail,
        "code": code,
        **(more or {}),
    }
    known = dict(headers or {})
    if named := request_id.get():
        body["request_id"] = known[HEADER] = named
    found = [error.to_json() for error in errors]
    if found:
        body["errors"] = found
    # ASCII: a detail may quote input that UTF-8 cannot hold (lone surrogates).
    return Response(json.dumps(body), status_code=status, headers=known, media_type=MEDIA_TYPE)


def om_problem(error: OmError) -> Response:
    """The response for one of our own errors."""
    status = next(STATUS_OF[kind] for kind in type(error).__mro__ if kind in STATUS_OF)
    headers = retry_after(error)
    if isinstance(error, UnauthorizedError):
        headers["WWW-Authenticate"] = "Bearer"
    return problem(status, error.code, str(error), errors=_field_errors(error), headers=headers)


def retry_after(error: OmError) -> dict[str, str]:
    """The header that says when to try again, in whole seconds, where the error knows."""
    if not isinstance(error, RetryLaterError):
        return {}
    return {"Retry-After": str(max(1, math.ceil(error.after_s or RETRY_AFTER_S)))}


def _field_errors(error: OmError) -> Iterable[FieldError]:
    if isinstance(error, InvalidRequestError):
        return error.errors
    if isinstance(error, InvalidInputError) and error.path:
        return [FieldError(error.path, error.reason)]
    if isinstance(error, PolicyError):
        return [FieldError(error.option, f"{shown(error.value)} is not allowed: {error.allowed}")]
    return ()


def validation_problem(error: RequestValidationError) -> Response:
    """The response for fields that FastAPI found wrong."""
    return om_problem(InvalidRequestError(_found_by_fastapi(item) for item in error.errors()))


def _found_by_fastapi(item: Mapping[str, Any]) -> FieldError:
    where, *path = (str(step) for step in item["loc"])
    detail = str(item["msg"])
    if item["type"] == "json_invalid":
        detail, path = f"not JSON: {item['ctx']['error']} at character {path[0] if path else 0}", []
    elif item["type"] == "missing" and where == "body" and not path:
        detail = "a JSON object is expected (with Content-Type: application/json)"
    elif item["type"] == "extra_forbidden":
        detail = "unknown field"
    return FieldError(".".join(path), detail, where, str(item["type"]))


def http_problem(error: HTTPException, allowed: Iterable[str] = ()) -> Response:
    """The response for what routing and body reading refuse; `allowed` are the methods of the path, for 405."""
    code = _HTTP_CODES.get(error.status_code, "http_error")
    detail = {
        NOT_FOUND: "there is no such path; GET /openapi.json lists them",
        NOT_ALLOWED: "this path exists, but not with this method; see the header Allow",
    }.get(error.status_code, str(error.detail))
    headers = dict(error.headers or {})
    if error.status_code == NOT_ALLOWED and allowed:
        headers["Allow"] = ", ".join(allowed)  # routing names the methods of one route only
    return problem(error.status_code, code, detail, headers=headers)


def methods_of(document: Mapping[str, Any], path: str) -> list[str]:
    """The methods that the OpenAPI document has for a path, in capitals."""
    found = {
        method.upper()
        for template, operations in document["paths"].items()
        if re.fullmatch(re.sub(r"\\{[^}]+\\}", "[^/]+", re.escape(template)), path)
        for method in operations
    }
    return sorted(found)


def database_problem(error: Exception) -> Response:
    """The response when a statement could not run for reasons outside the request. The cause is logged, not shown."""
    original = getattr(error, "orig", None) or error
    state = getattr(original, "pgcode", None)
    away = not isinstance(error, sa_exc.TimeoutError) and (state is None or state.startswith(_AWAY))
    log.warning("database %s: %s", "unavailable" if away else "busy", str(original).strip()[:500])
    code = "database_unavailable" if away else "database_busy"
    # A connection may break after its COMMIT was done, before the answer came: then it is stored.
    detail = (
        "the database does not answer; what was sent may be stored: send the same again, with the same ids"
        if away
        else "the database did not get to it in time; nothing was stored, try again"
    )
    return problem(UNAVAILABLE, code, detail, headers={"Retry-After": str(RETRY_AFTER_S)})


def install(app: FastAPI) -> None:
    """Answer every error of the application with a problem document."""

    @app.exception_handler(OmError)
    async def own(_: Request, error: Exception) -> Response:
        assert isinstance(error, OmError)
        return om_problem(error)

    @app.exception_handler(RequestValidationError)
    async def invalid(_: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        return validation_problem(error)

    @app.exception_handler(HTTPException)
    async def refused(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        if error.status_code == NOT_ALLOWED:
            return http_problem(error, methods_of(app.openapi(), request.url.path))
        return http_problem(error)

    for kind in DATABASE_ERRORS:
        app.add_exception_handler(kind, _database)
    app.add_exception_handler(Exception, _unexpected)


async def _database(_: Request, error: Exception) -> Response:
    return database_problem(error)


async def _unexpected(_: Request, error: Exception) -> Response:
    """A defect: the server logs the traceback, the caller learns nothing of it."""
    return problem(INTERNAL, "internal_error", f"unexpected {type(error).__name__}; the service's log has the details")
