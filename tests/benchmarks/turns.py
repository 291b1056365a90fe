"""What a step costs: against a bare insert, with the length of the thread, and in statements."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Self

import psycopg2

from om_core.services.run_jobs import JobRunner
from tests.benchmarks.history import RESOURCE, covered_thread, message_text, settle
from tests.benchmarks.stage import Effort, Stage, stage
from tests.benchmarks.statements import record
from tests.benchmarks.timing import interleaved, several
from tests.support.servers import Servers

SHORT = 1_000
TEND_EVERY = 50
"""Steps between two visits of a worker: as many messages as make one observe job due."""


def turn_vs_insert(servers: Servers, effort: Effort) -> tuple[float, dict[str, Any]]:
    """One step against one prepared INSERT and COMMIT."""
    with stage(servers) as on, JobsDone(on) as worker, bare_insert(on) as insert, on.admin() as admin:
        covered_thread(admin, "t", SHORT)
        settle(admin)
        on.assert_covered("t")
        operations = {"step": appending(on, "t"), "insert": insert}
        value, detail = several(
            lambda: interleaved(
                operations, effort.pairs, warm_up=effort.warm_up, tend=worker.tend, tend_every=TEND_EVERY
            ),
            effort.runs,
            "step",
            "insert",
        )
    return value, detail


def turn_growth(servers: Servers, effort: Effort) -> tuple[float, dict[str, Any]]:
    """A step in a long thread against the same step in a short one, both in one database."""
    with stage(servers) as on, JobsDone(on) as worker, on.admin() as admin:
        covered_thread(admin, "short", SHORT)
        covered_thread(admin, "long", effort.messages)
        settle(admin)
        on.assert_covered("short", "long")
        operations = {"long": appending(on, "long"), "short": appending(on, "short")}
        value, detail = several(
            lambda: interleaved(
                operations, effort.pairs, warm_up=effort.warm_up, tend=worker.tend, tend_every=TEND_EVERY
            ),
            effort.runs,
            "long",
            "short",
        )
        on.assert_covered("short", "long")
    return value, {**detail, "messages": {"short": SHORT, "long": effort.messages}}


def sql_counts(servers: Servers, effort: Effort) -> dict[str, tuple[float, dict[str, Any]]]:
    """Most statements of a step, and of a context, over several kinds of them and lengths of history."""
    with stage(servers) as on, on.admin() as admin:
        recorder = record(on.store.engine)
        lengths = (10, SHORT, effort.messages)
        for length in lengths:
            covered_thread(admin, str(length), length)
        on.memory.context(str(lengths[0]), resource=RESOURCE)  # the driver's questions at its first connection
        steps: dict[str, int] = {"first": recorder.count(appending(on, "new"))}
        contexts: dict[str, int] = {}
        for length in lengths:
            append = appending(on, str(length))
            counts = [recorder.count(append) for _ in range(TEND_EVERY + 1)]  # one of them makes a job due
            steps[f"at {length}"] = max(counts)
            contexts[f"at {length}"] = recorder.count(partial(on.memory.context, str(length), resource=RESOURCE))
    return {
        "sql_per_turn": (max(steps.values()), {"runs": list(steps.values()), "statements": steps}),
        "sql_per_context": (max(contexts.values()), {"runs": list(contexts.values()), "statements": contexts}),
    }


def appending(on: Stage, thread: str) -> Callable[[], object]:
    """Store and decide the next message of a thread, through the library."""
    numbers = itertools.count(500_000)
    texts = [message_text(number) for number in itertools.islice(numbers, 100)]
    turn = itertools.count()

    def append() -> object:
        at = next(turn)
        role = "assistant" if at % 2 else "user"
        message = {"role": role, "content": texts[at % len(texts)]}
        return on.memory.append(thread, [message], resource=RESOURCE)

    return append


class JobsDone:
    """Between rounds, does what is due, so that jobs become due again and threads stay as long as they would."""

    def __init__(self, on: Stage) -> None:
        self._on = on
        self._runner = JobRunner(on.services)

    def tend(self) -> None:
        self._on.run_due_jobs(self._runner)
        for thread in self._on.memory.threads(resource=RESOURCE).items:
            self._on.memory.context(thread.external_id, resource=RESOURCE)
        self._on.run_due_jobs(self._runner)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._runner.close()


@contextmanager
def bare_insert(on: Stage) -> Iterator[Callable[[], object]]:
    """The measure of all: a prepared one-row INSERT and its COMMIT, into a table with one key."""
    with on.admin() as admin, admin.cursor() as cursor:
        cursor.execute("CREATE TABLE bare (id bigint PRIMARY KEY, body text NOT NULL)")
    connection = psycopg2.connect(
        on.store.engine.url.set(drivername="postgresql").render_as_string(hide_password=False)
    )
    numbers = itertools.count()
    body = message_text(0)
    cursor = connection.cursor()
    cursor.execute("PREPARE bare_insert (bigint, text) AS INSERT INTO bare VALUES ($1, $2)")
    connection.commit()

    def insert() -> None:
        cursor.execute("EXECUTE bare_insert (%s, %s)", (next(numbers), body))
        connection.commit()

    try:
        yield insert
    finally:
        connection.close()
