"""Log lines of a job name it, and hold nothing of what it worked on."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest
import sqlalchemy as sa

from om_core.domain.errors import RetryLaterError, SetupError
from om_core.llm.errors import classify
from om_core.memory import Memory
from om_core.ports import ModelReply
from om_core.services.run_jobs import JobRunner
from om_core.telemetry import described
from tests.support.fixtures import SMALL
from tests.support.services import conversation

if TYPE_CHECKING:
    from collections.abc import Callable
    from threading import Event

    from om_core.ports import ModelRequest
    from om_core.services.deps import Services
    from om_core.store.engine import PostgresStore

SECRET = "TRACE-1"


class Failing:
    """A model that fails as the test says; `fail` is given the prompt."""

    def __init__(self, fail: Callable[[str], ModelReply]) -> None:
        self._fail = fail

    def complete(self, request: ModelRequest, *, timeout_s: float, cancelled: Event | None) -> ModelReply:
        prompt = "".join(str(message.content) for message in request.prompt)
        assert SECRET in prompt
        return self._fail(prompt)

    def window_tokens(self, model: str) -> int | None:
        return None


def unexpected(prompt: str) -> ModelReply:
    raise ValueError(f"cannot parse {prompt}")


def outage(prompt: str) -> ModelReply:
    raise RetryLaterError("the provider is overloaded")


def setup(prompt: str) -> ModelReply:
    raise SetupError("OPENAI_API_KEY is not set")


def refusal(prompt: str) -> ModelReply:
    return ModelReply(text=f"I'm sorry, but I cannot help with {SECRET}.", model="m")


def provider(prompt: str) -> ModelReply:
    class BadRequestError(Exception):
        status_code = 400

    raise classify(BadRequestError(f"your prompt is odd: {SECRET} {prompt}"), model="m")


def degenerate(prompt: str) -> ModelReply:
    return ModelReply(text=f"{SECRET} " * 3000, model="m")


FAILURES = [
    (unexpected, "ValueError"),
    (outage, "RetryLaterError"),
    (provider, "GiveUpError"),
    (setup, "SetupError"),
    (refusal, "UnusableOutputError"),
    (degenerate, "UnusableOutputError"),
]


@pytest.mark.parametrize(("fail", "named"), FAILURES, ids=[case[0].__name__ for case in FAILURES])
def test_the_lines_of_a_failed_job_name_job_kind_thread_attempt_and_cycle_and_hold_no_content(
    services_with: Callable[..., Services],
    caplog: pytest.LogCaptureFixture,
    fail: Callable[[str], ModelReply],
    named: str,
) -> None:
    services = services_with(SMALL, model=Failing(fail))
    [job] = Memory(services).append("thread-7", conversation(8), resource="r").jobs
    runner = JobRunner(services)
    with caplog.at_level(logging.DEBUG):
        runner.run("buffering")
    runner.close()

    lines = [record.getMessage() for record in caplog.records if record.name == "om.jobs"]
    assert [line.split(" ")[0:2] for line in lines] == [["event='attempt", "failed'"], ["event='job", "ended'"]]
    assert f"error_type='{named}'" in lines[0]
    for line in lines:
        for field in (
            f"job={job.id}",
            "kind='observe'",
            "thread='thread-7'",
            "attempt=1",
            f"cycle='{job.id}-1'",
        ):
            assert field in line, line
    assert SECRET not in caplog.text
    assert "Lisbon" not in caplog.text


def test_of_a_driver_only_class_and_state_are_logged_because_its_text_quotes_parameters(store: PostgresStore) -> None:
    with pytest.raises(sa.exc.DBAPIError) as caught, store.session("om_app", "default") as session:
        session.execute(sa.text("SELECT CAST(:text AS integer)"), {"text": SECRET})
    assert SECRET in str(caught.value)
    assert described(caught.value) == {"error_type": "DataError", "sqlstate": "22P02"}


def test_of_a_server_that_is_away_the_text_is_logged_because_it_says_what_to_look_at() -> None:
    assert described(ConnectionRefusedError("127.0.0.1:5432 refused"))["error"] == "127.0.0.1:5432 refused"
    assert described(SetupError("OM_MODEL is wrong"))["error"] == "OM_MODEL is wrong"
