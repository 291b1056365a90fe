"""What ends late or beside its job: late attempts are booked once; waiters end; a broken configuration fails no turn."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from om_core.memory import Memory
from om_core.services.costs import book_lost
from om_core.services.sweep import rescue
from om_core.services.waiting import CLOSED, JobWaiter
from tests.integration.test_pipeline import talk
from tests.integration.test_sweep import shift

if TYPE_CHECKING:
    from om_core.domain.job import Job
    from om_core.services.deps import Services
    from om_core.store.engine import PostgresStore

COST = {"model": "m", "input_tokens": 100, "output_tokens": 20, "cost_usd": 0.5}


def claimed(services: Services) -> Job:
    """The due job of thread `t`, held by a worker."""
    found = services.store.system.claim(queue="buffering", owner="w", lease_s=60)
    assert found is not None
    return found.job


def booked(services: Services) -> tuple[float, ...]:
    """Input tokens, output tokens and dollars that are booked in all."""
    rows = Memory(services).usage(by=["model"]).items
    return tuple(sum(row[name] for row in rows) for name in ("input_tokens", "output_tokens", "cost_usd"))


@pytest.mark.parametrize(("reserved", "expected"), [(0, (100, 20, 0.5)), (80, (100, 20, 0.5)), (500, (500, 0, 0.5))])
def test_an_attempt_that_ends_after_its_lease_expired_is_booked_once(
    memory: Memory, reserved: int, expected: tuple[int, int, float]
) -> None:
    services = memory.services
    talk(memory, "t", 10)
    job = claimed(services)
    shift(services, "UPDATE jobs SET reserved_tokens = %s, lease_expires_at = now() - interval '1 s'", reserved)
    assert rescue(services, "default", job.id)

    book_lost(services, "default", job, COST)

    assert booked(services) == expected


def test_a_configuration_that_does_not_hold_any_more_fails_no_turn(memory: Memory) -> None:
    memory.put_thread("t", resource="r", config={"observation": {"message_tokens": 900}})
    shift(memory.services, "UPDATE memories SET config = %s", '{"observation": {"message_tokens": -1}}')

    with memory.turn("t", "r") as turn:
        context = turn.start([{"role": "user", "content": "hello"}])

    assert [message.role.value for message in context.context.messages] == ["user"]
    assert memory.get_thread("t", resource="r").head_seq == 1
    status = memory.status("t", resource="r")
    assert "config.observation.message_tokens = -1" in status["why_idle"]["config"]
    assert status["windows"]["active"]["messages"]["threshold"] == 1000


def test_waiters_end_with_a_result_when_their_poller_closes(memory: Memory, store: PostgresStore) -> None:
    talk(memory, "t", 10)
    [job] = memory.jobs().items
    waiter = JobWaiter(store)

    async def wait() -> list[str]:
        waiting = [asyncio.wrap_future(waiter.watch(job["id"])) for _ in range(2)]
        await asyncio.to_thread(waiter.close)
        late = asyncio.wrap_future(waiter.watch(job["id"]))
        return await asyncio.wait_for(asyncio.gather(*waiting, late), 30)

    assert asyncio.run(wait()) == [CLOSED] * 3
