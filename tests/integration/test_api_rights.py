"""Each route says which right it needs, and a route that does not is refused to all but keys of a whole tenant."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from api.access import Access, check_right
from api.app import create_app
from api.rights import RIGHTS, Right, right_of
from om_core.domain.errors import ForbiddenError
from om_core.domain.reach import EVERYTHING, Reach
from tests.support.routes import routes_of

if TYPE_CHECKING:
    from om_core.services.deps import Services

NARROW, THREAD, READER = Reach(resource="r"), Reach(resource="r", thread="t"), Reach(read_only=True)


@pytest.fixture
def routes(services: Services) -> list[str]:
    return [f"{method} {path}" for method, path in routes_of(create_app(services, auth="keys"))]


def test_every_route_is_classified_and_nothing_else_is(routes: list[str]) -> None:
    assert len(routes) > 50
    assert sorted(RIGHTS) == sorted(set(routes)), "say in api/rights.py which right the route needs"


def test_without_a_key_nothing_below_v1_is_served(routes: list[str]) -> None:
    open_to_all = {route for route in routes if RIGHTS[route] is Right.NONE}
    assert not [route for route in open_to_all if " /v1" in route]
    assert len(open_to_all) < 12


def test_what_changes_something_needs_more_than_reading(routes: list[str]) -> None:
    harmless = {"POST /v1/threads/{thread}/context", "POST /login", "POST /logout"}
    for route in routes:
        if not route.startswith("GET ") and route not in harmless:
            assert RIGHTS[route] in {Right.WRITE, Right.ADMIN}, route


def test_a_route_that_nobody_classified_needs_every_right() -> None:
    assert right_of("POST", "/v1/brand/new") is Right.ADMIN


@pytest.mark.parametrize(
    ("reach", "allowed"),
    [
        (EVERYTHING, {Right.READ, Right.WRITE, Right.ADMIN}),
        (NARROW, {Right.READ, Right.WRITE}),
        (THREAD, {Right.READ, Right.WRITE}),
        (READER, {Right.READ}),
        (Reach(resource="r", read_only=True), {Right.READ}),
    ],
)
def test_what_each_kind_of_key_may(reach: Reach, allowed: set[Right]) -> None:
    for right in (Right.READ, Right.WRITE, Right.ADMIN):
        assert _may(Access(tenant="one", reach=reach), right) == (right in allowed), right


def _may(access: Access, right: Any) -> bool:
    try:
        check_right(access, right)
    except ForbiddenError:
        return False
    return True


@pytest.mark.parametrize(
    ("reach", "covered", "beyond"),
    [
        (NARROW, [("r", "t"), ("r", "u"), (None, "t")], [("s", "t")]),
        (THREAD, [("r", "t"), (None, "t")], [("r", "u"), ("s", "t"), (None, "u")]),
        (EVERYTHING, [("r", "t"), ("s", "u"), (None, "t")], []),
    ],
)
def test_what_is_within_reach(
    reach: Reach, covered: list[tuple[str | None, str]], beyond: list[tuple[str | None, str]]
) -> None:
    assert all(reach.covers(*target) for target in covered)
    assert not any(reach.covers(*target) for target in beyond)
    assert reach.covers_resource("r") == (reach.thread is None)
    assert reach.covers_resource("s") == (reach == EVERYTHING)
