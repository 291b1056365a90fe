"""Which error is which status, without a server."""

from __future__ import annotations

import json
from typing import Any

import psycopg2
import psycopg2.errors
import pytest
from sqlalchemy import exc as sa_exc

from api.deps import one_resource
from api.errors import STATUS_OF, TITLES, TooManyRequestsError, UnauthorizedError, database_problem, om_problem
from api.routes.messages import key_ids
from api.schemas.fields import strictest
from om_core.domain import errors as domain_errors
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
    SchemaVersionError,
    SetupError,
    UnusableOutputError,
)

TABLE = [
    (InvalidInputError("is empty", path="messages.0"), 422, "invalid_input"),
    (PolicyError("observation.message_tokens", -1, "a positive number"), 422, "invalid_option"),
    (GiveUpError("too large"), 422, "give_up"),
    (UnusableOutputError("a refusal"), 422, "unusable_output"),
    (UnauthorizedError("no key"), 401, "unauthorized"),
    (ForbiddenError("narrowed"), 403, "forbidden"),
    (NotFoundError("no thread"), 404, "not_found"),
    (AmbiguousThreadError("two"), 409, "ambiguous_thread"),
    (ConflictError("stale"), 409, "conflict"),
    (LostRaceError("fence"), 409, "lost_race"),
    (RetryLaterError("busy", after_s=7), 503, "retry_later"),
    (TooManyRequestsError("fast", after_s=0.2), 429, "rate_limited"),
    (SetupError("no key"), 503, "setup"),
    (SchemaVersionError("old"), 503, "schema_version"),
]


def body_of(response: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(response.body)
    return found


@pytest.mark.parametrize(("error", "status", "code"), TABLE, ids=lambda value: type(value).__name__)
def test_each_error_has_its_status_and_a_title_of_its_own(error: OmError, status: int, code: str) -> None:
    response = om_problem(error)
    body = body_of(response)

    assert (response.status_code, body["status"], body["code"]) == (status, status, code)
    assert body["title"] == TITLES[code]
    assert body["detail"] == str(error)


def test_every_error_class_of_the_domain_has_a_status_on_purpose() -> None:
    classes = [
        found for found in vars(domain_errors).values() if isinstance(found, type) and issubclass(found, OmError)
    ]
    assert len(classes) > 10
    for kind in classes:
        if kind is not OmError:
            assert any(base in STATUS_OF for base in kind.__mro__ if base is not OmError), kind


def test_a_wrong_field_is_named_with_the_reason_alone() -> None:
    body = body_of(om_problem(InvalidInputError("is empty", path="messages.0.role")))

    assert body["errors"] == [{"path": "messages.0.role", "in": "body", "code": "invalid", "detail": "is empty"}]


@pytest.mark.parametrize(("after_s", "header"), [(7.4, "8"), (0.01, "1"), (None, "1")])
def test_retry_after_is_whole_seconds_and_at_least_one(after_s: float | None, header: str) -> None:
    assert om_problem(RetryLaterError("busy", after_s=after_s)).headers["retry-after"] == header


def test_text_that_utf8_cannot_hold_does_not_break_the_answer() -> None:
    assert "\\ud800" in bytes(om_problem(NotFoundError("no thread \ud800")).body).decode()


DATABASE = [
    (psycopg2.OperationalError("could not connect to server"), "database_unavailable"),
    (psycopg2.InterfaceError("connection already closed"), "database_unavailable"),
    (sa_exc.OperationalError("SELECT 1", {}, psycopg2.OperationalError("server closed")), "database_unavailable"),
    (sa_exc.TimeoutError("QueuePool limit"), "database_busy"),
]


@pytest.mark.parametrize(("error", "code"), DATABASE, ids=lambda value: type(value).__name__)
def test_a_database_error_is_503_to_be_tried_again_and_shows_no_statement(error: Exception, code: str) -> None:
    response = database_problem(error)
    body = body_of(response)

    assert (response.status_code, body["code"]) == (503, code)
    assert response.headers["retry-after"] == "1"
    assert "SELECT" not in body["detail"]


def test_after_a_lost_connection_nobody_claims_that_nothing_was_stored() -> None:
    """The connection may have broken after its COMMIT was done."""
    lost = body_of(database_problem(psycopg2.OperationalError("server closed the connection")))
    busy = body_of(database_problem(sa_exc.TimeoutError("QueuePool limit")))

    assert "nothing was stored" not in lost["detail"]
    assert "same ids" in lost["detail"]
    assert "nothing was stored" in busy["detail"]


@pytest.mark.parametrize(
    ("modes", "mode"),
    [
        ((None, None), "on"),
        (("on", None), "on"),
        (("on", "read_only"), "read_only"),
        (("off", "read_only"), "off"),
        (("read_only", "off"), "off"),
    ],
)
def test_the_stricter_mode_wins(modes: Any, mode: str) -> None:
    assert strictest(*modes) == mode


def test_one_resource_may_be_named_twice_but_not_two() -> None:
    assert [one_resource(None, None), one_resource("a", None), one_resource(None, "b"), one_resource("a", "a")] == [
        None,
        "a",
        "b",
        "a",
    ]
    with pytest.raises(InvalidInputError, match="different resources"):
        one_resource("a", "b")


def test_ids_follow_from_the_key_and_the_place_in_the_request() -> None:
    first, again, other = (key_ids(key, 2) for key in ("k", "k", "l"))

    assert first == again
    assert len({*first, *other}) == 4
    assert all(len(name) < 100 for name in key_ids("k" * 256, 3))
