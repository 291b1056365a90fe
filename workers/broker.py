"""How Celery reaches Redis: addresses in its spelling, and connections that come back soon."""

from __future__ import annotations

from functools import cached_property
from typing import Any, Final
from urllib.parse import parse_qsl, urlencode

from celery import Celery
from celery.app.amqp import AMQP
from kombu import Connection

_RECONNECT: Final = {"interval_start": 1, "interval_step": 1, "interval_max": 3}
"""Seconds between attempts. kombu's own grow to 30, and for that long a broker that is back would have no consumer."""


class _Connection(Connection):
    def ensure_connection(self, *args: Any, **kwargs: Any) -> Any:
        """As the base, with shorter pauses."""
        return super().ensure_connection(*args, **{**_RECONNECT, **kwargs})


class _Amqp(AMQP):
    Connection = _Connection


class OmCelery(Celery):
    """A Celery that uses the address it was made with, and no other.

    Celery lets the variable CELERY_BROKER_URL win over its configuration: rings of a process that belongs to another
    application would go to that application's broker.
    """

    def __init__(self, main: str, *, address: str) -> None:
        # No fixups: Celery would set up Django where DJANGO_SETTINGS_MODULE is set, as in a user's own process.
        super().__init__(main, amqp=_Amqp, fixups=[], set_as_current=False)
        self._address = address

    @cached_property
    def Worker(self) -> Any:  # noqa: N802 - Celery's name
        """The worker that `celery worker` and `om worker` make."""
        from workers.shutdown import OmWorker  # only a worker needs Celery's worker modules

        return self.subclass_with_self(OmWorker)

    def connection_for_read(self, url: str | None = None, **options: Any) -> Connection:
        return super().connection_for_read(self._address, **options)

    def connection_for_write(self, url: str | None = None, **options: Any) -> Connection:
        return super().connection_for_write(self._address, **options)


def broker_address(redis_url: str) -> tuple[str, dict[str, Any]]:
    """A Redis URL as kombu takes it, and the transport options that stand in its query.

    `unix://` (redis-py's spelling) becomes `redis+socket://`; `rediss://` checks certificates unless it says otherwise
    (kombu's default is not to); `sentinel://…?master_name=x` gives that option.
    """
    options: dict[str, Any] = {}
    pieces = [_piece(piece.strip(), options) for piece in redis_url.split(";")]
    return ";".join(pieces), options


def _piece(url: str, options: dict[str, Any]) -> str:
    base, _, query = url.partition("?")
    scheme, _, rest = base.partition("://")
    values = dict(parse_qsl(query))
    if scheme == "unix":
        scheme = "redis+socket"
        values = {"virtual_host" if name == "db" else name: value for name, value in values.items()}
    elif scheme == "rediss":
        values.setdefault("ssl_cert_reqs", "required")
    elif scheme == "sentinel":
        options.update({name: values.pop(name) for name in ("master_name", "min_other_sentinels") if name in values})
    encoded = urlencode(values)
    return f"{scheme}://{rest}?{encoded}" if encoded else f"{scheme}://{rest}"
