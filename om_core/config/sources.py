"""Where settings are written: the file om.toml, and the option tree in environment variables."""

from __future__ import annotations

import difflib
import os
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from om_core.config.secrets import MASK, mask_values
from om_core.config.settings import Source, rules
from om_core.domain.errors import PolicyError, SetupError
from om_core.options.schema import OPTIONS, Kind, Leaf, Options, from_text, normalise, unknown_option

PREFIX: Final = "OM_"
CONFIG_VARIABLE: Final = "OM_CONFIG"
FILE_NAME: Final = "om.toml"
OPTIONS_PREFIX: Final = "OM_OPTIONS__"
_PART: Final = Leaf(Kind.OBJECT)


def read_file(folder: Path | None = None) -> tuple[str, dict[str, Any]]:
    """Name and content of the settings file: the one OM_CONFIG names, else om.toml in the folder, else nothing.

    Raises:
        SetupError: OM_CONFIG names no file, the file is no TOML, or it has a key that is no setting.
    """
    named = os.environ.get(CONFIG_VARIABLE, "").strip()
    path = Path(named) if named else (folder or Path()) / FILE_NAME
    label = str(path) if named else FILE_NAME
    if not named and not path.is_file():
        return label, {}
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        what = f"{CONFIG_VARIABLE} = {label!r}" if named else label
        fix = "Correct the path, or unset the variable." if named else "Make the file readable, or remove it."
        raise SetupError(f"{what} cannot be read: {error.strerror}. {fix}") from error
    except ValueError as error:
        raise SetupError(f"{label} is no valid TOML: {error}. Correct the file.") from error
    return label, _checked(content, label)


def _checked(content: dict[str, Any], label: str) -> dict[str, Any]:
    known = [*rules(), "options"]
    for key, value in content.items():
        if key not in known:
            near = difflib.get_close_matches(key, known, n=1)
            hint = f"the nearest known key is {near[0]}" if near else f"known keys: {', '.join(known)}"
            raise SetupError(f"{label}: {key} = {mask_values(value, key)!r} is not allowed: unknown key; {hint}.")
    options = content.get("options", {})
    if not isinstance(options, dict):
        raise SetupError(f"{label}: options = {options!r} is not allowed: a table [options] is expected.")
    try:
        return {**content, "options": normalise(options)}
    except PolicyError as error:
        raise SetupError(f"{label}: options.{error}. Correct it in the file.") from error


def option_variables() -> Iterator[tuple[str, str]]:
    """Name and value of each variable of the option tree that is set and not empty, sorted by name."""
    for name in sorted(os.environ):
        if name.upper().startswith(OPTIONS_PREFIX) and os.environ[name]:
            yield name, os.environ[name]


def environment_options() -> Options:
    """The option tree that the environment holds; texts are read by the kind of their option.

    Raises:
        SetupError: a variable names no option, or an option is given both whole and in parts.
    """
    tree: Options = {}
    for name, text in option_variables():
        path = option_path(name)
        node: Any = tree
        for part in path[:-1]:
            node = node.setdefault(part, {})
            if not isinstance(node, dict):
                raise SetupError(f"{name} = {text!r} is not allowed: {part} is also set as a whole. Unset one of them.")
        node[path[-1]] = from_text(_leaf(name, text, path), text)
    return tree


def option_path(variable: str) -> list[str]:
    """`OM_OPTIONS__OBSERVATION__MESSAGE_TOKENS` is `observation`, `message_tokens`."""
    return variable[len(OPTIONS_PREFIX) :].lower().split("__")


def _leaf(variable: str, text: str, path: list[str]) -> Leaf:
    node: Any = OPTIONS
    for depth, part in enumerate(path):
        inner = dict.fromkeys(node.keys, _PART) if isinstance(node, Leaf) else node
        if part not in inner:
            option = ".".join(path)
            error = unknown_option(option, text, inner or OPTIONS, "".join(f"{name}." for name in path[:depth]))
            shown = error.value if error.value == MASK else text
            raise SetupError(f"{variable} = {shown!r} is not allowed: {error.allowed}. Correct or unset it.")
        node = inner[part]
    if isinstance(node, Leaf):
        return node
    raise SetupError(f"{variable} = {text!r} is not allowed: {path[-1]} is a table; set its options one by one.")


def merge(below: Options, above: Options, tree: Any = OPTIONS) -> Options:
    """Both trees in one; `above` wins option by option, and part by part inside an option that has named parts."""
    merged = dict(below)
    for name, value in above.items():
        node = tree[name]
        inner = dict.fromkeys(node.keys, _PART) if isinstance(node, Leaf) else node
        both = inner and isinstance(value, Mapping) and isinstance(below.get(name), Mapping)
        merged[name] = merge(below[name], dict(value), inner) if both else value
    return merged


def option_sources(file_options: Options, environment: Options, tree: Any = OPTIONS) -> dict[str, Source]:
    """Dotted path of each option that is set, and which of the two set it last."""
    found: dict[str, Source] = {}
    by_source: tuple[tuple[Source, Options], ...] = (("om.toml", file_options), ("environment", environment))
    for source, options in by_source:
        found.update({f"options.{path}": source for path in _paths(options, tree)})
    return found


def _paths(options: Options, tree: Any, path: str = "") -> Iterator[str]:
    for name, value in options.items():
        node = tree[name]
        if isinstance(node, Leaf) and not (node.keys and isinstance(value, Mapping)):
            yield path + name
        else:
            inner = dict.fromkeys(node.keys, _PART) if isinstance(node, Leaf) else node
            yield from _paths(value, inner, f"{path}{name}.")
