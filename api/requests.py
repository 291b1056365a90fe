"""The id of each request: the caller's or a new one, on every answer, in every problem document and log line."""

from __future__ import annotations

import re
import uuid
from contextvars import ContextVar
from typing import Final

HEADER: Final = "X-Request-Id"
_ID: Final = re.compile(r"[A-Za-z0-9._:-]{1,64}")
"""What is taken over: nothing that could forge a line of a log or a header."""

request_id: ContextVar[str] = ContextVar("om_request_id", default="")
"""Of the request that is being answered; empty outside of one."""


def id_for(given: str | None) -> str:
    """The caller's id if it is a plain one, else a new one."""
    return given if given is not None and _ID.fullmatch(given) else uuid.uuid4().hex
