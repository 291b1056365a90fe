"""Composition: settings become servers, servers become services. The only module of the library that knows adapters."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any

from om_core.config import choose_model, load_settings
from om_core.domain.errors import SetupError
from om_core.domain.policy import DEFAULT_MODEL
from om_core.embedded import attach, start
from om_core.llm.catalog import ModelPrice
from om_core.llm.registry import ModelRegistry
from om_core.memory import Memory
from om_core.services.deps import Policies, Services, SilentDispatcher
from om_core.services.limits import PER_MILLION, needed_prices
from om_core.store.engine import PostgresStore
from om_core.store.migrate import check_schema, upgrade
from om_core.telemetry import get_logger
from om_core.tokens import TiktokenCounter

if TYPE_CHECKING:
    from collections.abc import Sequence

    from om_core.config import ModelChoice, Settings
    from om_core.domain.message import JsonObject, StoredMessage
    from om_core.domain.policy import MemoryPolicy
    from om_core.embedded import EmbeddedServers
    from om_core.ports import JobDispatcher

log = get_logger("om.bootstrap")


@dataclass(frozen=True, slots=True, kw_only=True)
class Located:
    """Where the servers are. `servers` holds embedded ones open; closing it lets them stop."""

    database_url: str
    redis_url: str | None
    embedded: bool
    servers: EmbeddedServers | None = field(default=None, repr=False)

    def close(self) -> None:
        """Let go of embedded servers; others are not ours."""
        if self.servers is not None:
            self.servers.close()


def locate(settings: Settings, *, start_embedded: bool) -> Located:
    """Find the servers: those that settings name, else embedded ones under `settings.home` (DESIGN 8).

    Args:
        settings: of this process.
        start_embedded: whether missing embedded servers may be started; otherwise only running ones are joined.

    Raises:
        SetupError: nothing is named and nothing runs; the text names the settings.
        EmbeddedUnavailable: embedded servers cannot run here.
    """
    database = settings.database_url.reveal() if settings.database_url else None
    redis = settings.redis_url.reveal() if settings.redis_url else None
    if database is not None:
        return Located(database_url=database, redis_url=redis, embedded=False)
    servers = start(settings.home) if start_embedded else attach(settings.home)
    if servers is None:
        msg = (
            f"no database: set OM_DATABASE_URL and OM_REDIS_URL, or start embedded servers with `om up`"
            f" (none are running in {settings.home})"
        )
        raise SetupError(msg)
    return Located(
        database_url=servers.database_url, redis_url=redis or servers.redis_url, embedded=True, servers=servers
    )


def prepare(located: Located) -> None:
    """Migrate an embedded database; an external one is migrated by `om migrate` alone."""
    if located.embedded:
        upgrade(located.database_url)


def build_services(
    settings: Settings,
    located: Located,
    *,
    dispatcher: JobDispatcher | None = None,
    model_required: bool = False,
    pool_size: int | None = None,
) -> Services:
    """Services over these servers.

    Args:
        settings: of this process.
        located: where the servers are.
        dispatcher: who rings; default: nobody, the sweep of any worker finds the jobs.
        model_required: whether this process calls models, so that a missing key is an error now.
        pool_size: database connections; default `settings.pool_size`.

    Raises:
        SchemaVersionError: the database was not migrated.
        SetupError: `model_required`, and a key is missing; money is limited, and a price is missing.
    """
    counter = TiktokenCounter()
    model = ModelRegistry(
        count_tokens=counter.count_text, api_base=settings.model_api_base, prices=_prices(settings.policy())
    )
    choice = _choice(settings, located, model, required=model_required)
    if choice is not None and choice.notice:
        log.info(choice.notice)
    name = choice.name if choice is not None else settings.model or DEFAULT_MODEL
    policies = Policies(dict(settings.options), default_model=name)
    prices = needed_prices(policies.resolve(), model.price_of)
    store = PostgresStore(located.database_url, pool_size=pool_size or settings.pool_size)
    try:
        check_schema(store.engine)
    except BaseException:
        store.close()
        raise
    return Services(
        store=store,
        counter=counter,
        tokenizer=counter,
        model=model,
        extract=_extract,
        reads=_reads,
        policies=policies,
        prices=prices,
        dispatcher=dispatcher or SilentDispatcher(),
        lease_s=settings.lease_s,
    )


def _prices(policy: MemoryPolicy) -> dict[str, ModelPrice]:
    """Configured prices, per token."""
    return {
        name: ModelPrice(input=price["input"] / PER_MILLION, output=price["output"] / PER_MILLION)
        for name, price in policy.limits.prices.items()
    }


def _choice(settings: Settings, located: Located, model: ModelRegistry, *, required: bool) -> ModelChoice | None:
    """The model, where this process calls it or the servers are embedded. Who only reads needs no key."""
    if not (required or located.embedded):
        return None
    try:
        return choose_model(settings, located.embedded, model.missing_key)
    except SetupError:
        if required:
            raise
        return None


def _extract(messages: Sequence[StoredMessage], tokens: int, zone: str) -> str:
    from om_core.llm.offline import extract_short  # only who parks a range needs it

    return extract_short(messages, tokens, timezone=zone)


def _reads(model: str, mime_type: str) -> bool | None:
    from om_core.llm.catalog import reads_media  # only who observes needs the table

    return reads_media(model, mime_type)


def find_dispatcher(redis_url: str | None) -> JobDispatcher:
    """The dispatcher that `workers` registers under `om.dispatcher`; without it, or without a broker, nobody rings."""
    if redis_url is None:
        return SilentDispatcher()
    for entry in entry_points(group="om.dispatcher"):
        built: JobDispatcher = entry.load()(redis_url)
        return built
    return SilentDispatcher()


def open_memory(url: str | None, *, redis: str | None, tenant: str, options: JsonObject | None) -> Memory:
    """`Memory.open`: see there."""
    from om_core.services.local import LocalDispatcher, LocalWorker  # the parts of a worker: not for who only reads

    settings = _with(load_settings(), url, redis, options)
    located = locate(settings, start_embedded=True)
    prepare(located)
    if not located.embedded:
        dispatcher = find_dispatcher(located.redis_url)
        services = build_services(settings, located, dispatcher=dispatcher)
        return Memory(services, tenant, on_close=[dispatcher.close, services.store.close])
    local = LocalDispatcher()
    services = build_services(settings, located, dispatcher=local, model_required=True)
    worker = LocalWorker(services, local, period_s=settings.sweep_s)
    worker.start()
    return Memory(services, tenant, on_close=[worker.stop, services.store.close, located.close])


def _with(settings: Settings, url: str | None, redis: str | None, options: JsonObject | None) -> Settings:
    from om_core.config import SecretUrl
    from om_core.config.urls import normalise_database_url, normalise_redis_url

    changes: dict[str, Any] = {}
    if url is not None:
        changes["database_url"] = SecretUrl(normalise_database_url(url))
    if redis is not None:
        changes["redis_url"] = SecretUrl(normalise_redis_url(redis))
    if options is not None:
        changes["options"] = {**settings.options, **options}
    return replace(settings, **changes)
