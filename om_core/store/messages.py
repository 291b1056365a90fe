"""Message rows: read by seq; written by `om_append_v1`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from om_core.formats.canonical import dump_part
from om_core.store.prepared import Prepared
from om_core.store.rows import message_from, moment
from om_core.store.tables import messages

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime

    from om_core.domain.message import StoredMessage
    from om_core.ports import NewMessage
    from om_core.store.session import Session

LAST_SEQ = 2**63 - 1
_AFTER = (
    sa.select(messages)
    .where(
        messages.c.tenant_id == sa.bindparam("tenant"),
        messages.c.thread_id == sa.bindparam("thread"),
        messages.c.seq > sa.bindparam("after"),
    )
    .order_by(messages.c.seq)
)
BETWEEN = Prepared(_AFTER.where(messages.c.seq <= sa.bindparam("to")).limit(sa.bindparam("most")))
OLDEST = Prepared(_AFTER.with_only_columns(messages.c.stored_at).limit(sa.literal_column("1")))
RUN_START = sa.text("""
SELECT s.seq FROM (
       SELECT seq FROM messages
        WHERE tenant_id = :tenant AND thread_id = :thread AND fingerprint = :first AND removed_at IS NULL
        ORDER BY seq DESC LIMIT 20) s
 CROSS JOIN LATERAL (
       SELECT fingerprint FROM messages
        WHERE tenant_id = :tenant AND thread_id = :thread AND seq > s.seq AND removed_at IS NULL
        ORDER BY seq LIMIT 1) n
 WHERE n.fingerprint = :second
 ORDER BY s.seq DESC LIMIT 1
""")
"""The newest live message with the first fingerprint that is followed by one with the second."""


def message_params(new: NewMessage) -> dict[str, Any]:
    """A row for `om_append_v1`."""
    message = new.message
    return {
        "seq": new.seq,
        "client_id": None if new.continues else message.id,
        "role": message.role.value,
        "author": message.author,
        "parts": [dump_part(part) for part in message.parts],
        "tokens": new.tokens,
        "fingerprint": new.fingerprint.hex(),
        "created_at": new.created_at.isoformat(),
        "timezone": message.timezone,
        "metadata": message.metadata or None,
        "turn": new.turn,
        "continues": new.continues,
    }


class MessageRows:
    """Implements `ports.storage.Messages`."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def _of(self, thread_id: int) -> sa.Select[Any]:
        return sa.select(messages).where(
            messages.c.tenant_id == self._session.tenant_id, messages.c.thread_id == thread_id
        )

    def _all(self, query: sa.Select[Any]) -> tuple[StoredMessage, ...]:
        return tuple(message_from(row) for row in self._session.rows(query))

    def between(self, thread_id: int, after_seq: int, to_seq: int | None, *, limit: int) -> tuple[StoredMessage, ...]:
        rows = self._session.fetch(
            BETWEEN,
            tenant=self._session.tenant_id,
            thread=thread_id,
            after=after_seq,
            to=LAST_SEQ if to_seq is None else to_seq,
            most=limit,
        )
        return tuple(map(message_from, rows))

    def shown(self, thread_id: int, *, after_seq: int, also: Sequence[int]) -> tuple[StoredMessage, ...]:
        wanted = messages.c.seq > after_seq
        if also:
            wanted = sa.or_(wanted, messages.c.seq.in_(list(also)))
        return self._all(self._of(thread_id).where(wanted, messages.c.removed_at.is_(None)).order_by(messages.c.seq))

    def at(self, thread_id: int, seqs: Iterable[int]) -> tuple[StoredMessage, ...]:
        wanted = sorted(set(seqs))
        if not wanted:
            return ()
        return self._all(self._of(thread_id).where(messages.c.seq.in_(wanted)).order_by(messages.c.seq))

    def find_run(self, thread_id: int, fingerprints: Sequence[bytes]) -> int | None:
        """The seq right after the longest run from the newest place where the first two stand, live, in a row."""
        first, second, *_ = fingerprints
        params = {"tenant": self._session.tenant_id, "thread": thread_id, "first": first, "second": second}
        start = self._session.scalar(RUN_START, params)
        if start is None:
            return None
        following = self._session.rows(
            self._of(thread_id)
            .with_only_columns(messages.c.seq, messages.c.fingerprint)
            .where(messages.c.seq > start, messages.c.removed_at.is_(None))
            .order_by(messages.c.seq)
            .limit(len(fingerprints) - 1)
        )
        last = start
        for row, wanted in zip(following, fingerprints[1:], strict=False):
            if bytes(row["fingerprint"]) != wanted:
                break
            last = row["seq"]
        return int(last) + 1

    def oldest_stored_at(self, thread_id: int, after_seq: int) -> datetime | None:
        found = self._session.fetch(OLDEST, tenant=self._session.tenant_id, thread=thread_id, after=after_seq)
        return moment(found[0]["stored_at"]) if found else None

    def page(
        self, thread_id: int, *, after_seq: int | None, before_seq: int | None, limit: int
    ) -> tuple[StoredMessage, ...]:
        query = self._of(thread_id).where(messages.c.removed_at.is_(None)).limit(limit)
        if after_seq is not None:
            query = query.where(messages.c.seq > after_seq)
        if before_seq is not None:
            query = query.where(messages.c.seq < before_seq)
        if before_seq is not None and after_seq is None:
            return tuple(reversed(self._all(query.order_by(messages.c.seq.desc()))))
        return self._all(query.order_by(messages.c.seq))
