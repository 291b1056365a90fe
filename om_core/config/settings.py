"""The settings of one process: what they are, their defaults and their ranges (API 2)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Final, Literal, TypeAlias, get_type_hints

from om_core.config.secrets import Secret, SecretUrl, mask_values
from om_core.domain.policy import DEFAULT_MODEL, MemoryPolicy
from om_core.options import resolve_policy
from om_core.options.schema import leaves

Source: TypeAlias = Literal["default", "environment", "om.toml"]


@dataclass(frozen=True, slots=True)
class Rule:
    """What a setting may be: in words, for errors, and as limits for pydantic."""

    allowed: str
    limits: Mapping[str, Any] = field(default_factory=dict)


_SECONDS: Final = Rule("seconds from 0.1 to 86400", {"ge": 0.1, "le": 86_400})
_PORT: Final = Rule("a port from 1 to 65535", {"ge": 1, "le": 65_535})
_DATABASE: Final = Rule("a PostgreSQL URL, as in postgresql://user:password@host:5432/om")
_REDIS: Final = Rule("a Redis URL, as in redis://host:6379/0; also rediss://, sentinel://, unix:// or redis+socket://")
_MODEL: Final = Rule("a model name, as in openai/gpt-5-mini", {"pattern": r"^[^\s\x00-\x1f\x7f]{1,256}$"})
_BASE: Final = Rule("an http or https URL", {"pattern": r"^https?://[^\s]+$"})
_AUTH: Final = Rule("keys, or off (on loopback addresses only)")
_THREADS: Final = Rule("a whole number from 1 to 4096", {"ge": 1, "le": 4096})
_TENANT: Final = Rule(
    "1 to 256 characters without / and control characters", {"pattern": r"^[^/\x00-\x1f\x7f]{1,256}$"}
)
_LEVEL: Final = Rule("debug, info, warning, error or critical")
_FORMAT: Final = Rule("json or console")
_FOLDER: Final = Rule("a folder")
_HOST: Final = Rule("an address or host name to listen on", {"pattern": r"^[^\s\x00-\x1f\x7f]{1,256}$"})
_RATE: Final = Rule("requests per second from 0 (no limit) to 100000", {"ge": 0, "le": 100_000})
_BURST: Final = Rule("a whole number of requests from 1 to 100000", {"ge": 1, "le": 100_000})
_LOGIN: Final = Rule("user:password")
_DAYS: Final = Rule("a whole number of days from 1 to 3650", {"ge": 1, "le": 3650})
_YES_NO: Final = Rule("true or false")
_POOL: Final = Rule("a number of database connections from 1 to 1000", {"ge": 1, "le": 1000})


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Where things are and how this process runs. `load_settings` makes it; `repr` shows no secret.

    Each setting `x` is the variable `OM_X` and the key `x` of om.toml. Times are in seconds.
    """

    database_url: Annotated[SecretUrl | None, _DATABASE] = None
    database_admin_url: Annotated[SecretUrl | None, _DATABASE] = None
    redis_url: Annotated[SecretUrl | None, _REDIS] = None
    model: Annotated[str | None, _MODEL] = None
    model_api_base: Annotated[str | None, _BASE] = None
    auth: Annotated[Literal["keys", "off"], _AUTH] = "keys"
    lease_s: Annotated[float, _SECONDS] = 60.0
    sweep_s: Annotated[float, _SECONDS] = 2.0
    worker_concurrency: Annotated[int, _THREADS] = 64
    shutdown_s: Annotated[float, _SECONDS] = 25.0
    """How long a worker lets running jobs finish after SIGTERM; it exits at most 5 s later."""
    retention_days: Annotated[int, _DAYS] = 30
    """How long jobs are kept after they finished; live and discarded ones stay."""
    event_retention_days: Annotated[int, _DAYS] = 7
    tenant: Annotated[str, _TENANT] = "default"
    log_level: Annotated[Literal["debug", "info", "warning", "error", "critical"], _LEVEL] = "info"
    log_format: Annotated[Literal["json", "console"], _FORMAT] = "console"
    test_data: Annotated[Path | None, _FOLDER] = None
    home: Annotated[Path, _FOLDER] = Path(".om")
    """Embedded servers, their data, and reports."""
    api_host: Annotated[str, _HOST] = "127.0.0.1"
    api_port: Annotated[int, _PORT] = 8080
    rate_limit: Annotated[float, _RATE] = 100.0
    """Requests per second of one API key, counted in Redis; without Redis nothing is limited."""
    rate_burst: Annotated[int, _BURST] = 200
    """Requests of one API key that may come at once after a pause."""
    flower_port: Annotated[int, _PORT] = 5555
    flower_basic_auth: Annotated[Secret | None, _LOGIN] = None
    pool_size: Annotated[int, _POOL] = 16
    metrics_host: Annotated[str, _HOST] = "127.0.0.1"
    metrics_port: Annotated[int | None, _PORT] = None
    """Where a worker serves its metrics; without a port it does not. The API has them at `/metrics`."""
    webhooks_private: Annotated[bool, _YES_NO] = False
    """Whether webhooks may go to addresses of private networks; off, or any tenant could reach what is inside."""
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """The option tree, in snake_case: table `[options]`, and variables `OM_OPTIONS__OBSERVATION__MESSAGE_TOKENS`."""
    sources: Mapping[str, Source] = field(default_factory=lambda: MappingProxyType({}), repr=False, compare=False)
    """Where each value that is not a default came from; options as `options.observation.message_tokens`."""

    def policy(self, *, overrides: Mapping[str, Any] | None = None, model: str | None = None) -> MemoryPolicy:
        """The policy of the option tree; `model` (else this setting, else the default) serves phases that name none.

        Raises:
            PolicyError: an override is wrong. The options themselves were checked when they were loaded.
        """
        default_model = model or self.model or DEFAULT_MODEL
        return resolve_policy(self.options, overrides=overrides, default_model=default_model)


@dataclass(frozen=True, slots=True)
class SettingRow:
    """One line of `om config`."""

    name: str
    value_masked: str
    source: Source


@cache
def rules() -> Mapping[str, Rule]:
    """The settings that are single values, in order, with what each may be; not `options` and `sources`."""
    hints = get_type_hints(Settings, include_extras=True)
    found = ((name, getattr(hint, "__metadata__", (None,))[0]) for name, hint in hints.items())
    return MappingProxyType({name: rule for name, rule in found if isinstance(rule, Rule)})


def describe(settings: Settings) -> list[SettingRow]:
    """Every setting and option with its effective value, secrets masked, and where it came from.

    An option that is a table (`continuation_hints`, `model_settings`) is one row.
    """
    shown = {name: getattr(settings, name) for name in rules()}
    shown["model"] = settings.model or DEFAULT_MODEL
    rows = [_row(settings, name, value) for name, value in shown.items()]
    for path, leaf in leaves():
        if path == "hooks":  # functions: only a program can set them
            continue
        node: Any = settings.options
        for name in path.split("."):
            node = node.get(name) if isinstance(node, Mapping) else None
        rows.append(_row(settings, f"options.{path}", leaf.default if node is None else node))
    return rows


def _row(settings: Settings, name: str, value: Any) -> SettingRow:
    given = [source for path, source in settings.sources.items() if f"{path}.".startswith(f"{name}.")]
    source: Source = "environment" if "environment" in given else given[0] if given else "default"
    return SettingRow(name, _shown(value, name), source)


def _shown(value: Any, name: str) -> str:
    if value is None:
        return ""
    if isinstance(value, bool | list | tuple | Mapping):
        return json.dumps(mask_values(value, name), default=str, ensure_ascii=False)
    return str(value)
