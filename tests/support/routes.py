"""The routes of an application, also those of the routers it includes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.routing import Mount, Route

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from fastapi import FastAPI
    from starlette.routing import BaseRoute


def routes_of(app: FastAPI) -> list[tuple[str, str]]:
    """Method and path of each, in the order of routing; HEAD goes with GET."""
    return [(method, path) for path, methods in _walk(app.routes) for method in sorted(methods - {"HEAD"})]


def _walk(routes: Iterable[BaseRoute]) -> Iterator[tuple[str, set[str]]]:
    for route in routes:
        if isinstance(route, Route):
            yield route.path, set(route.methods or ())
        elif isinstance(route, Mount):
            yield route.path, {"GET"}
        else:
            inner = getattr(route, "original_router", None)
            assert inner is not None, f"{route!r} is of a kind that nobody has classified"
            yield from _walk(inner.routes)
