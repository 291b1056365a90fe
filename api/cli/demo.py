"""`om demo`: a real conversation through the whole pipeline on embedded servers, with a real worker process (API 1)."""

from __future__ import annotations

import os
import time
import uuid
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import typer

from api.cli.options import AsJson

if TYPE_CHECKING:
    from collections.abc import Iterator

    from api.cli.demo_report import Measured
    from om_core.bootstrap import Located
    from om_core.config import ModelChoice, Settings
    from om_core.memory import Memory

TENANT: Final = "demo"
RESOURCE: Final = "demo-user"
MESSAGE_TOKENS: Final = 30_000
OBSERVATION_TOKENS: Final = 8_000
"""Lowered from 40,000, so that a conversation of 141,000 tokens reaches a reflection."""
THREAD_CONFIG: Final[dict[str, Any]] = {
    "observation": {"message_tokens": MESSAGE_TOKENS},
    "reflection": {"observation_tokens": OBSERVATION_TOKENS},
}
WORKER_START_S: Final = 60.0


def demo(as_json: AsJson = False) -> None:
    """Replay a real conversation through the whole pipeline; no key, no Docker. Report: .om/reports/demo.json."""
    from api.cli.demo_report import broken, measure, print_report
    from api.cli.output import emit_json, note
    from api.cli.reports import write_report

    started = time.monotonic()
    settings = _settings()
    thread = f"demo-{uuid.uuid4().hex[:8]}"
    note(f"Starting an embedded Postgres and an embedded Redis in {settings.home} ...")
    with _servers(settings) as located:
        choice = _choose_model(settings)
        note(choice.notice or f"Notes are taken by {choice.name}.")
        with _pipeline(settings, located, choice.name) as memory:
            measured = _replay(memory, thread)
            report = measure(memory, measured, seconds=lambda: time.monotonic() - started)
    path = write_report(settings.home, "demo", report)
    if as_json:
        emit_json(report)
    else:
        print_report(measured, report, path, model=choice.name, lowered_to=OBSERVATION_TOKENS)
    if faults := broken(report, measured):
        for fault in faults:
            note(f"error: {fault}")
        raise typer.Exit(1)


def _settings() -> Settings:
    """The defaults: nothing but the folder and the model is taken from the user's own installation."""
    from om_core.config import Settings, load_settings

    given = load_settings()
    return Settings(home=given.home, model=given.model, model_api_base=given.model_api_base, tenant=TENANT)


def _choose_model(settings: Settings) -> ModelChoice:
    from om_core.config import choose_model
    from om_core.llm.registry import ModelRegistry

    registry = ModelRegistry(count_tokens=len, api_base=settings.model_api_base)
    return choose_model(settings, True, registry.missing_key)


@contextmanager
def _servers(settings: Settings) -> Iterator[Located]:
    from om_core.bootstrap import locate, prepare

    located = locate(settings, start_embedded=True)
    try:
        prepare(located)
        yield located
    finally:
        located.close()


@contextmanager
def _pipeline(settings: Settings, located: Located, model: str) -> Iterator[Memory]:
    """A worker process for all queues, and memory that rings it."""
    from dataclasses import replace

    from api.cli.children import Children
    from api.cli.connect import memory_on
    from api.cli.output import note

    settings = replace(settings, model=model)
    with Children(settings.home / "log") as children:
        worker = children.start("demo-worker", ["worker"], _worker_environment(settings, located))
        with memory_on(settings, located, TENANT, ring=True) as memory:
            _wait_for_worker(memory, worker.process.pid, children)
            note(f"A worker for all queues is running (process {worker.process.pid}, log {worker.log}).")
            yield memory


def _worker_environment(settings: Settings, located: Located) -> dict[str, str]:
    """Settings of the worker, and of nobody else: what the user's environment and om.toml say does not count."""
    cleared = {name: "" for name in os.environ if name.upper().startswith("OM_")}
    given = {
        "OM_CONFIG": os.devnull,
        "OM_DATABASE_URL": located.database_url,
        "OM_REDIS_URL": located.redis_url or "",
        "OM_MODEL": settings.model or "",
        "OM_MODEL_API_BASE": settings.model_api_base or "",
        "OM_HOME": str(settings.home),
    }
    return {**cleared, **given}


def _wait_for_worker(memory: Memory, pid: int, children: Any) -> None:
    from threading import Event

    from api.cli.seen import worker_seen
    from om_core.domain.errors import OmError

    deadline = time.monotonic() + WORKER_START_S
    pause = Event()
    while not worker_seen(memory.services.store, pid):
        dead = children.first_dead()
        if dead is not None:
            raise OmError(dead.why())
        if time.monotonic() >= deadline:
            raise OmError(f"the worker did not report within {WORKER_START_S:.0f} s")
        pause.wait(0.05)


def _replay(memory: Memory, thread: str) -> Measured:
    """The shipped session into a new thread at default thresholds."""
    from api.cli.demo_report import Measured
    from api.cli.progress import progress
    from api.cli.replaying import Replayer
    from om_core.demo.score import CacheMeter

    transcript = _session()
    conversation = transcript.conversations[0]
    meter = CacheMeter(memory.services.counter.count_text)
    memory.put_thread(thread, resource=RESOURCE, title="Demo session", config=THREAD_CONFIG)
    with progress("Replaying", len(conversation.messages)) as advance:

        def on_step(done: Any, step: Any, context: Any) -> None:
            meter.add(context)
            advance(len(step.messages), done.activations)

        replayed = Replayer(memory, on_step=on_step).replay(conversation, thread=thread, resource=RESOURCE)
    context = memory.context(thread, resource=RESOURCE, read_only=True).context
    return Measured(replayed=replayed, context=context, cacheable_share=meter.share)


def _session() -> Any:
    from importlib.resources import as_file, files

    from om_core.transcripts.reader import read

    with as_file(files("om_core.demo").joinpath("session.jsonl.gz")) as path:
        return read(path, "claude-code")
