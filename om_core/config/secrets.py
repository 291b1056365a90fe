"""Values that must not appear in logs, in error messages or in `om config`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

MASK: Final = "***"
_SECRET_NAME: Final = re.compile(r"api_?key|access_?key|secret|password|token$|credential|authorization", re.IGNORECASE)
_QUERY: Final = re.compile(r"([?&][^=&]*(?:password|secret|token)[^=&]*=)[^&]*", re.IGNORECASE)
_NEXT_URL: Final = re.compile(r";(?=[a-z+]+://)")


class Secret:
    """A text that prints as `***`; `reveal` gives it to the one place that needs it."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def reveal(self) -> str:
        """The text itself."""
        return self._value

    def __str__(self) -> str:
        return MASK

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self)!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._value == self._value

    def __hash__(self) -> int:
        return hash(self._value)


class SecretUrl(Secret):
    """A URL that prints with its password masked."""

    __slots__ = ()

    def __str__(self) -> str:
        return mask_url(self.reveal())


def mask_url(url: str) -> str:
    """The URL, or the list of URLs joined by `;`, with every password masked."""
    return ";".join(_QUERY.sub(rf"\1{MASK}", _mask_password(one)) for one in _NEXT_URL.split(url))


def _mask_password(url: str) -> str:
    """The last @ ends the password, so that one with an unescaped @ or / is masked whole; what is no URL, too."""
    scheme, separator, rest = url.partition("://")
    login, at, host = rest.rpartition("@")
    user, colon, _ = login.partition(":")
    if not separator:
        return MASK
    return f"{scheme}://{user}:{MASK}@{host}" if at and colon else url


def mask_values(value: Any, name: str = "") -> Any:
    """A copy of plain data in which every text under a name that sounds secret is masked."""
    if isinstance(value, Mapping):
        return {key: mask_values(item, str(key)) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [mask_values(item, name) for item in value]
    return MASK if isinstance(value, str) and _SECRET_NAME.search(name) else value
