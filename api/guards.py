"""What is refused before routing: too large bodies, and paths whose percent-encoding hides a slash or is no UTF-8."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from urllib.parse import unquote_to_bytes

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException

from api.errors import TOO_LARGE, UNPROCESSABLE, FieldError, problem

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

MAX_BODY_BYTES: Final = 8_000_000
"""Largest request body: room for messages with pictures (base64)."""
_DRAIN_BYTES: Final = 64_000_000
"""Read and dropped of a body that is too large, so that the client sees the answer and no broken connection."""


class RequestGuard:
    """ASGI middleware; limits the body and checks the path of every request."""

    def __init__(self, app: ASGIApp, *, max_body_bytes: int = MAX_BODY_BYTES) -> None:
        self.app = app
        self.max_body_bytes = max_body_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        refused = _wrong_path(scope)
        if refused is not None:
            answer = problem(UNPROCESSABLE, "invalid_input", refused, errors=[FieldError("", refused, "path")])
            await answer(scope, receive, send)
            return
        declared = Headers(scope=scope).get("content-length", "")
        if declared.isascii() and declared.isdigit() and int(declared[:20]) > self.max_body_bytes:
            await _drain(receive)
            await problem(TOO_LARGE, "payload_too_large", self._too_large())(scope, receive, send)
            return
        await self.app(scope, self._counted(receive), send)

    def _too_large(self) -> str:
        return f"a request body holds at most {self.max_body_bytes:,} bytes; send the messages in several requests"

    def _counted(self, receive: Receive) -> Receive:
        """`receive` that stops a body of undeclared size at the limit."""
        total = 0

        async def counted() -> Message:
            nonlocal total
            message = await receive()
            total += len(message.get("body", b""))
            if total > self.max_body_bytes:
                await _drain(receive)
                raise HTTPException(TOO_LARGE, self._too_large())
            return message

        return counted


async def _drain(receive: Receive) -> None:
    left = _DRAIN_BYTES
    while left > 0:
        message = await receive()
        if message["type"] != "http.request" or not message.get("more_body"):
            return
        left -= len(message.get("body", b""))


def _wrong_path(scope: Scope) -> str | None:
    """What is wrong with the path as it was sent. `%2F` would be routed as a slash, that is: to something else."""
    raw: bytes = scope.get("raw_path") or b""
    if b"%2f" in raw.lower():
        return "an id must not contain '/' (sent as %2F)"
    try:
        unquote_to_bytes(raw).decode()
    except UnicodeDecodeError:
        return "the path is not UTF-8"
    return None
