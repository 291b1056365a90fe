"""Anthropic's own service, called in its own form: a request goes on byte for byte but for what memory changed.

LiteLLM drops fields there that it does not know, and for streams imports its proxy server with packages of its own.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import httpx

from api.gateway.upstream import BAD_GATEWAY, TIMEOUT_S, UpstreamError, is_too_long

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from om_core.domain.message import JsonObject

ADDRESS: Final = "https://api.anthropic.com"
_ADDRESS_VARIABLES: Final = ("ANTHROPIC_API_BASE", "ANTHROPIC_BASE_URL")
"""As LiteLLM and Anthropic's own clients name them."""
_PASSED_ON: Final = ("anthropic-version", "anthropic-beta")
VERSION: Final = "2023-06-01"


@dataclass(frozen=True, slots=True)
class Native:
    """Anthropic over HTTP; `http` is the application's client."""

    http: httpx.AsyncClient

    async def messages(self, body: JsonObject, headers: Mapping[str, str]) -> Any:
        """A message: a dictionary, or with `stream` an async iterator of bytes.

        Raises:
            UpstreamError: the provider refused, or could not be reached.
        """
        request = self.http.build_request(
            "POST", f"{_address()}/v1/messages", json=body, headers=_headers(headers), timeout=TIMEOUT_S
        )
        try:
            response = await self.http.send(request, stream=True)
            if response.status_code >= 400:
                raise await _refusal(response)
            if body.get("stream"):
                return _bytes_of(response)
            await response.aread()
            return response.json()
        except (httpx.HTTPError, ValueError) as error:
            raise UpstreamError(BAD_GATEWAY, None, f"Anthropic cannot be reached: {type(error).__name__}") from error


def _address() -> str:
    given = next(filter(None, map(os.environ.get, _ADDRESS_VARIABLES)), ADDRESS)
    return given.rstrip("/").removesuffix("/v1/messages").removesuffix("/v1")


def _headers(given: Mapping[str, str]) -> dict[str, str]:
    passed = {name: given[name] for name in _PASSED_ON if name in given}
    return {"anthropic-version": VERSION, **passed, "x-api-key": os.environ.get("ANTHROPIC_API_KEY", "")}


async def _refusal(response: httpx.Response) -> UpstreamError:
    text = (await response.aread()).decode(errors="replace")
    try:
        body = json.loads(text)
    except ValueError:
        body = None
    return UpstreamError(
        response.status_code,
        body if isinstance(body, dict) else None,
        f"Anthropic answered {response.status_code}",
        retry_after=response.headers.get("retry-after"),
        too_long=is_too_long(text),
    )


async def _bytes_of(response: httpx.Response) -> AsyncIterator[bytes]:
    try:
        async for piece in response.aiter_bytes():
            yield piece
    finally:
        await response.aclose()
