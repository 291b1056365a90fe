"""Ports: free or taken, said before anything starts."""

from __future__ import annotations

import socket

from om_core.domain.errors import SetupError


def check_free(host: str, port: int, what: str, change: str) -> None:
    """Make sure that a server can listen there.

    Raises:
        SetupError: somebody listens there already, or this process may not; the text names the option to change.
    """
    family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    with socket.socket(family, kind, protocol) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the servers do: only a listener is in the way
        try:
            probe.bind(address)
        except OSError as error:
            msg = f"port {port} on {host} is not free for {what} ({error.strerror}): choose another with {change}"
            raise SetupError(msg) from error
