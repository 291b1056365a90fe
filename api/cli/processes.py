"""Long-running commands, and the one that prepares the database: up, worker, beat, api, flower, migrate."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from om_core.config import Settings

Port = Annotated[int | None, typer.Option("--port", metavar="P", min=1, max=65535, help="Default: OM_API_PORT, 8080.")]
FlowerPort = Annotated[
    int | None, typer.Option("--flower-port", metavar="P", min=1, max=65535, help="Default: OM_FLOWER_PORT, 5555.")
]
Host = Annotated[str | None, typer.Option("--host", metavar="H", help="Default: OM_API_HOST, 127.0.0.1.")]
Queues = Annotated[
    list[str] | None,
    typer.Option("--queues", metavar="Q[,Q]", help="observation, buffering, reflection, indexing, maintenance."),
]
Concurrency = Annotated[
    int | None,
    typer.Option("--concurrency", metavar="N", min=1, help="Jobs at a time (default: OM_WORKER_CONCURRENCY)."),
]


def up(
    port: Port = None,
    flower_port: FlowerPort = None,
    no_flower: Annotated[bool, typer.Option("--no-flower", help="Without Flower.")] = False,
) -> None:
    """Run everything in the foreground: servers (embedded unless named), worker, API, Flower."""
    from api.cli.up import run_up

    raise typer.Exit(run_up(_settings(), port=port, flower_port=flower_port, flower=not no_flower))


def worker(queues: Queues = None, concurrency: Concurrency = None) -> None:
    """Work on jobs until SIGTERM or Ctrl-C."""
    from workers.main import run_worker

    settings = _settings()
    names = [name.strip() for given in queues or [] for name in given.split(",") if name.strip()]
    _check_model(settings)
    raise typer.Exit(run_worker(settings, queues=names, concurrency=concurrency))


def beat() -> None:
    """Audit and prune on a schedule; run one of these."""
    from workers.main import run_beat

    run_beat(_settings())


def api(host: Host = None, port: Port = None) -> None:
    """Serve the HTTP API."""
    from api.cli.serve import serve

    serve(_settings(), host=host, port=port)


def flower(
    host: Annotated[str, typer.Option("--host", metavar="H", help="Others than loopback need a login.")] = "127.0.0.1",
    port: Annotated[int | None, typer.Option("--port", metavar="P", help="Default: OM_FLOWER_PORT, 5555.")] = None,
    allow_actions: Annotated[bool, typer.Option("--allow-actions", help="Buttons that stop workers.")] = False,
) -> None:
    """Serve Flower: what the workers do."""
    from dataclasses import replace

    from api.cli.serve import start_logging
    from workers.main import run_flower

    settings = _settings()
    start_logging(settings)
    settings = replace(settings, flower_port=port or settings.flower_port)
    run_flower(settings, host=host, read_only=not allow_actions)


def migrate() -> None:
    """Bring the database schema to the version of this code (OM_DATABASE_ADMIN_URL, else OM_DATABASE_URL)."""
    from api.cli.migrating import migrate as run

    run(_settings())


def _settings() -> Settings:
    from om_core.config import load_settings

    return load_settings()


def _check_model(settings: Settings) -> None:
    """Say what is missing in one line, before Celery starts to log.

    Raises:
        SetupError: the key of a model.
    """
    from om_core.config import choose_model
    from om_core.llm.registry import ModelRegistry

    registry = ModelRegistry(count_tokens=len, api_base=settings.model_api_base)
    choose_model(settings, settings.database_url is None, registry.missing_key)
