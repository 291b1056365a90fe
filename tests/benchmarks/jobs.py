"""Jobs per second in a real worker process, against tasks that do nothing in the same worker."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from om_core.config import SecretUrl, Settings
from om_core.domain.job import JobKind, JobRef, Queue
from tests.benchmarks.history import MESSAGE_TOKENS, RESOURCE, TENANT, message_text
from tests.benchmarks.stage import Effort, Stage, stage
from tests.support.brokers import redis_client
from tests.support.processes import environment
from tests.support.servers import Servers
from tests.support.waiting import eventually
from workers.app import KEY_PREFIX
from workers.dispatch import CeleryDispatcher

CONCURRENCY = 8
WARM_UP = 40
"""Rings before the clock starts: the first of a process load the vocabulary and open connections."""
MESSAGES = 16
"""Messages per job: 16 of 124 tokens are just under 2,000."""
OPTIONS: dict[str, Any] = {"observation": {"buffer_tokens": MESSAGES * MESSAGE_TOKENS}}
PATIENCE_S = 120.0


class Rate(NamedTuple):
    """What a worker did per second, and the rings that were still unread then: a busy worker goes on without them."""

    per_s: float
    rings_left: int


def jobs_vs_noop(servers: Servers, effort: Effort) -> tuple[float, dict[str, Any]]:
    """Observe jobs of 2,000 tokens per second as a share of no-op tasks per second; runs of both in turn."""
    settings = _settings(servers)
    with tempfile.TemporaryDirectory(prefix="om-bench-") as name:
        folder = Path(name)
        noop: list[Rate] = []
        jobs: list[Rate] = []
        for _ in range(effort.runs):
            noop.append(_noops_per_s(servers, settings, folder, effort.noops))
            jobs.append(_jobs_per_s(servers, settings, folder, effort.jobs))
    jobs_per_s, noop_per_s = [rate.per_s for rate in jobs], [rate.per_s for rate in noop]
    detail = {
        "runs": [share / ceiling for share, ceiling in zip(jobs_per_s, noop_per_s, strict=True)],
        "medians": {"jobs_per_s": median(jobs_per_s), "noop_per_s": median(noop_per_s)},
        "jobs_per_s": jobs_per_s,
        "noop_per_s": noop_per_s,
        "rings_left": [rate.rings_left for rate in jobs],
        "job_tokens": MESSAGES * MESSAGE_TOKENS,
        "concurrency": CONCURRENCY,
    }
    return median(jobs_per_s) / median(noop_per_s), detail


def _settings(servers: Servers) -> Settings:
    return Settings(
        redis_url=SecretUrl(servers.embedded.redis_url),
        model="offline/extractive",
        auth="off",
        worker_concurrency=CONCURRENCY,
        log_format="json",
        options=OPTIONS,
    )


def _noops_per_s(servers: Servers, settings: Settings, folder: Path, count: int) -> Rate:
    with servers.new_database() as url:
        refs = [
            JobRef(
                id=number, tenant_id=TENANT, kind=JobKind.OBSERVE, queue=Queue.BUFFERING, thread=f"t{number}", attempt=0
            )
            for number in range(1, count + 1)
        ]
        return _rate(replace(settings, database_url=SecretUrl(url)), folder, "noop", refs)


def _jobs_per_s(servers: Servers, settings: Settings, folder: Path, count: int) -> Rate:
    with stage(servers, OPTIONS) as on:
        refs = [ref for number in range(count) for ref in _make_due(on, f"t{number}")]
        assert len(refs) == count, f"{len(refs)} jobs became due in {count} threads"
        return _rate(replace(settings, database_url=SecretUrl(on.url)), folder, "jobs", refs)


def _make_due(on: Stage, thread: str) -> Sequence[JobRef]:
    """A thread whose last message makes an observe job due."""
    messages = [
        {"role": "assistant" if number % 2 else "user", "content": message_text(number)} for number in range(MESSAGES)
    ]
    return on.memory.append(thread, messages, resource=RESOURCE).jobs


def _rate(settings: Settings, folder: Path, mode: str, refs: Sequence[JobRef]) -> Rate:
    """Rings first, then the worker: what it does per second once it is warm."""
    assert settings.redis_url is not None
    with redis_client(settings.redis_url.reveal()) as client:
        client.flushdb()
    _ring(settings.redis_url.reveal(), refs)
    report = folder / f"{mode}-{len(list(folder.iterdir()))}.json"
    with ring_worker(settings, mode, len(refs) - WARM_UP, report) as process:
        eventually(
            lambda: report.exists() or process.poll() is not None,
            seconds=PATIENCE_S,
            what=f"{len(refs)} done by the worker; its log: {_end_of_log(report)}",
        )
        assert report.exists(), _end_of_log(report)
        with redis_client(settings.redis_url.reveal()) as client:
            left = int(client.llen(f"{KEY_PREFIX}{Queue.BUFFERING.value}"))
    found = json.loads(report.read_text())
    return Rate((len(refs) - WARM_UP) / float(found["seconds"]), left)


def _ring(redis_url: str, refs: Sequence[JobRef]) -> None:
    dispatcher = CeleryDispatcher(redis_url)
    try:
        dispatcher.ring(refs)
        eventually(lambda: dispatcher.stats.sent == len(refs), seconds=PATIENCE_S, what=f"{len(refs)} rings sent")
    finally:
        dispatcher.close()


@contextmanager
def ring_worker(settings: Settings, mode: str, wanted: int, report: Path) -> Iterator[subprocess.Popen[bytes]]:
    """The worker process of `tests.benchmarks.ring_worker`."""
    command = [sys.executable, "-m", "tests.benchmarks.ring_worker", mode, str(WARM_UP), str(wanted), str(report)]
    with report.with_suffix(".log").open("ab") as log:
        process = subprocess.Popen(command, env=environment(settings), cwd=report.parent, stdout=log, stderr=log)
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _end_of_log(report: Path) -> str:
    log = report.with_suffix(".log")
    return log.read_text(errors="replace")[-2_000:] if log.exists() else "none"
