"""What HTTP costs: turns per second against the same work without it, and the memory of idle readers of events."""

from __future__ import annotations

import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

import httpx

from tests.benchmarks.history import RESOURCE, message_text
from tests.benchmarks.stage import Effort, Stage, stage
from tests.support.processes import environment
from tests.support.servers import Servers
from tests.support.services import make_settings
from tests.support.waiting import eventually

CLIENTS: Final = 8


def http_costs(servers: Servers, effort: Effort) -> dict[str, tuple[float, dict[str, Any]]]:
    """Both numbers, of one real `om api` process."""
    with stage(servers) as on, api_process(on) as (base_url, pid):
        return {
            "turns_http_vs_library": _throughput(on, base_url, effort),
            "sse_reader_kb": _readers(base_url, pid, effort.readers),
        }


@contextmanager
def api_process(on: Stage) -> Iterator[tuple[str, int]]:
    """`om api` on a free port of the loopback address."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder, (Path(folder) / "api.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "api.cli", "api", "--port", str(port)],
            env=environment(make_settings(on.url), OM_RATE_LIMIT="0"),
            cwd=folder,
            stdout=log,
            stderr=log,
        )
        try:
            base_url = f"http://127.0.0.1:{port}"
            eventually(lambda: _answers(base_url), what="om api answers")
            yield base_url, process.pid
        finally:
            process.terminate()
            process.wait(30)


def _answers(base_url: str) -> bool:
    try:
        return httpx.get(f"{base_url}/healthz", timeout=1).is_success
    except httpx.TransportError:
        return False


def _throughput(on: Stage, base_url: str, effort: Effort) -> tuple[float, dict[str, Any]]:
    """Eight clients storing one message a turn, over HTTP and through the library, in turn."""
    turns = max(CLIENTS, effort.pairs)
    with ExitStack() as stack:
        clients = [stack.enter_context(httpx.Client(base_url=base_url, timeout=60)) for _ in range(CLIENTS)]

        def over_http(worker: int, n: int) -> None:
            message = {"role": "user", "content": message_text(n)}
            body = {"resource_id": RESOURCE, "format": "openai", "messages": [message]}
            clients[worker].post(f"/v1/threads/http-{worker}/messages", json=body).raise_for_status()

        def in_process(worker: int, n: int) -> None:
            message = {"role": "user", "content": message_text(n)}
            on.memory.append(f"library-{worker}", [message], resource=RESOURCE)

        rates: dict[str, list[float]] = {"http": [], "library": []}
        for _ in range(effort.runs + 1):  # the first warms up
            rates["http"].append(_per_second(over_http, turns))
            rates["library"].append(_per_second(in_process, turns))
    http, library = (statistics.median(rates[name][1:]) for name in ("http", "library"))
    return http / library, {"http_per_s": http, "library_per_s": library, "clients": CLIENTS, "turns": turns}


def _per_second(turn: Callable[[int, int], None], turns: int) -> float:
    started = time.perf_counter()
    with ThreadPoolExecutor(CLIENTS) as pool:
        share = turns // CLIENTS
        for done in [pool.submit(_repeat, turn, worker, share) for worker in range(CLIENTS)]:
            done.result()
    return share * CLIENTS / (time.perf_counter() - started)


def _repeat(turn: Callable[[int, int], None], worker: int, times: int) -> None:
    for n in range(times):
        turn(worker, n)


def _readers(base_url: str, pid: int, count: int) -> tuple[float, dict[str, Any]]:
    """Memory of the process per reader that waits, and how late an event reaches the last of them."""
    url = httpx.URL(base_url)
    request = b"GET /v1/threads/library-0/events HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with ExitStack() as stack:
        before = _rss_kb(pid)
        readers = []
        for _ in range(count):
            reader = stack.enter_context(socket.create_connection((str(url.host), int(url.port or 80)), timeout=60))
            reader.sendall(request)
            readers.append(reader)
        for reader in readers:
            while b"retry:" not in (received := reader.recv(4096)):
                assert received, "a stream ended"
        after = _rss_kb(pid)
    return (after - before) / count, {"readers": count, "before_kb": before, "after_kb": after}


def _rss_kb(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1])
    raise AssertionError("no VmRSS")
