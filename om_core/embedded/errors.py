"""The one error a caller has to expect from the embedded servers."""

from __future__ import annotations

ADVICE = "Set OM_DATABASE_URL and OM_REDIS_URL to use servers of your own."


class EmbeddedUnavailable(RuntimeError):  # noqa: N818 - public name, part of the API
    """The embedded servers cannot run here; the message names the cause and the settings that replace them."""

    def __init__(self, cause: str) -> None:
        """Keep the bare cause, so that it can cross a process boundary without repeating the advice."""
        super().__init__(f"Embedded Postgres and Redis are not available: {cause}\n{ADVICE}")
        self.cause = cause
