"""`om api`: the HTTP application over the servers that run."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from om_core.config import Settings

KEEP_ALIVE_S = 75
SHUTDOWN_S = 10


def serve(settings: Settings, *, host: str | None = None, port: int | None = None) -> None:
    """Serve until SIGTERM or Ctrl-C.

    Raises:
        SetupError: no servers, no schema, or no authentication where others can reach it.
    """
    import uvicorn

    from api.app import create_app
    from api.cli.connect import joined
    from api.cli.ports import check_free
    from api.rates import Rates
    from api.server import ApiServer
    from om_core.bootstrap import build_services, find_dispatcher
    from om_core.config import check_auth_binding
    from om_core.tracing import start_tracing

    address, number = host or settings.api_host, port or settings.api_port
    check_auth_binding(settings.auth, address)
    check_free(address, number, "the API", "--port or OM_API_PORT")
    start_logging(settings)
    start_tracing("om-api")
    # Uvicorn ends its connections first and sends itself the signal again afterwards.
    signal.signal(signal.SIGTERM, _leave)
    with joined(settings) as (_, located):
        dispatcher = find_dispatcher(located.redis_url)
        services = build_services(settings, located, dispatcher=dispatcher)
        try:
            app = create_app(
                services,
                auth=settings.auth,
                model_api_base=settings.model_api_base,
                flower_port=settings.flower_port,
                rates=Rates(
                    located.redis_url, per_s=settings.rate_limit, burst=settings.rate_burst, clock=services.clock
                ),
            )
            config = uvicorn.Config(
                app,
                host=address,
                port=number,
                log_config=None,
                access_log=settings.log_level == "debug",
                timeout_keep_alive=KEEP_ALIVE_S,
                timeout_graceful_shutdown=SHUTDOWN_S,
            )
            server = ApiServer(app, config)
            server.run()
            if not server.started:
                raise SystemExit(1)
        finally:
            dispatcher.close()
            services.store.close()


def _leave(*_: Any) -> None:
    raise SystemExit(0)


def start_logging(settings: Settings) -> None:
    """This process's logs, as its settings want them."""
    from om_core.telemetry import configure_logging

    configure_logging(settings.log_level, settings.log_format)
