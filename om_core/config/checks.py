"""Rules that concern several settings at once: the model and its key, authentication and the address (API 2)."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from om_core.domain.errors import SetupError
from om_core.domain.policy import DEFAULT_MODEL, OFFLINE_MODEL, MemoryPolicy, PhaseModel

if TYPE_CHECKING:
    from om_core.config.settings import Settings


@dataclass(frozen=True, slots=True)
class ModelChoice:
    """The model for phases that name none (`Settings.policy(model=choice.name)`), and what to tell the user."""

    name: str
    notice: str | None = None


def choose_model(settings: Settings, embedded: bool, missing_key: Callable[[str], str | None]) -> ModelChoice:  # noqa: FBT001  # the caller says which servers it uses
    """Which model to work with, given the keys that are there.

    Args:
        settings: of this process.
        embedded: whether the servers are embedded ones: only then a missing key means "work offline".
        missing_key: the variable that a model needs and does not have, or None.

    Raises:
        SetupError: a key is missing and somebody has chosen the model, or the servers are external.
    """
    name = settings.model or DEFAULT_MODEL
    chosen = settings.model is not None or _names_a_model(settings)
    for model in _models(settings.policy(model=name)):
        variable = None if model.startswith("offline/") else missing_key(model)
        if variable is None:
            continue
        if embedded and not chosen:
            return ModelChoice(OFFLINE_MODEL, _notice(variable))
        raise SetupError(
            f"The model {model} needs {variable}, which is not set. Set {variable}, choose another model with "
            f"OM_MODEL, or set OM_MODEL={OFFLINE_MODEL} to work without a model service."
        )
    return ModelChoice(name)


def _notice(variable: str) -> str:
    return (
        f"{variable} is not set, so the built-in model {OFFLINE_MODEL} takes the notes: good for a trial, far below "
        f"a language model. Set {variable} to use {DEFAULT_MODEL}, or OM_MODEL for another model."
    )


def _names_a_model(settings: Settings) -> bool:
    places = (settings.options, settings.options.get("observation", {}), settings.options.get("reflection", {}))
    return any(place.get("model", "default") != "default" for place in places)


def _models(policy: MemoryPolicy) -> Iterator[str]:
    for phase in (policy.observation.model, policy.reflection.model):
        yield from _phase_models(phase)


def _phase_models(phase: PhaseModel) -> Iterator[str]:
    if phase.by_input_tokens:
        yield from (name for _, name in phase.by_input_tokens)
    else:
        yield phase.name
    yield from phase.fallbacks


def check_auth_binding(auth: str, host: str) -> None:
    """Refuse to serve without authentication where others can reach it.

    Raises:
        SetupError: `auth` is `off` and `host` is not a loopback address or `localhost`.
    """
    if auth != "off" or _is_loopback(host):
        return
    raise SetupError(
        f"OM_AUTH=off is allowed on loopback addresses only, and the API would listen on {host or 'every address'}. "
        "Set OM_AUTH=keys and make a key with `om keys create`, or set OM_API_HOST=127.0.0.1."
    )


def _is_loopback(host: str) -> bool:
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.removeprefix("[").removesuffix("]")).is_loopback
    except ValueError:
        return False
