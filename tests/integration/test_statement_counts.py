"""A step takes at most 6 statements and a context at most 4, counted at the driver, whatever the history's length."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from om_core.memory import Memory
from om_core.services.run_jobs import JobRunner
from om_core.store.engine import PostgresStore
from tests.benchmarks.statements import Recorder, record
from tests.support.fixtures import build
from tests.support.servers import Servers

STEP = 6
CONTEXT = 4
ACTIVATING = 20
"""A context that also moves chunks into the log, reports it, and decides again."""
REFLECTING = 5
"""More, where a finished reflection takes effect with it."""
LENGTHS = (10, 2_000)
BATCH = 50
QUEUES = ("observation", "buffering", "reflection")
OPTIONS = {
    "model": "offline/extractive",
    "observation": {"message_tokens": 2_000, "buffer_tokens": 400, "block_timeout": 0},
    "reflection": {"observation_tokens": 1_500},
}


def texts(start: int, count: int) -> list[dict[str, Any]]:
    """Alternating messages; every fourth says the same, as people do."""
    return [
        {
            "role": "assistant" if number % 2 else "user",
            "content": "ok"
            if number % 4 == 2
            else f"{number}: the invoice {number} goes to the Berlin office on Friday",
        }
        for number in range(start, start + count)
    ]


def om(messages: list[dict[str, Any]], first: int) -> list[dict[str, Any]]:
    """The same with ids, in the canonical form."""
    return [
        {"id": f"m{first + at}", "role": m["role"], "parts": [{"type": "text", "text": m["content"]}]}
        for at, m in enumerate(messages)
    ]


@pytest.fixture(scope="module", params=LENGTHS)
def length(request) -> int:
    found: int = request.param
    return found


@pytest.fixture(scope="module")
def prepared(servers: Servers, length: int) -> Iterator[str]:
    """A database with a thread "t" of so many messages, each stretch of them observed, activated and reflected."""
    with servers.new_database() as url:
        store = PostgresStore(url, pool_size=2)
        memory = Memory(build(store, OPTIONS))
        runner = JobRunner(memory.services)
        for start in range(0, length, BATCH):
            memory.append("t", om(texts(start, min(BATCH, length - start)), start), resource="r", format="om")
            settle(memory, runner)
        runner.close()
        store.close()
        yield url.rsplit("@/", 1)[1].split("?", 1)[0]


@pytest.fixture
def store(servers: Servers, prepared: str) -> Iterator[PostgresStore]:
    """A copy of that database of the test's own."""
    name = f"c_{uuid.uuid4().hex[:12]}"
    servers.run(f"CREATE DATABASE {name} TEMPLATE {prepared} STRATEGY wal_log")
    opened = PostgresStore(servers.database_url(name), pool_size=8)
    yield opened
    opened.close()
    servers.run(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
def counted(store: PostgresStore) -> Recorder:
    return record(store.engine)


@pytest.fixture
def memory(counted: Recorder, store: PostgresStore) -> Memory:
    memory = Memory(build(store, OPTIONS))
    memory.get_thread("t", resource="r")  # the driver asks its own questions on its first connection
    return memory


def settle(memory: Memory, runner: JobRunner) -> None:
    """Do what is due until nothing is; the context activates, and stores what it may store."""
    while [queue for queue in QUEUES if runner.run(queue) is not None]:
        memory.context("t", resource="r")
    memory.context("t", resource="r")


CALL = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}


def _user_message(memory: Memory, length: int) -> object:
    return memory.append("t", [{"role": "user", "content": "and then?"}], resource="r")


def _without_resource(memory: Memory, length: int) -> object:
    return memory.append("t", [{"role": "user", "content": "and then?"}])


def _call_and_result(memory: Memory, length: int) -> object:
    messages: list[dict[str, Any]] = [
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "c1", "content": "found"},
    ]
    return memory.append("t", messages, resource="r", end_of_turn=True)


def _makes_a_job_due(memory: Memory, length: int) -> object:
    result = memory.append("t", [{"role": "user", "content": "word " * 600}], resource="r")
    assert result.jobs
    return result


def _known_ids(memory: Memory, length: int) -> object:
    batch = om(texts(0, min(BATCH, length)), 0)
    result = memory.append("t", batch, resource="r", format="om")
    assert len(result.duplicates) == len(batch)
    return result


def _whole_history_again(memory: Memory, length: int) -> object:
    count = min(length, BATCH)
    result = memory.append("t", texts(length - count, count + 1), resource="r")
    assert len(result.duplicates) == count
    return result


def _edited_history(memory: Memory, length: int) -> object:
    first = length - 6
    messages = [*texts(first, 4), {"role": "user", "content": "no, the other one"}]
    result = memory.append("t", messages, resource="r")
    assert result.diverged_at_seq == first + 5
    return result


def _a_common_word_and_new_talk(memory: Memory, length: int) -> object:
    messages = [{"role": "user", "content": "ok"}, {"role": "assistant", "content": "never said before"}]
    result = memory.append("t", messages, resource="r")
    assert result.diverged_at_seq is None
    return result


def _first_of_a_thread(memory: Memory, length: int) -> object:
    result = memory.append("new", [{"role": "user", "content": "hello"}], resource="r")
    assert result.created
    return result


def _empty_end_of_turn(memory: Memory, length: int) -> object:
    return memory.append("t", [], resource="r", end_of_turn=True)


@pytest.mark.report("Q06")
@pytest.mark.parametrize(
    "step",
    [
        _user_message,
        _without_resource,
        _call_and_result,
        _makes_a_job_due,
        _known_ids,
        _whole_history_again,
        _edited_history,
        _a_common_word_and_new_talk,
        _first_of_a_thread,
        _empty_end_of_turn,
    ],
    ids=lambda step: step.__name__.strip("_"),
)
def test_a_step_takes_at_most_six_statements(
    memory: Memory, counted: Recorder, length: int, step: Callable[[Memory, int], object]
) -> None:
    with counted.of() as statements:
        step(memory, length)

    assert 0 < len(statements) <= STEP, "\n".join(statements)


@pytest.mark.conforms("11.40")
@pytest.mark.report("Q06")
@pytest.mark.parametrize(
    "options",
    [{}, {"read_only": True}, {"model": "openai/gpt-5-mini"}, {"max_tokens": 100_000}],
    ids=["plain", "read only", "model", "cap"],
)
def test_a_context_takes_at_most_four_statements(
    memory: Memory, counted: Recorder, length: int, options: dict[str, Any]
) -> None:
    memory.append("t", [{"role": "user", "content": "what did we agree?"}], resource="r")

    with counted.of() as statements:
        memory.context("t", resource="r", **options)

    assert 0 < len(statements) <= CONTEXT, "\n".join(statements)


@pytest.mark.conforms("11.39")
def test_a_context_that_activates_takes_the_same_statements_at_any_length(memory: Memory, counted: Recorder) -> None:
    for number in range(4):
        memory.append("t", [{"role": "user", "content": f"{number} " + "word " * 500}], resource="r")
        runner = JobRunner(memory.services)
        while runner.run("buffering") is not None:
            pass
        runner.close()

    with counted.of() as statements:
        activated = memory.context("t", resource="r").activated

    assert activated is not None
    most = ACTIVATING + (REFLECTING if activated.generation else 0)
    assert len(statements) <= most, "\n".join(statements)


def test_statements_of_every_kind_are_counted_at_the_driver(memory: Memory, counted: Recorder) -> None:
    with counted.of() as statements, memory.services.store.transaction("default") as tx:
        tx.threads.resources_of("t")
        tx.memories.find("r", "t")

    assert len(statements) == 2, "\n".join(statements)


def test_a_transaction_in_which_nothing_is_asked_takes_no_statement(memory: Memory, counted: Recorder) -> None:
    memory.append("t", [{"role": "user", "content": "hello"}], resource="r")

    with counted.of() as statements, memory.services.store.transaction("default"):
        pass

    assert statements == []
