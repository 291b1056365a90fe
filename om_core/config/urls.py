"""Server URLs in the one spelling that the drivers take."""

from __future__ import annotations

from typing import Final

_POSTGRES: Final = "postgresql+psycopg2"
_SPELLINGS: Final = ("postgres", "postgresql", _POSTGRES)
REDIS_SCHEMES: Final = ("redis", "rediss", "sentinel", "unix", "redis+socket")


def normalise_database_url(url: str) -> str:
    """`postgres://` and `postgresql://` mean psycopg2, the driver this project installs.

    Raises:
        ValueError: another database, another driver, or no URL.
    """
    scheme, separator, rest = url.strip().partition("://")
    if not separator or scheme.lower() not in _SPELLINGS or not rest:
        raise ValueError("a URL that starts with postgresql://")
    return f"{_POSTGRES}://{rest}"


def normalise_redis_url(url: str) -> str:
    """The URL without blanks around it.

    Raises:
        ValueError: not a scheme that the broker's transport knows.
    """
    scheme, separator, rest = url.strip().partition("://")
    if not separator or scheme not in REDIS_SCHEMES or not rest:
        raise ValueError(f"a URL that starts with {', '.join(f'{name}://' for name in REDIS_SCHEMES)}")
    return url.strip()
