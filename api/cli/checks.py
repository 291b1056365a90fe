"""The checks of `om doctor`: each says what it saw, and how to fix what is wrong."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from om_core.bootstrap import Located
    from om_core.config import Settings
    from om_core.store.diagnose import Diagnosis

State: TypeAlias = Literal["ok", "warn", "fail"]
REDIS_TIMEOUT_S: Final = 3
CLOCK_WARN_S: Final = 2.0
CLOCK_FAIL_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the doctor."""

    name: str
    state: State
    detail: str
    fix: str = ""


def run_checks(settings: Settings) -> list[Finding]:
    """Every check that can be made; what depends on a failed one is left out."""
    findings = list(_settings(settings))
    located, finding = _locate(settings)
    findings += finding
    if located is None:
        return findings
    try:
        findings += _database(located)
        findings += _redis(located)
        findings += _model(settings, located)
    finally:
        located.close()
    return findings


def _settings(settings: Settings) -> Iterator[Finding]:
    from om_core.config import unknown_variables

    for warning in unknown_variables():
        yield Finding("settings", "warn", warning, "correct its name, or unset it")


def _locate(settings: Settings) -> tuple[Located | None, list[Finding]]:
    from om_core.bootstrap import locate
    from om_core.domain.errors import SetupError
    from om_core.embedded import EmbeddedUnavailable

    try:
        return locate(settings, start_embedded=False), []
    except (SetupError, EmbeddedUnavailable, TimeoutError) as error:
        fix = "set OM_DATABASE_URL and OM_REDIS_URL, or run `om up`"
        return None, [Finding("database", "fail", str(error), fix)]


def _database(located: Located) -> Iterator[Finding]:
    from sqlalchemy import exc

    from om_core.config import mask_url
    from om_core.store.diagnose import diagnose

    where = mask_url(located.database_url)
    try:
        found = diagnose(located.database_url)
    except exc.SQLAlchemyError as error:
        cause = " ".join(str(getattr(error, "orig", None) or error).split())
        yield Finding("database", "fail", f"{where}: {cause}", "check OM_DATABASE_URL, and that the server runs")
        return
    yield Finding("database", "ok", f"{where}, PostgreSQL {found.server_version}")
    yield _schema(found)
    if found.schema_version is not None:
        yield from _roles(found, embedded=located.embedded)
    yield _clock(found)
    if found.schema_version is not None and not found.missing_roles and not found.faults:
        yield from _workers(found)


def _schema(found: Diagnosis) -> Finding:
    wanted = found.wanted_version
    if found.schema_version == wanted:
        return Finding("schema", "ok", f"version {wanted}")
    if found.schema_version is not None and found.schema_version > wanted:
        detail = f"version {found.schema_version}, newer than this code's {wanted}"
        return Finding("schema", "fail", detail, "upgrade om-pipeline on this machine")
    return Finding("schema", "fail", f"version {found.schema_version or 'none'}, needed {wanted}", "run `om migrate`")


def _roles(found: Diagnosis, *, embedded: bool) -> Iterator[Finding]:
    if found.missing_roles:
        yield Finding("roles", "fail", f"missing: {', '.join(found.missing_roles)}", "run `om migrate`")
        return
    if found.faults:
        for fault in found.faults:
            yield Finding("roles", "fail", fault.what, fault.fix)
        return
    yield Finding("roles", "ok", f"om_app and om_system; tenants are kept apart on {found.tables_checked} tables")
    if found.login_is_superuser and not embedded:
        yield Finding(
            "roles",
            "warn",
            f"the login {found.login} is a superuser; it changes to om_app in every transaction",
            "give the services a login of their own in OM_DATABASE_URL, and this one in OM_DATABASE_ADMIN_URL",
        )


def _clock(found: Diagnosis) -> Finding:
    off = found.clock_ahead_s
    detail = f"{abs(off):.1f} s {'behind' if off > 0 else 'ahead of'} the database's clock"
    fix = "synchronise the clocks of both machines (NTP)"
    if abs(off) >= CLOCK_FAIL_S:
        return Finding("clock", "fail", f"this machine is {detail}", fix)
    if abs(off) >= CLOCK_WARN_S:
        return Finding("clock", "warn", f"this machine is {detail}", fix)
    return Finding("clock", "ok", f"this machine and the database agree within {max(abs(off), 0.1):.1f} s")


def _workers(found: Diagnosis) -> Iterator[Finding]:
    if found.workers:
        queues = sorted({queue for worker in found.workers for queue in worker.queues})
        slots = sum(worker.slots for worker in found.workers)
        yield Finding("workers", "ok", f"{len(found.workers)} seen, {slots} slots, queues {', '.join(queues)}")
    else:
        yield Finding("workers", "warn", "none was seen in the last 15 seconds", "start `om worker`")
    for queue, jobs in found.overdue:
        served = any(queue in worker.queues for worker in found.workers)
        fix = "look at the workers' logs, or start more of them" if served else f"start `om worker --queues {queue}`"
        detail = f"{jobs.count} jobs on {queue} have been due for up to {jobs.oldest_s:.0f} s, and nobody takes them"
        yield Finding("jobs", "fail", detail, fix)
    if not found.overdue:
        yield Finding("jobs", "ok", "none is overdue")
    if found.discarded:
        yield Finding(
            "jobs", "warn", f"{found.discarded} are discarded", "see `om jobs --state discarded`; `om jobs retry`"
        )


def _redis(located: Located) -> Iterator[Finding]:
    from om_core.config import mask_url

    if located.redis_url is None:
        yield Finding("redis", "fail", "OM_REDIS_URL is not set", "set OM_REDIS_URL, as in redis://host:6379/0")
        return
    where = mask_url(located.redis_url)
    answer = _guarded(lambda: _ping(str(located.redis_url)))
    if answer is None:
        yield Finding("redis", "ok", where)
    else:
        yield Finding("redis", "fail", f"{where}: {answer}", "check OM_REDIS_URL, and that the server runs")


def _ping(url: str) -> None:
    from workers.app import build_app

    with build_app(url, socket_timeout_s=REDIS_TIMEOUT_S).connection_for_write() as connection:
        connection.ensure_connection(max_retries=1, timeout=REDIS_TIMEOUT_S)
        channel: Any = connection.channel()
        channel.client.ping()


def _guarded(check: Callable[[], None]) -> str | None:
    """What went wrong, in one line."""
    try:
        check()
    except Exception as error:  # whatever a broker's client raises is the finding
        return " ".join(f"{type(error).__name__}: {error}".split())[:300]
    return None


def _model(settings: Settings, located: Located) -> Iterator[Finding]:
    from om_core.config import choose_model
    from om_core.domain.errors import SetupError
    from om_core.llm.registry import ModelRegistry

    registry = ModelRegistry(count_tokens=len, api_base=settings.model_api_base)
    try:
        choice = choose_model(settings, located.embedded, registry.missing_key)
    except SetupError as error:
        yield Finding("model", "fail", str(error), "set the key where `om worker` runs, or choose another model")
        return
    if choice.notice:
        yield Finding("model", "warn", choice.notice)
    else:
        yield Finding("model", "ok", f"{choice.name}, its key is set" if "offline" not in choice.name else choice.name)
