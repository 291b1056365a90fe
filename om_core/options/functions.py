"""Functions by name: a job is stored, so what it is to run has to be importable by every worker."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable
from typing import Any, Final

from om_core.domain.errors import PolicyError, SetupError

_PATH: Final = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")
ALLOWED: Final = "a function of an importable module, or its name as in 'my_app.memory:remember'"


def function_path(value: object, option: str) -> str:
    """The name under which every worker can import a function.

    Raises:
        PolicyError: neither a function nor the name of one, or a function that an import does not find: a lambda, one
            within another, one of the script that was started.
    """
    if isinstance(value, str):
        if not _PATH.fullmatch(value):
            raise PolicyError(option, value, ALLOWED)
        try:
            found = load(value)
        except SetupError as error:
            raise PolicyError(option, value, f"{ALLOWED}; {error}") from error
        if not callable(found):
            raise PolicyError(option, value, f"{ALLOWED}; this is no function")
        return value
    if not callable(value):
        raise PolicyError(option, value, ALLOWED)
    path = f"{getattr(value, '__module__', '')}:{getattr(value, '__qualname__', '')}"
    if not _PATH.fullmatch(path) or path.startswith("__main__:"):
        reason = "workers cannot import a lambda, a function within another, or one of the script that was started"
        raise PolicyError(option, path, f"{ALLOWED}; {reason}")
    try:
        found = load(path)
    except SetupError as error:
        raise PolicyError(option, path, f"{ALLOWED}; {error}") from error
    if found is not value:
        raise PolicyError(option, path, f"{ALLOWED}; under this name stands something else")
    return path


def load(path: str) -> Callable[..., Any]:
    """Import what a name stands for.

    Raises:
        SetupError: the module or the name is not there; the text says what to do.
    """
    module, _, name = path.partition(":")
    try:
        found: Any = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except Exception as error:  # whatever the module does when it is imported
        reason = f"{type(error).__name__}: {error}"
        msg = f"cannot import {path} ({reason}): install its package where the workers run, or add it to PYTHONPATH"
        raise SetupError(msg) from error
    return found  # type: ignore[no-any-return]  # called by whoever knows the signature
