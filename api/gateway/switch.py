"""Whether a gateway request has memory, and whose (API 3): headers `X-OM-Thread`, `X-OM-Resource` and `X-OM-Mode`, or
`memory` in the body.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, cast, get_args

from api.schemas.fields import Mode, strictest
from om_core.domain.errors import InvalidInputError
from om_core.formats.fields import check_id

if TYPE_CHECKING:
    from collections.abc import Mapping

    from om_core.domain.message import JsonObject

FIELDS: Final = ("thread", "resource", "mode")
MODES: Final = get_args(Mode)


@dataclass(frozen=True, slots=True, kw_only=True)
class Switch:
    """Memory for one request; `mode` is `on` or `read_only`."""

    thread: str
    resource: str | None
    mode: Mode


def take_switch(headers: Mapping[str, str], body: JsonObject) -> Switch | None:
    """Take `memory` out of a body, so that providers do not see it; None: the request is passed on as it is.

    Raises:
        InvalidInputError: a field is unknown or wrong, or headers and body name different threads.
    """
    given = body.pop("memory", None)
    if given is not None and not isinstance(given, dict):
        raise InvalidInputError("an object is expected: {thread, resource, mode}", path="memory")
    inner = given or {}
    if unknown := sorted(set(inner) - set(FIELDS)):
        raise InvalidInputError(f"unknown field; known are {', '.join(FIELDS)}", path=f"memory.{unknown[0]}")
    thread = _one(inner, headers, "thread")
    resource = _one(inner, headers, "resource")
    mode = strictest(_mode(inner.get("mode"), "memory.mode"), _mode(headers.get("x-om-mode"), "X-OM-Mode"))
    if mode == "off" or (thread is None and given is None):
        return None
    if thread is None:
        raise InvalidInputError("memory needs a thread: the caller's own id of the conversation", path="memory.thread")
    return Switch(thread=thread, resource=resource, mode=mode)


def _one(inner: Mapping[str, Any], headers: Mapping[str, str], name: str) -> str | None:
    header = headers.get(f"x-om-{name}")
    value = inner.get(name)
    if value is not None and not isinstance(value, str):
        raise InvalidInputError("a text is expected", path=f"memory.{name}")
    if value is not None and header is not None and value != header:
        raise InvalidInputError(
            f"the header X-OM-{name.title()} and the body name different ones", path=f"memory.{name}"
        )
    found = value if value is not None else header
    return None if found is None else check_id(found, f"memory.{name}")


def _mode(value: Any, path: str) -> Mode | None:
    if value is None:
        return None
    if value not in MODES:
        raise InvalidInputError(f"unknown mode; known are {', '.join(MODES)}", path=path)
    return cast("Mode", value)
