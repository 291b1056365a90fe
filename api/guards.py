"""What is done before routing: each request is named, and refused if its body is too large, if its path's encoding
hides a slash or is no UTF-8, or (where no key is asked for) if it comes from elsewhere.
"""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote_to_bytes, urlsplit

import structlog
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException

from api.errors import FORBIDDEN, TOO_LARGE, UNPROCESSABLE, FieldError, problem
from api.requests import HEADER, id_for, request_id

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

MAX_BODY_BYTES: Final = 8_000_000
"""Largest request body: room for messages with pictures (base64)."""
_DRAIN_BYTES: Final = 64_000_000
"""Read and dropped of a body that is too large, so that the client sees the answer and no broken connection."""


class RequestGuard:
    """ASGI middleware: names each request, limits its body, checks its path, and where no key is asked for, its origin.

    Args:
        app: what answers the requests.
        local_only: whether only this machine may ask, and of its web pages only our own (OM_AUTH=off).
        max_body_bytes: size of a request body.
    """

    def __init__(self, app: ASGIApp, *, local_only: bool, max_body_bytes: int = MAX_BODY_BYTES) -> None:
        self.app = app
        self.local_only = local_only
        self.max_body_bytes = max_body_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        named = id_for(headers.get(HEADER))
        request_id.set(named)
        structlog.contextvars.bind_contextvars(request=named)
        await self._admit(scope, headers, receive, _signed(send, named))

    async def _admit(self, scope: Scope, headers: Headers, receive: Receive, send: Send) -> None:
        foreign = foreign_origin(scope["method"], headers) if self.local_only else None
        if foreign is not None:
            await problem(FORBIDDEN, "forbidden", foreign)(scope, receive, send)
            return
        refused = _wrong_path(scope)
        if refused is not None:
            answer = problem(UNPROCESSABLE, "invalid_input", refused, errors=[FieldError("", refused, "path")])
            await answer(scope, receive, send)
            return
        declared = headers.get("content-length", "")
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


def foreign_origin(method: str, headers: Headers) -> str | None:
    """Why a request to a service without keys does not come from this machine's own programs or our own pages.

    A page from elsewhere can make a browser send requests here: under a name of its own that it points to this
    machine (then Host is that name), or across sites (then the browser says so in Origin or Sec-Fetch-Site).
    """
    host = headers.get("host", "")
    name = _name_in(host)
    if not (_is_loopback(name) or name == "localhost" or name.endswith(".localhost")):
        return f"without keys only this machine is served, by the name localhost or 127.0.0.1, not {host[:256]!r}"
    if method in {"GET", "HEAD", "OPTIONS"}:
        return None
    origin = headers.get("origin")
    own = origin is None or origin.partition("://")[2] == host
    if own and headers.get("sec-fetch-site", "none") in {"same-origin", "none"}:
        return None
    return "without keys no web page from elsewhere may change anything; set OM_AUTH=keys to call this from other sites"


def _name_in(host: str) -> str:
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


def _is_loopback(name: str) -> bool:
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def _signed(send: Send, named: str) -> Send:
    """`send` that puts the request's id on the answer."""

    async def signed(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            headers[HEADER] = named
            headers.setdefault("X-Content-Type-Options", "nosniff")
        await send(message)

    return signed


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
