"""The option tree: every name, its kind and its default, and the spellings a user may write (behaviour 1.2 to 1.4)."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from types import MappingProxyType
from typing import Any, Final, TypeAlias, cast

from om_core.domain.errors import PolicyError


class Kind(Enum):
    """What a leaf of the tree holds; decides how a text from the environment is read."""

    FLAG = auto()
    TEXT = auto()
    NUMBER = auto()  # perhaps with False to switch off
    TIME = auto()
    MODEL = auto()
    OBJECT = auto()  # or a flag, or a list


@dataclass(frozen=True, slots=True)
class Leaf:
    """One option. `default` is in the form a user writes; `keys` are the names inside an object, if it has names."""

    kind: Kind
    default: Any = None
    keys: tuple[str, ...] = ()


Tree: TypeAlias = Mapping[str, "Leaf | Tree"]
Options: TypeAlias = dict[str, Any]
"""A normalised tree."""

_ITEM: Final = Leaf(Kind.OBJECT)

_PHASE: Final[Tree] = {
    "model": Leaf(Kind.MODEL),
    "model_settings": Leaf(Kind.OBJECT, keys=("temperature", "max_output_tokens")),
    "provider_options": Leaf(Kind.OBJECT),
    "max_attempt": Leaf(Kind.TIME, "2m"),
    "window_tokens": Leaf(Kind.NUMBER),
    "block_after": Leaf(Kind.NUMBER, 1.2),
    "activate_after_idle": Leaf(Kind.TIME),
    "activate_on_provider_change": Leaf(Kind.FLAG, default=False),
    "instruction": Leaf(Kind.TEXT),
    "continuation_hints": Leaf(Kind.OBJECT, default=True, keys=("current_task", "suggested_response")),
    "extract": Leaf(Kind.OBJECT, ()),
}

OPTIONS: Final[Tree] = MappingProxyType(
    {
        "enabled": Leaf(Kind.FLAG, default=True),
        "model": Leaf(Kind.MODEL),
        "scope": Leaf(Kind.TEXT, "thread"),
        "retrieval": Leaf(Kind.OBJECT, default=False, keys=("vector", "scope", "instructions")),
        "working_memory": {
            "enabled": Leaf(Kind.FLAG),
            "scope": Leaf(Kind.TEXT, "resource"),
            "template": Leaf(Kind.TEXT),
            "schema": Leaf(Kind.OBJECT),
            "agent_managed": Leaf(Kind.FLAG),
        },
        "share_token_budget": Leaf(Kind.FLAG, default=False),
        "temporal_markers": Leaf(Kind.FLAG, default=False),
        "activate_after_idle": Leaf(Kind.TIME),
        "activate_on_provider_change": Leaf(Kind.FLAG, default=False),
        "hooks": Leaf(Kind.OBJECT),
        "hook_execution": Leaf(Kind.TEXT, "non_blocking"),
        "obscure_thread_ids": Leaf(Kind.FLAG, default=False),
        "observation": {
            **_PHASE,
            "message_tokens": Leaf(Kind.NUMBER, 30_000),
            "max_tokens_per_batch": Leaf(Kind.NUMBER, 10_000),
            "buffer_tokens": Leaf(Kind.NUMBER, 0.2),
            "buffer_on_idle": Leaf(Kind.FLAG, default=False),
            "buffer_activation": Leaf(Kind.NUMBER, 0.8),
            "buffer_max_age": Leaf(Kind.TIME, "1h"),
            "block_timeout": Leaf(Kind.TIME, "30s"),
            "open_call_max_age": Leaf(Kind.TIME, "1h"),
            "previous_observer_tokens": Leaf(Kind.NUMBER, 2_000),
            "thread_title": Leaf(Kind.FLAG, default=False),
            "observe_attachments": Leaf(Kind.OBJECT, ("image/*", "application/pdf")),
            "manage_working_memory": Leaf(Kind.FLAG, default=False),
        },
        "reflection": {
            **_PHASE,
            "observation_tokens": Leaf(Kind.NUMBER, 40_000),
            "buffer_activation": Leaf(Kind.NUMBER, 0.5),
        },
        "job": {
            "max_failures": Leaf(Kind.NUMBER, 3),
            "max_expired_leases": Leaf(Kind.NUMBER, 5),
            "backoff_base": Leaf(Kind.TIME, "5s"),
            "backoff_cap": Leaf(Kind.TIME, "5m"),
            "breaker_failures": Leaf(Kind.NUMBER, 5),
            "breaker_pause": Leaf(Kind.TIME, "30s"),
            "breaker_longest_pause": Leaf(Kind.TIME, "10m"),
        },
        "limits": {
            "in_flight": Leaf(Kind.NUMBER, 256),
            "tokens_per_day": Leaf(Kind.OBJECT, keys=("thread", "resource", "tenant")),
            "usd_per_day": Leaf(Kind.OBJECT, keys=("thread", "resource", "tenant")),
            "prices": Leaf(Kind.OBJECT),
            "extracted_bytes": Leaf(Kind.NUMBER, 8_192),
            "working_memory_bytes": Leaf(Kind.NUMBER, 16_384),
            "other_threads_tokens": Leaf(Kind.NUMBER, 2_000),
        },
    }
)

OVERRIDES: Final[Tree] = MappingProxyType(
    {
        "observation": {"message_tokens": Leaf(Kind.NUMBER)},
        "reflection": {"observation_tokens": Leaf(Kind.NUMBER)},
    }
)
"""What one thread or memory may set for itself (behaviour 1.7)."""

_SECRET: Final = re.compile(r"key|secret|password|token$|credential", re.IGNORECASE)


def camel(name: str) -> str:
    """The reference's spelling: `message_tokens` is `messageTokens` there."""
    head, *rest = name.split("_")
    return head + "".join(word.capitalize() for word in rest)


def leaves(tree: Tree = OPTIONS, path: str = "") -> Iterator[tuple[str, Leaf]]:
    """Every option as its dotted path, with its leaf."""
    for name, node in tree.items():
        if isinstance(node, Leaf):
            yield path + name, node
        else:
            yield from leaves(node, f"{path}{name}.")


def normalise(options: Mapping[Any, Any], tree: Tree = OPTIONS, path: str = "") -> dict[str, Any]:
    """The same options in snake_case; those set to None are left out. The input is not changed.

    Raises:
        PolicyError: an unknown name, a name given in both spellings, or a branch that is no table.
    """
    known = {spelling: name for name in tree for spelling in (name, camel(name))}
    given: set[str] = set()
    result: dict[str, Any] = {}
    for key, value in options.items():
        name = known.get(key) if isinstance(key, str) else None
        if name is None:
            raise unknown_option(f"{path}{key}", value, tree, path)
        if name in given:
            raise PolicyError(path + name, value, f"given twice, as {name} and as {camel(name)}; write one of them")
        given.add(name)
        if value is not None:
            result[name] = _normal_value(tree[name], value, path + name)
    return result


def _normal_value(node: Leaf | Tree, value: Any, path: str) -> Any:
    if not isinstance(node, Leaf):
        return normalise(table(value, path), node, f"{path}.")
    if node.keys and isinstance(value, Mapping):
        return normalise(value, dict.fromkeys(node.keys, _ITEM), f"{path}.")
    return value


def option_value(tree: Options, path: str) -> Any:
    """The value given for this path, else the default of the option tree."""
    *parents, name = path.split(".")
    node: Any = OPTIONS
    for parent in parents:
        node, tree = node[parent], tree.get(parent, {})
    leaf = cast("Leaf", node[name])
    return tree.get(name, leaf.default)


def table(value: object, path: str) -> Mapping[str, Any]:
    """The value, if it is a table of names.

    Raises:
        PolicyError: it is not.
    """
    if not isinstance(value, Mapping):
        raise PolicyError(path, value, "a table of options")
    return value


def unknown_option(option: str, value: object, tree: Tree, path: str = "") -> PolicyError:
    """The error for a name that does not exist, with the nearest one that does."""
    shown = "***" if _SECRET.search(option) and isinstance(value, str) else value
    nearest = _nearest(option, tree, path)
    return PolicyError(option, shown, f"unknown option; {nearest}")


def _nearest(option: str, tree: Tree, path: str) -> str:
    here = [path + name for name in tree]
    everywhere = [name for name, _ in leaves()] if tree is not OVERRIDES else []
    wanted = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", option).lower()
    last = wanted.rpartition(".")[2]
    same = [name for name in everywhere if name.rpartition(".")[2] == last]
    for candidates in (same, here, everywhere):
        names = {name.rpartition(".")[2]: name for name in reversed(candidates)}
        close = difflib.get_close_matches(last, names, n=1, cutoff=0.6)
        if close:
            return f"the nearest known name is {names[close[0]]}"
    return f"known here: {', '.join(here)}"


def from_text(leaf: Leaf, text: str) -> Any:
    """The value that a text in the environment stands for, by the kind of its option; wrong texts stay texts."""
    word = text.strip().lower()
    if leaf.kind is Kind.TEXT:
        return text
    if leaf.kind is Kind.FLAG and word in {"1", "0"}:
        return word == "1"
    if leaf.kind is not Kind.MODEL and word in {"true", "yes", "on", "false", "no", "off"}:
        return word in {"true", "yes", "on"}
    if leaf.kind is Kind.MODEL and not word.startswith(("{", "[")):
        return text
    try:
        return json.loads(text)
    except ValueError:
        return text
