"""Types of single fields and parameters, shared by routes and bodies."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal, TypeAlias

from fastapi import Header, Path, Query
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field
from pydantic_core import PydanticCustomError

from om_core.domain.errors import InvalidInputError
from om_core.formats.fields import MAX_ID, MAX_NUMBER, check_id
from om_core.formats.sanitise import sanitise_json, sanitise_text
from om_core.store.cursors import decode_cursor

MAX_LIMIT: Final = 200
MAX_SEQ: Final = 2**63 - 1
MAX_WAIT_S: Final = 600.0
"""Longest wait of one request, in seconds."""

Mode: TypeAlias = Literal["on", "read_only", "off"]
FormatName: TypeAlias = Literal["om", "openai", "anthropic"]
_STRICTNESS: Final[dict[str, int]] = {"on": 0, "read_only": 1, "off": 2}


class Strict(BaseModel):
    """A body whose unknown fields are refused (API 3)."""

    model_config = ConfigDict(extra="forbid")


def _id(value: str) -> str:
    try:
        return check_id(value, "")
    except InvalidInputError as error:
        raise PydanticCustomError("invalid_id", "{reason}", {"reason": error.reason}) from error


def _cursor(value: str) -> str:
    try:
        last = decode_cursor(value)
    except InvalidInputError as error:
        raise PydanticCustomError("invalid_cursor", "{reason}", {"reason": error.reason}) from error
    if last is None or not 0 <= last <= MAX_SEQ:
        raise PydanticCustomError("invalid_cursor", "not a cursor of this list")
    return value


def _clean_text(value: Any) -> Any:
    return sanitise_text(value) if isinstance(value, str) else value


def _clean_object(value: dict[str, Any]) -> dict[str, Any]:
    cleaned: dict[str, Any] = sanitise_json(value)
    return cleaned


Id = Annotated[str, Field(max_length=MAX_ID), AfterValidator(_id)]
"""A caller's own id (API 3)."""
CleanText = Annotated[str, BeforeValidator(_clean_text)]
CleanObject = Annotated[dict[str, Any], AfterValidator(_clean_object)]
ModelName = Annotated[str, Field(min_length=1, max_length=256, pattern=r"^[^\x00-\x1f\x7f]*$")]
Tokens = Annotated[int, Field(ge=1, le=MAX_NUMBER)]

ThreadPath = Annotated[Id, Path(description="The caller's own id of the thread.", examples=["conversation-123"])]
ResourcePath = Annotated[Id, Path(description="The caller's own id of the resource.", examples=["user-123"])]
JobPath = Annotated[int, Path(description="Id of the job.", ge=1, le=MAX_SEQ, examples=[1])]
KeyPath = Annotated[int, Path(description="Id of the key.", ge=1, le=MAX_SEQ, examples=[1])]
ResourceQuery = Annotated[
    Id | None,
    Query(alias="resource_id", description="Whose thread; may be left out while only one resource has this thread id."),
]
CursorQuery = Annotated[
    Annotated[str, Field(max_length=256), AfterValidator(_cursor)] | None,
    Query(description="`next_cursor` of the page before."),
]
LimitQuery = Annotated[int, Query(ge=1, le=MAX_LIMIT, description="Items per page.")]
ModeHeader = Annotated[
    Mode | None,
    Header(alias="X-OM-Mode", description="`off` reads nothing, writes nothing, starts nothing; the stricter wins."),
]


def strictest(*modes: Mode | None) -> Mode:
    """The strictest of the modes that a request names; `on` if it names none."""
    named: list[Mode] = [mode for mode in modes if mode is not None]
    return max(named, key=lambda mode: _STRICTNESS[mode], default="on")
