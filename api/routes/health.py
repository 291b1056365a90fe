"""Whether the process is alive, and whether it is usable."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Annotated, Final, Literal

import anyio
import anyio.to_thread
from fastapi import APIRouter, Query
from fastapi.responses import JSONResponse, PlainTextResponse
from starlette.requests import Request
from starlette.responses import Response

from api.deps import StrictRoute, state_of
from api.errors import UNAVAILABLE, problem
from api.routes.replies import problems
from api.schemas import answers
from om_core.domain.errors import SchemaVersionError
from om_core.scrape import exposition
from om_core.store.engine import PostgresStore
from om_core.store.migrate import check_schema

if TYPE_CHECKING:
    from collections.abc import Callable

    from om_core.domain.message import JsonObject
    from om_core.services.deps import Services

log = logging.getLogger("om.api")
PROBE_S: Final = 2.0
"""Seconds a server has to answer a probe."""
_PROBES: Final = 4
"""Probes under way at once: while a server hangs, later probes wait here and not in the request pool."""

router = APIRouter(route_class=StrictRoute, tags=["health"])


@router.get("/healthz", response_model=answers.Health, responses=problems(422))
async def healthz() -> JSONResponse:
    """The process is alive. Touches nothing."""
    return JSONResponse({"status": "ok"})


@router.get("/readyz", response_model=answers.Readiness, responses=problems(422, 503))
async def readyz(
    request: Request,
    exclude: Annotated[
        Literal["broker"] | None,
        Query(description="Ignore this check: without a broker turns are stored and observed all the same, but later."),
    ] = None,
) -> Response:
    """Database, schema and broker are usable; each is named with its state."""
    services = state_of(request).services
    limiter = request.app.state.om_probes
    checks: JsonObject = {}
    async with anyio.create_task_group() as group:
        group.start_soon(_into, checks, limiter, lambda: _database(services), ("database", "schema"))
        if exclude is None:
            group.start_soon(_into, checks, limiter, lambda: {"broker": _broker(services)}, ("broker",))
        else:
            checks["broker"] = {"state": "excluded"}
    bad = [name for name, check in sorted(checks.items()) if check["state"] in {"failed", "unknown"}]
    if not bad:
        return JSONResponse({"status": "ready", "checks": checks})
    detail = "; ".join(f"{name}: {checks[name].get('detail') or checks[name]['state']}" for name in bad)
    return problem(UNAVAILABLE, "not_ready", detail, more={"checks": checks})


@router.get(
    "/metrics",
    response_class=PlainTextResponse,
    responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}, **problems(422)},
)
async def metrics(request: Request) -> Response:
    """Numbers of this process and of the queue for Prometheus, without a key: they name no tenant and no thread."""
    registry, accept = request.app.state.om_metrics, request.headers.get("accept", "")
    limiter = request.app.state.om_probes
    text, content_type = await anyio.to_thread.run_sync(exposition, registry, accept, limiter=limiter)
    return Response(text, media_type=content_type)


def probe_limiter() -> anyio.CapacityLimiter:
    """Limits the probes of one application."""
    return anyio.CapacityLimiter(_PROBES)


async def _into(
    checks: JsonObject, limiter: anyio.CapacityLimiter, probe: Callable[[], JsonObject], names: tuple[str, ...]
) -> None:
    """Run a probe for at most `PROBE_S`; a probe that hangs is left behind."""
    with anyio.move_on_after(PROBE_S):
        checks.update(await anyio.to_thread.run_sync(probe, abandon_on_cancel=True, limiter=limiter))
        return
    checks.update({name: {"state": "failed", "detail": f"no answer within {PROBE_S:g} s"} for name in names})


def _database(services: Services) -> JsonObject:
    store = services.store
    try:
        if isinstance(store, PostgresStore):
            check_schema(store.engine)
        else:
            store.system.workers(max_age_s=PROBE_S)
    except SchemaVersionError as error:
        return {"database": {"state": "ok"}, "schema": {"state": "failed", "detail": str(error)}}
    except Exception as error:  # whatever it is, the database cannot be used; the cause is for the log
        log.warning("readiness: database: %s", str(error)[:300])
        away = {"state": "failed", "detail": "the database does not answer; see the service's log"}
        return {"database": away, "schema": {"state": "unknown"}}
    return {"database": {"state": "ok"}, "schema": {"state": "ok"}}


def _broker(services: Services) -> JsonObject:
    """By the dispatcher's `ping(timeout_s)`, else by its `healthy`; a dispatcher with neither needs no broker."""
    dispatcher = services.dispatcher
    ping = getattr(dispatcher, "ping", None)
    if ping is not None:
        try:
            ping(PROBE_S / 2)
        except Exception as error:  # whatever it is, the broker cannot be used; the cause is for the log
            log.warning("readiness: broker: %s", str(error)[:300])
            return {"state": "failed", "detail": "the broker does not answer; see the service's log"}
        return {"state": "ok"}
    healthy = getattr(dispatcher, "healthy", None)
    if healthy is None:
        return {"state": "not_used"}
    return {"state": "ok"} if healthy else {"state": "failed", "detail": "the last ring failed"}
