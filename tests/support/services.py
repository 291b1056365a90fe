"""Settings of processes on the test's servers, and services built from them as the processes do it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from om_core.bootstrap import Located, build_services
from om_core.config import SecretUrl, Settings
from om_core.ports import JobDispatcher
from om_core.services.deps import Services
from om_core.testing.scripted_server import ScriptedModelServer

OFFLINE = "offline/extractive"
SCRIPTED = "openai/scripted"
SMALL = {"observation": {"message_tokens": 2000, "buffer_tokens": 300}}
"""Options under which a few sentences of conversation already make work for the Observer."""


def make_settings(database_url: str, redis_url: str | None = None, **changes: Any) -> Settings:
    """Settings of a process on these servers: offline model, small thresholds, short lease and sweep."""
    settings = Settings(
        database_url=SecretUrl(database_url),
        redis_url=SecretUrl(redis_url) if redis_url else None,
        model=OFFLINE,
        auth="off",
        lease_s=2.0,
        sweep_s=2.0,
        worker_concurrency=4,
        log_format="json",
        pool_size=8,
        options=SMALL,
    )
    return replace(settings, **changes)


def scripted_settings(settings: Settings, server: ScriptedModelServer) -> Settings:
    """The same settings with every model call going to this server."""
    return replace(settings, model=SCRIPTED, model_api_base=server.base_url)


@contextmanager
def settings_services(settings: Settings, dispatcher: JobDispatcher | None = None) -> Iterator[Services]:
    """Services as a process with these settings builds them; the store is closed at the end."""
    assert settings.database_url is not None
    redis = settings.redis_url.reveal() if settings.redis_url else None
    located = Located(database_url=settings.database_url.reveal(), redis_url=redis, embedded=False)
    services = build_services(settings, located, dispatcher=dispatcher, model_required=True)
    try:
        yield services
    finally:
        services.store.close()


@pytest.fixture
def settings(database_url: str, redis_url: str) -> Settings:
    """A fresh database, an empty Redis database, the offline model."""
    return make_settings(database_url, redis_url)


@pytest.fixture
def scripted() -> Iterator[ScriptedModelServer]:
    """A model server with the default script: notes keep the TRACE tokens of what they cover."""
    with ScriptedModelServer() as server:
        yield server


def conversation(count: int, *, start: int = 1, words: int = 60) -> list[dict[str, Any]]:
    """User and assistant messages in OpenAI's form, each with a token TRACE-<n> and about `words` words."""
    return [
        {
            "id": f"m{number}",
            "role": "user" if number % 2 else "assistant",
            "content": f"TRACE-{number} I moved to Lisbon in May. " + "We talked about the trip. " * (words // 5),
        }
        for number in range(start, start + count)
    ]
