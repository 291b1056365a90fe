"""Everything one fault needs: a database, a Redis database, a model server, workers, and turns going on; then the check.

Leases and sweeps take two seconds, so that recoveries can be waited for.
"""

from __future__ import annotations

import random
import statistics
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, TypeVar

import psycopg2
import psycopg2.extensions

from om_core.memory import Memory
from om_core.services.coverage import check_coverage
from om_core.testing.scripted_replies import answer_reply, prompt_text, traces
from om_core.testing.scripted_server import Reply, ScriptedModelServer
from tests.faults.fleet import Fleet, Worker
from tests.faults.load import RESOURCE, Load, notes_of
from tests.faults.proxy import CommitProxy, through_proxy
from tests.faults.report import Row
from tests.support.brokers import REDIS_DATABASES, redis_client
from tests.support.services import make_settings, scripted_settings, settings_services
from tests.support.waiting import eventually
from workers.dispatch import CeleryDispatcher

if TYPE_CHECKING:
    from tests.faults.fleet import Starter
    from tests.support.servers import Servers

T = TypeVar("T")
LEASE_S: Final = 2.0
SWEEP_S: Final = 2.0
OPTIONS: Final[dict[str, Any]] = {
    "observation": {"message_tokens": 1500, "buffer_tokens": 300, "block_timeout": 1500},
    "reflection": {"observation_tokens": 900},
    "job": {"backoff_base": 200, "backoff_cap": 1000},
}
"""Small thresholds, so that every few turns make work of each kind; short backoff, because outages here are short."""
SETTLED_S: Final = 90.0
LIVE: Final = "state IN ('available', 'running', 'retryable')"
GIVEN_UP: Final = """
SELECT (SELECT count(*) FROM chunks WHERE kind = 'parked')
     + (SELECT count(*) FROM jobs WHERE state = 'discarded'
            OR attempts::text ~ '"outcome": ?"(error|unusable|halved|parked|invalid)"')
"""
_redis_numbers = count(1)


@dataclass(frozen=True, kw_only=True)
class Setup:
    """What a fault changes about its stage."""

    workers: int = 2
    model_s: tuple[float, float] = (0.05, 0.3)
    """A model call takes a time between these."""
    pause_s: float = 0.1
    """Between two turns."""
    variables: tuple[dict[str, str], ...] = ({},)
    """Of the workers' environments, in turn."""
    proxy: bool = False
    """Whether workers and the application reach Postgres through a proxy that can cut."""


@dataclass
class Stage:
    """A running scene. Faults are injected between `start` and `finish`."""

    name: str
    servers: Servers
    setup: Setup
    folder: Path
    database: str
    redis_url: str
    memory: Memory
    model: ScriptedModelServer
    fleet: Fleet
    load: Load
    rng: random.Random
    proxy: CommitProxy | None = None
    refusals: list[int] = field(default_factory=list)
    """HTTP statuses with which the next model calls are answered."""
    injected: int = 0
    recoveries: list[float] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    started: float = field(default_factory=time.monotonic)

    def start(self) -> None:
        """Workers, and turns."""
        for number in range(self.setup.workers):
            self.start_worker(number)
        self.load.start()

    def start_worker(self, number: int = 0, more: Mapping[str, str] = MappingProxyType({})) -> Worker:
        variables = self.setup.variables[number % len(self.setup.variables)]
        return self.fleet.start({**variables, **more})

    @contextmanager
    def admin(self) -> Iterator[psycopg2.extensions.connection]:
        """A superuser's connection in autocommit mode."""
        connection = self.servers.admin(self.database)
        try:
            yield connection
        finally:
            connection.close()

    def sql(self, statement: str, *params: object) -> list[tuple[Any, ...]]:
        """As superuser, past the proxy; waits while Postgres is away."""
        eventually(self._answers, what="Postgres")
        with self.admin() as connection, connection.cursor() as cursor:
            cursor.execute(statement, params or None)
            return cursor.fetchall() if cursor.description else []

    def _answers(self) -> bool:
        try:
            self.servers.admin(self.database).close()
        except psycopg2.OperationalError:
            return False
        return True

    def pause(self, least_s: float, most_s: float) -> None:
        """A random moment."""
        threading.Event().wait(self.rng.uniform(least_s, most_s))

    def wait(self, look: Callable[[], T], what: str, *, seconds: float = 45.0) -> T:
        """As `eventually`, with the end of the workers' logs where it never comes true."""

        def told() -> str:
            logs = [
                f"worker {worker.pid} (alive: {worker.alive})\n{worker.output[-1500:]}" for worker in self.fleet.alive
            ]
            return "\n".join([what, *logs, *self.load.failed[:3]])

        return eventually(look, seconds=seconds, what=told)

    def holders(self) -> dict[Worker, dict[int, int]]:
        """Workers with the jobs they hold now: {job: attempt}."""
        rows = self.sql("SELECT id, attempt, lease_owner FROM jobs WHERE state = 'running'")
        found: dict[int, dict[int, int]] = {}
        for job, attempt, owner in rows:
            for worker in self.fleet.alive:
                if worker.owner in owner:
                    found.setdefault(worker.pid, {})[job] = attempt
        return {worker: found[worker.pid] for worker in self.fleet.alive if worker.pid in found}

    def in_a_call(self) -> tuple[Worker, dict[int, int]]:
        """A worker that holds jobs while the model is being asked, at random; and its jobs."""

        def look() -> list[tuple[Worker, dict[int, int]]]:
            return list(self.holders().items()) if self.model.in_flight else []

        return self.rng.choice(self.wait(look, "a model call"))

    def taken_over(self, jobs: dict[int, int], since: float) -> None:
        """Wait until another attempt has every one of these jobs, or has done it; note how long that took."""
        if not jobs:
            return

        def look() -> bool:
            rows = self.sql("SELECT id, attempt, state FROM jobs WHERE id = ANY (%s)", list(jobs))
            return all(
                attempt > jobs[job] or state not in {"available", "running", "retryable"}
                for job, attempt, state in rows
            )

        self.wait(look, f"another worker takes over {jobs}")
        self.recoveries.append((time.monotonic() - since) / LEASE_S)

    def caught_up(self, since: float) -> None:
        """Wait until every job that is live now is done; note how long that took."""
        live = [job for (job,) in self.sql(f"SELECT id FROM jobs WHERE {LIVE}")]
        query = f"SELECT count(*) FROM jobs WHERE id = ANY (%s) AND {LIVE}"
        self.wait(lambda: self.sql(query, live)[0][0] == 0, "the jobs of the outage are done")
        self.recoveries.append((time.monotonic() - since) / LEASE_S)

    def finish(self) -> Row:
        """No more turns; let everything be observed, then count what is missing, what is there twice, what was wasted."""
        self.load.stop()
        if not self.fleet.alive:
            self.start_worker()
        settled = [self._settle(thread) for thread in self.load.sent]
        self.problems += [problem for found in settled for problem in found.problems]
        [(given_up,)] = self.sql(GIVEN_UP)
        found = self.recoveries
        return Row(
            fault=self.name,
            injected=self.injected,
            turns=self.load.turns,
            turns_failed=len(self.load.failed),
            messages_lost=sum(found.lost for found in settled),
            messages_twice=sum(found.twice for found in settled),
            model_calls_wasted=self._wasted(),
            recovery_leases=round(max(found), 2) if found else None,
            recovery_leases_median=round(statistics.median(found), 2) if found else None,
            model_calls=len(self.model.calls),
            messages=sum(map(len, self.load.sent.values())),
            given_up=given_up,
            turns_repeated=self.load.repeated,
            slowest_turn_s=round(self.load.slowest_s, 2),
            seconds=round(time.monotonic() - self.started, 1),
            problems=tuple([*self.load.failed, *self.problems][:20]),
        )

    def _settle(self, thread: str) -> _Settled:
        """Have the rest of a conversation observed, and compare it with what was sent."""
        deadline = time.monotonic() + SETTLED_S
        while True:
            found = self.memory.flush(thread, resource=RESOURCE, wait_s=20)
            state = self.memory.get_thread(thread, resource=RESOURCE)
            if found["observe"]["job"] is None and state.observed_seq == state.head_seq:
                break
            if time.monotonic() > deadline:
                jobs = self.sql(f"SELECT id, kind, state, attempt, error::text, run_at::text FROM jobs WHERE {LIVE}")
                return _Settled(problems=[f"{thread} does not come to rest: {found}; live jobs: {jobs[:5]}"])
        return self._compare(thread, self.load.sent[thread])

    def _compare(self, thread: str, sent: list[str]) -> _Settled:
        audit = check_coverage(self.memory.services, "default", thread, RESOURCE)
        noted = Counter(trace for chunk in notes_of(self.memory, thread) for trace in traces(chunk["text"]))
        shown = set(traces(str(self.memory.context(thread, resource=RESOURCE).to_openai())))
        stored = {message.message.id for message in self._messages(thread)}
        missing = [trace for trace in sent if f"id-{trace}" not in stored or trace not in shown or not noted[trace]]
        twice = [trace for trace, times in noted.items() if times > 1]
        problems = [f"{thread}: {misfit}" for misfit in audit.misfits]
        problems += [f"{thread}: lost {missing[:5]}"] * bool(missing) + [f"{thread}: twice {twice[:5]}"] * bool(twice)
        return _Settled(
            lost=max(len(missing), audit.uncovered_messages),
            twice=max(len(twice), audit.doubly_covered_messages),
            problems=problems,
        )

    def _messages(self, thread: str) -> list[Any]:
        found: list[Any] = []
        while page := self.memory.messages(
            thread, resource=RESOURCE, after_seq=found[-1].seq if found else None, limit=200
        ):
            found += page
        return found

    def _wasted(self) -> int:
        """Observer calls without a chunk of their own, and Reflector calls that ask the same again."""
        observers: list[str] = []
        reflectors: list[tuple[Any, ...]] = []
        for call in self.model.calls:
            text = prompt_text(call.request)
            if "<history-" in text:
                observers.append(text)
            else:
                reflectors.append((tuple(traces(text)), len(str(call.request))))
        [(chunks,)] = self.sql("SELECT count(*) FROM chunks")
        return max(0, len(observers) - chunks) + len(reflectors) - len(set(reflectors))


@dataclass(kw_only=True)
class _Settled:
    lost: int = 0
    twice: int = 0
    problems: list[str] = field(default_factory=list)


@contextmanager
def stage(name: str, servers: Servers, starter: Starter, setup: Setup, *, seed: int) -> Iterator[Stage]:
    """A scene with nothing going on yet; everything of it ends with the block."""
    rng = random.Random(seed)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="om-f-")))
        url = direct = stack.enter_context(servers.new_database())
        proxy = None
        if setup.proxy:
            proxy, url = stack.enter_context(through_proxy(direct, folder / "p"))
        redis_url = _empty_redis(servers)
        refusals: list[int] = []
        model = stack.enter_context(ScriptedModelServer(_script(rng, setup.model_s, refusals)))
        settings = scripted_settings(
            replace(make_settings(url, redis_url), lease_s=LEASE_S, sweep_s=SWEEP_S, options=OPTIONS),
            model,
        )
        dispatcher = CeleryDispatcher(redis_url)
        services = stack.enter_context(settings_services(settings, dispatcher))
        stack.callback(dispatcher.close)
        memory = Memory(services)
        fleet = Fleet(starter, settings, folder)
        stack.callback(fleet.stop)
        yield Stage(
            name=name,
            servers=servers,
            setup=setup,
            folder=folder,
            database=direct.rsplit("@/", 1)[1].split("?", 1)[0],
            redis_url=redis_url,
            memory=memory,
            model=model,
            fleet=fleet,
            load=Load(memory, pause_s=setup.pause_s),
            rng=rng,
            proxy=proxy,
            refusals=refusals,
        )


def _script(
    rng: random.Random, model_s: tuple[float, float], refusals: list[int]
) -> Callable[[dict[str, Any], int], Reply]:
    def script(request: dict[str, Any], number: int) -> Reply:
        if refusals:
            return Reply(status=refusals.pop(), text="out of order")
        return Reply(text=answer_reply(request), delay_s=rng.uniform(*model_s))

    return script


def _empty_redis(servers: Servers) -> str:
    url = f"{servers.embedded.redis_url}?virtual_host={next(_redis_numbers) % REDIS_DATABASES}"
    with redis_client(url) as client:
        client.flushdb()
    return url
