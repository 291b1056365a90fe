"""What a real process does that drives threads together with others: steps, contexts, and a worker of its own.

As a process it reads a line for each thread to drive, `<resource> <thread>`, and answers with `observed <trace>` for
every message that its model was asked about, then `done`.
"""

from __future__ import annotations

import sys
from contextlib import contextmanager
from random import Random
from threading import Event
from typing import TYPE_CHECKING, Final

from om_core.memory import Memory
from om_core.ports import ModelReply, ObserverMaterial
from om_core.services.local import LocalDispatcher, LocalWorker
from om_core.store.engine import PostgresStore
from tests.fuzz.world import message_traces, notes
from tests.support.fixtures import build

if TYPE_CHECKING:
    from collections.abc import Iterator

    from om_core.domain.message import JsonObject
    from om_core.ports import ModelRequest

MESSAGES: Final = 88
"""Messages of one process; two make 176."""
MOST_CALL_S: Final = 0.03
OPTIONS: Final[JsonObject] = {
    "model": "offline/extractive",
    "observation": {"message_tokens": 600, "buffer_tokens": 120, "block_timeout": 2000},
    "reflection": {"observation_tokens": 400},
}
"""Thresholds that a few messages reach, so that observing, activating and reflecting go on all the time."""


class TracedModel:
    """Notes that name what they cover, after a moment of thinking; remembers what it was asked to observe."""

    def __init__(self, seed: object) -> None:
        self._rng = Random(f"{seed}")
        self.observed: list[str] = []

    def window_tokens(self, model: str) -> int | None:
        return None

    def complete(self, request: ModelRequest, *, timeout_s: float, cancelled: Event | None = None) -> ModelReply:
        if isinstance(request.material, ObserverMaterial):
            self.observed += message_traces(request.material.messages)
        (cancelled or Event()).wait(self._rng.random() * MOST_CALL_S)
        return ModelReply(text=notes(request), model=request.model, input_tokens=10, output_tokens=5, cost_usd=0.001)


@contextmanager
def worked(store: PostgresStore, model: TracedModel, **options: object) -> Iterator[Memory]:
    """Memory with a worker beside it, in this process."""
    local = LocalDispatcher()
    services = build(store, {**OPTIONS, **options}, dispatcher=local, model=model, lease_s=60.0)
    worker = LocalWorker(services, local, period_s=0.2)
    worker.start()
    memory = Memory(services)
    try:
        yield memory
    finally:
        memory.close()
        worker.stop()


def drive(memory: Memory, resource: str, thread: str, who: int) -> None:
    """Store the messages one by one; read the context before every second."""
    for number in range(MESSAGES):
        text = f"TRACE-{thread}-{who}-{number} " + "and so on " * 6
        role = "assistant" if number % 2 else "user"
        message = {"id": f"m-{who}-{number}", "role": role, "content": text}
        if number % 2:
            memory.context(thread, resource=resource)
        memory.append(thread, [message], resource=resource)


def main(url: str, who: int) -> None:
    """Drive thread after thread, as they are named on the standard input."""
    store, model = PostgresStore(url, pool_size=6), TracedModel(who)
    with worked(store, model) as memory:
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        for line in sys.stdin:
            resource, thread = line.split()
            drive(memory, resource, thread, who)
            sys.stdout.write("done\n")
            sys.stdout.flush()
    sys.stdout.writelines(f"observed {trace}\n" for trace in model.observed)
    store.close()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
