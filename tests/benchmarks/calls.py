"""Model calls at once in one worker process, over HTTP, and the memory that it takes."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

from om_core.config import SecretUrl, Settings
from om_core.testing.scripted_replies import answer_reply
from om_core.testing.scripted_server import Call, Reply, ScriptedModelServer
from tests.benchmarks.history import MESSAGE_TOKENS, RESOURCE, message_text
from tests.benchmarks.stage import Effort, Stage, stage
from tests.support.brokers import redis_client
from tests.support.processes import worker_process
from tests.support.servers import Servers
from tests.support.waiting import eventually

MODEL = "openai/scripted"
MESSAGES = 16
OPTIONS: dict[str, Any] = {"observation": {"buffer_tokens": MESSAGES * MESSAGE_TOKENS}}
PATIENCE_S = 90.0


def concurrent_model_calls(servers: Servers, effort: Effort) -> dict[str, tuple[float, dict[str, Any]]]:
    """Jobs of 2,000 tokens on a worker with as many slots, against a server that answers none before it has all.

    The server holds every answer until as many calls wait as jobs are due, or the patience is at an end.
    """
    gate = threading.Event()

    def script(request: dict[str, Any], number: int) -> Reply:
        gate.wait(PATIENCE_S)
        return Reply(text=answer_reply(request))

    with (
        stage(servers, OPTIONS, model=MODEL) as on,
        ScriptedModelServer(script) as server,
        tempfile.TemporaryDirectory() as name,
    ):
        for number in range(effort.calls):
            texts = [message_text(at) for at in range(MESSAGES)]
            messages = [{"role": "assistant" if at % 2 else "user", "content": text} for at, text in enumerate(texts)]
            on.memory.append(f"t{number}", messages, resource=RESOURCE)
        with redis_client(servers.embedded.redis_url) as client:
            client.flushdb()
        settings = Settings(
            database_url=SecretUrl(on.url),
            redis_url=SecretUrl(servers.embedded.redis_url),
            model=MODEL,
            model_api_base=server.base_url,
            auth="off",
            worker_concurrency=effort.calls,
            log_format="json",
            options=OPTIONS,
        )
        with worker_process(settings, Path(name)) as worker:
            if not server.wait_until(lambda calls: len(calls) >= effort.calls, timeout_s=PATIENCE_S):
                assert worker.alive, worker.output[-2_000:]
            waiting = _memory_mb(worker.pid, "VmRSS")
            gate.set()
            eventually(lambda: _completed(on) >= effort.calls, seconds=PATIENCE_S, what="all jobs completed")
            peak = _memory_mb(worker.pid, "VmHWM")
        calls = most_at_once(server.calls)
    detail = {"jobs": effort.calls, "slots": effort.calls, "rss_mb_while_waiting": waiting}
    return {
        "concurrent_model_calls": (calls, {**detail, "runs": [calls]}),
        "worker_rss_mb": (peak, {**detail, "runs": [peak]}),
    }


def most_at_once(calls: Sequence[Call]) -> int:
    """The largest number of calls that were unanswered at one moment."""
    changes = sorted(change for call in calls for change in ((call.started, 1), (call.ended or float("inf"), -1)))
    return max(accumulate(step for _, step in changes), default=0)


def _completed(on: Stage) -> int:
    return len(on.memory.jobs(state="completed", limit=200).items)


def _memory_mb(pid: int, name: str) -> float:
    """A line of the process's status file, in megabytes of 1,000,000 bytes; VmHWM is the highest resident size."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        key, _, value = line.partition(":")
        if key == name:
            return int(value.split()[0]) * 1024 / 1e6
    raise AssertionError(f"no {name} in the status of process {pid}")
