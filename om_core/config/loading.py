"""Loading the settings: environment over om.toml over defaults, each value checked, each error naming its place."""

from __future__ import annotations

import dataclasses
import difflib
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, Final, get_type_hints

from om_core.config.secrets import Secret, SecretUrl, mask_url
from om_core.config.settings import Settings, Source, rules
from om_core.config.sources import (
    CONFIG_VARIABLE,
    OPTIONS_PREFIX,
    PREFIX,
    environment_options,
    merge,
    option_path,
    option_sources,
    option_variables,
    read_file,
)
from om_core.config.urls import normalise_database_url, normalise_redis_url
from om_core.domain.errors import PolicyError, SetupError

if TYPE_CHECKING:
    from pydantic import ValidationError
    from pydantic_settings import BaseSettings

_SECRETS: Final = ("database_url", "database_admin_url", "redis_url", "flower_basic_auth")
READ_ELSEWHERE: Final = ("OM_EMBEDDED_FAST", "OM_EMBEDDED_USER")
"""Variables of `om_core.embedded`, which are no settings of the service."""
_LOWERED: Final = ("auth", "log_level", "log_format")
_NORMALISED: Final[dict[str, Callable[[str], str]]] = {
    "database_url": normalise_database_url,
    "database_admin_url": normalise_database_url,
    "redis_url": normalise_redis_url,
}


def load_settings(folder: Path | None = None) -> Settings:
    """The settings of this process. Every call reads the environment and the file again.

    Args:
        folder: where om.toml is looked for; None: the current folder. OM_CONFIG names another file.

    Raises:
        SetupError: naming the variable or the file and key, the value (secrets masked) and the fix.
    """
    label, content = read_file(folder)
    file_options = content.pop("options", {})
    environment = environment_options()
    sources: dict[str, Source] = dict.fromkeys(content, "om.toml")
    sources.update(dict.fromkeys(_set_in_environment(), "environment"))
    values = _validated(content, label, sources)
    sources.update(option_sources(file_options, environment))
    settings = Settings(**values, options=merge(file_options, environment), sources=MappingProxyType(sources))
    try:
        settings.policy()
    except PolicyError as error:
        raise SetupError(f"{_option_place(error.option, label, sources)} {_complaint(error)}") from error
    return settings


def variable_of(name: str) -> str:
    """The environment variable of a setting."""
    return PREFIX + name.upper()


def _set_in_environment() -> list[str]:
    """The settings whose variable is set and not empty; case does not matter."""
    present = {name.upper() for name, value in os.environ.items() if value}
    return [name for name in rules() if variable_of(name) in present]


def _validated(content: Mapping[str, Any], label: str, sources: Mapping[str, Source]) -> dict[str, Any]:
    from pydantic import ValidationError

    try:
        loaded = _model(content)()
    except ValidationError as error:
        raise _setup_error(error, label, sources) from None  # pydantic's text may hold the secret
    values: dict[str, Any] = {name: getattr(loaded, name) for name in rules()}
    for name in _SECRETS:
        if values[name] is not None:
            values[name] = (SecretUrl if name.endswith("_url") else Secret)(values[name])
    if values["model"] == "default":
        values["model"] = None
    return values


def _model(content: Mapping[str, Any]) -> type[BaseSettings]:
    """The pydantic model of `Settings`, made on demand: importing pydantic-settings costs as much as a command."""
    from pydantic import AfterValidator, BeforeValidator, Field, create_model
    from pydantic_settings import BaseSettings, InitSettingsSource, PydanticBaseSettingsSource, SettingsConfigDict

    class Base(BaseSettings):
        model_config = SettingsConfigDict(
            env_prefix=PREFIX, env_ignore_empty=True, extra="ignore", protected_namespaces=(), allow_inf_nan=False
        )

        @classmethod
        def settings_customise_sources(
            cls,
            settings_cls: type[BaseSettings],
            init_settings: PydanticBaseSettingsSource,
            env_settings: PydanticBaseSettingsSource,
            dotenv_settings: PydanticBaseSettingsSource,
            file_secret_settings: PydanticBaseSettingsSource,
        ) -> tuple[PydanticBaseSettingsSource, ...]:
            return env_settings, InitSettingsSource(settings_cls, init_kwargs=dict(content))

    hints = get_type_hints(Settings)
    defaults = {entry.name: entry.default for entry in dataclasses.fields(Settings)}
    fields: dict[str, Any] = {}
    for name, rule in rules().items():
        steps: list[Any] = [Field(**rule.limits)]
        if name in _LOWERED:
            steps.append(BeforeValidator(_lower))
        if name in _NORMALISED:
            steps.append(AfterValidator(_if_given(_NORMALISED[name])))
        if name == "flower_basic_auth":
            steps.append(AfterValidator(_if_given(_login)))
        hint = str | None if name in _SECRETS else hints[name]
        fields[name] = (Annotated[(hint, *steps)], defaults[name])
    return create_model("LoadedSettings", __base__=Base, **fields)


def _lower(value: object) -> object:
    return value.strip().lower() if isinstance(value, str) else value


def _login(value: str) -> str:
    user, _, password = value.partition(":")
    if not user or not password:
        raise ValueError("user:password")
    return value


def _if_given(check: Callable[[str], str]) -> Callable[[str | None], str | None]:
    return lambda value: None if value is None else check(value)


def _setup_error(error: ValidationError, label: str, sources: Mapping[str, Source]) -> SetupError:
    first = error.errors()[0]
    name, value = str(first["loc"][0]), first["input"]
    place = variable_of(name) if sources.get(name) == "environment" else f"{label}: {name}"
    shown = value
    if name in _SECRETS:
        shown = mask_url(value) if isinstance(value, str) and name.endswith("_url") else "***"
    allowed = rules()[name].allowed
    fix = "Correct it, or remove it for the default."
    if isinstance(value, str) and value.startswith("tcp://"):
        fix = "Kubernetes sets this variable for a Service of that name: set enableServiceLinks: false in the pod."
    return SetupError(f"{place} = {shown!r} is not allowed: {allowed}. {fix}")


def _option_place(option: str, label: str, sources: Mapping[str, Source]) -> str:
    """The variable or the file's key behind an option's path, which may lead into the option's value."""
    parts = option.split(".")
    for end in range(len(parts), 0, -1):
        path = ".".join(parts[:end])
        if sources.get(f"options.{path}") == "environment":
            return next((name for name, _ in option_variables() if ".".join(option_path(name)) == path), path)
        if f"options.{path}" in sources:
            break
    return f"{label}: options.{option}"


def _complaint(error: PolicyError) -> str:
    fix = "Correct it, or remove it for the default."
    return f"= {error.value!r} is not allowed for {error.option}: {error.allowed}. {fix}"


def unknown_variables() -> list[str]:
    """A warning for each variable `OM_...` that no setting reads: a misspelt one would go unnoticed otherwise."""
    known = [*(variable_of(name) for name in rules()), CONFIG_VARIABLE, *READ_ELSEWHERE]
    warnings = []
    for name in sorted(os.environ):
        upper = name.upper()
        if not upper.startswith(PREFIX) or upper in known or upper.startswith(OPTIONS_PREFIX):
            continue
        warnings.append(f"{name} is set, but no setting has this name{_suggestion(upper, known)}")
    return warnings


def _suggestion(name: str, known: list[str]) -> str:
    if "__" in name:
        return f"; options of the tree are written {OPTIONS_PREFIX}{name.removeprefix(PREFIX)}."
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.75)
    return f"; did you mean {near[0]}?" if near else "."
