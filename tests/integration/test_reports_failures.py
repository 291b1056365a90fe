"""Errors in the background: each test is a way in which systems of this kind lost a result to one, or let it spread."""

from __future__ import annotations

from dataclasses import replace
from threading import Event
from typing import TYPE_CHECKING, Any

import psycopg2
import pytest

from om_core.memory import Memory
from om_core.services import observe
from om_core.services.coverage import check_coverage
from om_core.services.local import LocalDispatcher, LocalWorker
from om_core.store.engine import PostgresStore
from om_core.store.session import Session
from tests.integration.test_backlog import Tracing
from tests.integration.test_pipeline import settle, talk
from tests.integration.test_races import run_one
from tests.integration.test_sweep import shift
from tests.integration.test_waiting import GatedModel
from tests.support.fixtures import SMALL
from tests.support.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable

    from om_core.ports import ModelReply, ModelRequest
    from om_core.services.deps import Services

INSTANT: dict[str, Any] = {**SMALL, "model": "openai/instant"}


@pytest.mark.report("J12")
def test_a_failure_is_seen_by_the_api_until_the_work_is_done(services_with: Callable[..., Services]) -> None:
    broken = Broken(RuntimeError("the parser fell over"), times=1)
    memory = Memory(services_with(INSTANT, model=broken))
    talk(memory, "t", 10)

    assert run_one(memory.services, "buffering") == "error"

    status = memory.status("t", resource="r")
    assert "RuntimeError" in str(status["last_error"])
    assert status["live_jobs"] == ["observe"]
    assert status["oldest_pending_age_s"] >= 0
    shift(memory.services, "UPDATE jobs SET run_at = clock_timestamp()")
    settle(memory)
    assert memory.get_thread("t", resource="r").buffered_seq > 0


@pytest.mark.report("J21")
@pytest.mark.parametrize("commit", ["that took effect", "that did not"])
def test_notes_survive_a_connection_that_breaks_at_their_commit(
    services_with: Callable[..., Services], services: Services, monkeypatch: pytest.MonkeyPatch, commit: str
) -> None:
    """The model is asked once, and its notes are stored once, whether or not the broken commit took effect."""
    gated = GatedModel(services)
    gated.gate.set()
    memory = Memory(services_with(SMALL, model=gated))
    talk(memory, "t", 5)
    raw, store_notes, to_cut = Session._raw, observe._store, Event()

    def stored(*arguments: Any) -> Any:
        if not cut:
            to_cut.set()
        return store_notes(*arguments)

    def broken(session: Session, sql: str, params: Any) -> Any:
        if sql != "COMMIT" or not to_cut.is_set():
            return raw(session, sql, params)
        to_cut.clear()
        cut.append(commit)
        if commit == "that took effect":
            raw(session, sql, params)
        driver: Any = session.connection.connection.driver_connection
        driver.close()
        raise psycopg2.OperationalError("the connection was reset")

    cut: list[str] = []
    monkeypatch.setattr(Session, "_raw", broken)
    monkeypatch.setattr(observe, "_store", stored)
    run_one(memory.services, "buffering")
    assert cut == [commit]
    shift(memory.services, "UPDATE jobs SET run_at = clock_timestamp() WHERE state <> 'completed'")
    settle(memory)

    assert gated.calls == 1
    assert len(memory.observations("t", resource="r", state="all").items) == 1
    assert check_coverage(memory.services, "default", "t", "r").holds


class Broken(Tracing):
    """Raises what no model should raise, so many times."""

    def __init__(self, error: Exception, *, times: int) -> None:
        super().__init__()
        self.error = error
        self.times = times

    def complete(self, request: ModelRequest, *, timeout_s: float, cancelled: Event | None = None) -> ModelReply:
        if self.times > 0:
            self.times -= 1
            raise self.error
        return super().complete(request, timeout_s=timeout_s, cancelled=cancelled)


@pytest.mark.report("J23")
@pytest.mark.parametrize("error", [RuntimeError("boom"), KeyError("notes"), RecursionError(), UnicodeError("\ud800")])
def test_an_error_that_nobody_foresaw_is_recorded_and_the_worker_goes_on(
    services_with: Callable[..., Services], error: Exception
) -> None:
    local = LocalDispatcher()
    services = services_with({**INSTANT, "job": {"backoff_base": 1}}, model=Broken(error, times=1), dispatcher=local)
    worker = LocalWorker(services, local, period_s=0.1)
    worker.start()
    memory = Memory(services)
    talk(memory, "t", 5)

    eventually(lambda: memory.jobs(kind="observe").items[-1]["attempts"], what="the failure is recorded")
    shift(services, "UPDATE jobs SET run_at = clock_timestamp()")
    eventually(lambda: memory.get_thread("t", resource="r").buffered_seq > 0, what="the notes are there")
    worker.stop()

    [job] = memory.jobs(kind="observe").items
    assert [attempt["outcome"] for attempt in job["attempts"]] == ["error", "ok"]


@pytest.mark.report("K10")
def test_the_end_of_a_turn_waits_for_no_model(services_with: Callable[..., Services], services: Services) -> None:
    gated = GatedModel(services)
    local = LocalDispatcher()
    memory = Memory(services_with({**SMALL, "observation": {**SMALL["observation"], "buffer_on_idle": True}},
                                  model=gated, dispatcher=local))  # fmt: skip
    worker = LocalWorker(memory.services, local, period_s=0.2)
    worker.start()
    with memory.turn("t", "r") as turn:
        turn.start([{"role": "user", "content": "hello " * 400}])
        eventually(lambda: gated.calls == 1, what="the model is asked")
        turn.step([{"role": "assistant", "content": "hi"}])
    closed = memory.get_thread("t", resource="r")

    assert not closed.turn_open
    assert (closed.head_seq, closed.buffered_seq) == (2, 0)
    gated.gate.set()
    worker.stop()


@pytest.mark.conforms("11.36")
@pytest.mark.report("P05")
def test_closing_in_the_middle_of_a_call_loses_no_job_and_writes_nothing_afterwards(
    store: PostgresStore, services_with: Callable[..., Services], services: Services, caplog: pytest.LogCaptureFixture
) -> None:
    gated = Cancellable(services)
    own = PostgresStore(store.engine.url.render_as_string(hide_password=False), pool_size=4)
    local = LocalDispatcher()
    worked = replace(services_with(SMALL, model=gated, dispatcher=local), store=own)
    worker = LocalWorker(worked, local, period_s=0.2)
    worker.start()
    memory = Memory(worked, on_close=(worker.stop, own.close))
    with memory.turn("t", "r") as turn:
        turn.start([{"role": "user", "content": "hello " * 400}])
    eventually(lambda: gated.calls == 1, what="the model is asked")
    gated.shut.set()
    memory.close()

    left = Memory(services)
    [job] = left.jobs().items
    assert job["state"] in {"available", "retryable", "completed"}
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []
    shift(services, "UPDATE jobs SET run_at = clock_timestamp() WHERE state <> 'completed'")
    settle(left)
    assert left.get_thread("t", resource="r").buffered_seq == 1


class Cancellable(GatedModel):
    """Ends its call as a provider does whose connection is closed."""

    def __init__(self, services: Services) -> None:
        super().__init__(services)
        self.shut = Event()

    def complete(self, request: ModelRequest, *, timeout_s: float, cancelled: Event | None) -> ModelReply:
        self.calls += 1
        assert self.shut.wait(60)
        return self._model.complete(request, timeout_s=timeout_s, cancelled=cancelled)
