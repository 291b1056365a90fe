"""The HTTP application (API 3)."""

from __future__ import annotations

from contextlib import asynccontextmanager
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any, Final

import httpx
from fastapi import FastAPI

from api import errors, gateway
from api.access import KeyUses
from api.dashboard import login, static_files
from api.dashboard import router as dashboard
from api.deps import ApiState
from api.guards import RequestGuard
from api.rates import Rates
from api.routes import (
    contexts,
    events,
    health,
    jobs,
    keys,
    messages,
    notes,
    removal,
    threads,
    tools,
    usage,
    webhooks,
    work,
    working_memory,
)
from api.schemas.answers import Problem
from om_core.domain.errors import SetupError
from om_core.llm.library import close_clients
from om_core.scrape import scrape_registry
from om_core.services.feed import EventFeed
from om_core.services.waiting import JobWaiter

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from om_core.services.deps import Services

ROUTERS: Final = (
    threads.router,
    messages.router,
    contexts.router,
    notes.router,
    events.router,
    removal.router,
    webhooks.router,
    working_memory.router,
    tools.router,
    work.router,
    jobs.router,
    keys.router,
    usage.router,
    health.router,
)
DESCRIPTION: Final = (
    "Long memory for LLM agents. Store each step of a conversation, and get back the prompt to send next. "
    "Errors are problem documents (RFC 9457); lists are `{items, next_cursor}`; times are RFC 3339 with Z."
)


def create_app(
    services: Services,
    *,
    auth: str,
    model_api_base: str | None = None,
    flower_port: int | None = None,
    rates: Rates | None = None,
) -> FastAPI:
    """The application over services that the caller built and closes.

    Args:
        services: the adapters; the application ends only its own job poller.
        auth: `keys`, or `off` (the caller makes sure that only loopback addresses are served:
            `om_core.config.check_auth_binding`).
        model_api_base: the OpenAI-compatible server that `openai/NAME` means to the gateways, if not OpenAI's own.
        rates: how often a key may be used; None: without a limit.
        flower_port: where Flower runs on the same host, for a link in the dashboard.

    Raises:
        SetupError: `auth` is neither.
    """
    if auth not in {"keys", "off"}:
        msg = f"OM_AUTH = {auth!r} is not allowed: keys or off"
        raise SetupError(msg)
    http = httpx.AsyncClient()
    waiter, feed = JobWaiter(services.store), EventFeed(services.store)
    limits = rates or Rates(None, per_s=0, burst=1, clock=services.clock)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        app.state.om_probes = health.probe_limiter()
        yield
        await http.aclose()
        await close_clients()
        feed.close()
        waiter.close()
        limits.close()

    app = FastAPI(
        title="Observational Memory",
        description=DESCRIPTION,
        version=_version(),
        lifespan=lifespan,
        redirect_slashes=False,
        redoc_url=None,
    )
    app.state.om_metrics = scrape_registry(services.store.system)
    app.state.om = ApiState(
        services=services,
        waiter=waiter,
        feed=feed,
        auth=auth,
        rates=limits,
        key_uses=KeyUses(services),
        http=http,
        model_api_base=model_api_base,
        flower_port=flower_port,
    )
    app.add_middleware(RequestGuard, local_only=auth == "off")
    errors.install(app)
    for router in ROUTERS:
        app.include_router(router)
    app.include_router(gateway.openai)
    app.include_router(gateway.anthropic)
    app.include_router(login)
    app.include_router(dashboard)
    app.mount("/static", static_files())
    _describe(app)
    return app


def _describe(app: FastAPI) -> None:
    """Add the problem document to the components of the OpenAPI document."""
    generate = app.openapi

    def openapi() -> dict[str, Any]:
        document = generate()
        schema = Problem.model_json_schema(ref_template="#/components/schemas/{model}")
        inner = schema.pop("$defs", {})
        document["components"].setdefault("schemas", {}).update({**inner, "Problem": schema})
        return document

    app.openapi = openapi  # type: ignore[method-assign]  # FastAPI's documented way to extend the document


def _version() -> str:
    try:
        return version("om-pipeline")
    except PackageNotFoundError:
        return "0"
