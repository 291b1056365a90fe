"""Requests to addresses that callers gave: never to this host's own networks, and never to where a redirect leads.

A name is looked up once, every address it has is checked, and the connection goes to the one that was checked: a name
that means something else a moment later leads nowhere.
"""

from __future__ import annotations

import ipaddress
import socket
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit, urlunsplit

import httpx

from om_core.domain.errors import InvalidInputError, RetryLaterError

if TYPE_CHECKING:
    from collections.abc import Mapping

TIMEOUT: Final = httpx.Timeout(10.0, connect=5.0)


class PublicSender:
    """Posts to public addresses. Thread-safe."""

    def __init__(self, *, allow_private: bool = False) -> None:
        self._allow_private = allow_private
        self._http = httpx.Client(timeout=TIMEOUT, follow_redirects=False, trust_env=False)

    def close(self) -> None:
        self._http.close()

    def __call__(self, url: str, body: bytes, headers: Mapping[str, str]) -> int:
        """Post once; the status of the answer.

        Raises:
            InvalidInputError: the name stands for an address that must not be reached.
            RetryLaterError: it has no address, or nobody answers there.
        """
        parts = urlsplit(url)
        host = parts.hostname or ""
        address = self.address_of(host, parts.port or (443 if parts.scheme == "https" else 80))
        shown = f"[{address}]" if ":" in address else address
        place = shown if parts.port is None else f"{shown}:{parts.port}"
        request = self._http.build_request(
            "POST",
            urlunsplit(parts._replace(netloc=place)),
            content=body,
            headers={**headers, "Host": parts.netloc},
            extensions={"sni_hostname": host},
        )
        try:
            response = self._http.send(request, stream=True)
            response.close()  # what it says beside its status is not read
        except httpx.HTTPError as error:
            raise RetryLaterError(f"no answer: {type(error).__name__}") from error
        return response.status_code

    def address_of(self, host: str, port: int) -> str:
        """The address to connect to. Raises as calling does."""
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            raise RetryLaterError(f"{host} has no address") from error
        addresses = [str(item[4][0]) for item in found]
        for address in addresses:
            if not self._allow_private and not is_public(address):
                raise InvalidInputError(f"{host} has an address that is not public", path="url")
        return addresses[0]


def is_public(address: str) -> bool:
    """Whether an address is one of the internet; mapped and tunnelled IPv4 ones count as what they stand for."""
    found = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(found, ipaddress.IPv6Address):
        for inner in (found.ipv4_mapped, found.sixtofour, *(found.teredo or ())):
            if inner is not None and not inner.is_global:
                return False
        if found in ipaddress.ip_network("64:ff9b::/96"):
            return ipaddress.IPv4Address(int(found) & 0xFFFFFFFF).is_global
    return found.is_global and not found.is_multicast
