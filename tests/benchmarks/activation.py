"""What an activation costs on a long log against an empty one."""

from __future__ import annotations

from functools import partial
from typing import Any

import psycopg2.extensions

from om_core.services.activate import activate
from tests.benchmarks.history import RESOURCE, TENANT, ready_thread, settle
from tests.benchmarks.stage import Effort, Stage, stage
from tests.benchmarks.timing import Samples, interleaved, several
from tests.support.servers import Servers

LOG_TOKENS = 40_000
CHUNKS = 6
"""Ready chunks of 6,000 tokens: over the threshold of 30,000, so that five of them move."""
THREADS = 10
"""Threads of each kind, used in turn and put back when all were used."""
_SAVE = """
CREATE TABLE kept_memories AS SELECT * FROM memories;
CREATE TABLE kept_threads AS SELECT * FROM threads;
CREATE TABLE kept_chunks AS SELECT id FROM chunks WHERE state = 'buffered'
"""
_PUT_BACK = """
UPDATE chunks c SET state = 'buffered', position = NULL, activated_at = NULL FROM kept_chunks k WHERE c.id = k.id;
UPDATE memories m SET log_tokens = k.log_tokens, next_position = k.next_position FROM kept_memories k WHERE m.id = k.id;
UPDATE threads t SET observed_seq = k.observed_seq, pending_tokens = k.pending_tokens, pins = k.pins
  FROM kept_threads k WHERE t.id = k.id
"""


def activation_growth(servers: Servers, effort: Effort) -> tuple[float, dict[str, Any]]:
    """The transaction that moves five chunks into a log of 40,000 tokens, against the same into an empty log."""
    with stage(servers) as on, on.admin() as admin:
        threads = {
            kind: [ready_thread(admin, f"{kind}-{n}", chunks=CHUNKS, log_tokens=tokens) for n in range(THREADS)]
            for kind, tokens in (("long", LOG_TOKENS), ("empty", 0))
        }
        with admin.cursor() as cursor:
            cursor.execute(_SAVE)
        settle(admin)
        on.assert_covered("long-0", "empty-0")
        value, detail = several(lambda: _measure(on, admin, threads, effort), effort.runs, "long", "empty")
        on.assert_covered("long-0", "empty-0")
    return value, {**detail, "log_tokens": {"long": LOG_TOKENS, "empty": 0}, "resource": RESOURCE}


def _measure(
    on: Stage, admin: psycopg2.extensions.connection, threads: dict[str, list[int]], effort: Effort
) -> dict[str, Samples]:
    waiting: dict[str, list[int]] = {kind: list(ids) for kind, ids in threads.items()}

    def activating(kind: str) -> None:
        result = activate(on.services, TENANT, waiting[kind].pop())
        assert result.activated is not None and result.activated.chunks > 1, result

    def put_back() -> None:
        with admin.cursor() as cursor:
            cursor.execute(_PUT_BACK)
        for kind, ids in threads.items():
            waiting[kind] = list(ids)

    rounds = -(-effort.pairs // THREADS) * THREADS
    put_back()
    return interleaved(
        {kind: partial(activating, kind) for kind in threads},
        rounds,
        warm_up=THREADS,
        tend=put_back,
        tend_every=THREADS,
    )
