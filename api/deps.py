"""What routes are given: the memory of the request's tenant, and checked parameters.

A `/v1` request is authenticated, and its query parameters are checked, before its body is read.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, cast

from fastapi import Depends, Security
from fastapi.routing import APIRoute
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from starlette.requests import Request

from api.access import Access, check_path, check_right, find_access, memory_of
from api.errors import FieldError, InvalidRequestError
from api.rights import right_of
from om_core.domain.errors import InvalidInputError
from om_core.memory import Memory

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator

    import httpx
    from fastapi.dependencies.models import Dependant
    from starlette.responses import Response

    from api.access import KeyUses
    from api.rates import Rates
    from om_core.services.deps import Services
    from om_core.services.feed import EventFeed
    from om_core.services.waiting import JobWaiter


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiState:
    """What the application holds for its routes, as `app.state.om`."""

    services: Services
    waiter: JobWaiter
    feed: EventFeed
    auth: str
    rates: Rates
    key_uses: KeyUses
    http: httpx.AsyncClient
    """For calls to providers in their own form; closed with the application."""
    model_api_base: str | None = None
    """The OpenAI-compatible server that `openai/NAME` means to the gateways."""
    flower_port: int | None = None
    """Where Flower runs on the same host, for a link."""

    def flower_url(self, host: str | None) -> str | None:
        return f"http://{host}:{self.flower_port}/" if self.flower_port and host else None


def state_of(request: Request) -> ApiState:
    return cast("ApiState", request.app.state.om)


bearer = HTTPBearer(auto_error=False, scheme_name="key", description="`Authorization: Bearer om_…` (`om keys create`)")


async def get_memory(
    request: Request, _: Annotated[HTTPAuthorizationCredentials | None, Security(bearer)] = None
) -> Memory:
    """Memory as far as the key reaches. The bearer scheme is named here for the OpenAPI document only."""
    return memory_of(state_of(request), request.state.access)


async def get_waiter(request: Request) -> JobWaiter:
    return state_of(request).waiter


MemoryDep = Annotated[Memory, Depends(get_memory)]


class StrictRoute(APIRoute):
    """A route that refuses query parameters that are unknown, empty or repeated (API 3)."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()
        declared = frozenset(_query_names(self.dependant))

        async def checked(request: Request) -> Response:
            await self.admit(request)
            check_query(request, declared)
            return await handle(request)

        return checked

    async def admit(self, request: Request) -> None:
        """Everybody is admitted."""


class KeyedRoute(StrictRoute):
    """A strict route that first finds out whose request it is, and whether it may."""

    async def admit(self, request: Request) -> None:
        """Set `request.state.access`, or raise as `find_access`, `check_right` and `check_path`."""
        access = request.state.access = await self.identify(request)
        check_right(access, right_of(request.method, self.path))
        check_path(access, request)

    async def identify(self, request: Request) -> Access:
        """Whose request it is."""
        return await find_access(request, state_of(request))


def _query_names(dependant: Dependant) -> Iterator[str]:
    for field in dependant.query_params:
        yield field.alias
    for inner in dependant.dependencies:
        yield from _query_names(inner)


def check_query(request: Request, declared: frozenset[str]) -> None:
    """Compare a request's query with the route's parameters.

    Raises:
        InvalidRequestError: naming each parameter that is unknown, empty or given twice.
    """
    if not request.scope.get("query_string"):
        return
    errors: list[FieldError] = []
    seen: set[str] = set()
    for name, value in request.query_params.multi_items():
        known = ", ".join(sorted(declared)) or "none"
        if name not in declared:
            errors.append(FieldError(name[:64], f"unknown query parameter; known are: {known}", "query", "unknown"))
        elif not value:
            errors.append(FieldError(name, "is empty; leave the parameter out instead", "query", "empty"))
        elif name in seen:
            errors.append(FieldError(name, "is given twice", "query", "repeated"))
        seen.add(name)
    if errors:
        raise InvalidRequestError(errors)


def one_resource(query: str | None, body: str | None) -> str | None:
    """The resource a request names, in its query or its body.

    Raises:
        InvalidInputError: both name one, and not the same.
    """
    if query is not None and body is not None and query != body:
        raise InvalidInputError("the query and the body name different resources", path="resource_id")
    return body if query is None else query
