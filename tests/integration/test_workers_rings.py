"""Rings through a real Redis: what they carry, and how the publisher gets through an outage."""

from __future__ import annotations

import base64
import json
import logging
from collections.abc import Iterator

import pytest

from om_core.domain.job import JobKind, JobRef, Queue
from tests.support.brokers import redis_client, redis_down
from tests.support.servers import Servers
from tests.support.waiting import eventually
from workers import dispatch
from workers.dispatch import CeleryDispatcher

EXPECTED = [
    (JobKind.OBSERVE, Queue.BUFFERING, "om.observe"),
    (JobKind.OBSERVE, Queue.OBSERVATION, "om.observe"),
    (JobKind.REBUILD, Queue.OBSERVATION, "om.rebuild"),
    (JobKind.REFLECT, Queue.REFLECTION, "om.reflect"),
    (JobKind.INDEX, Queue.INDEXING, "om.index"),
]


def job(number: int, kind: JobKind = JobKind.OBSERVE, queue: Queue = Queue.BUFFERING) -> JobRef:
    return JobRef(id=number, tenant_id="acme", kind=kind, queue=queue, thread="conversation 1", attempt=2)


@pytest.fixture
def dispatcher(redis_url: str) -> Iterator[CeleryDispatcher]:
    made = CeleryDispatcher(redis_url, pauses_s=(0.05, 0.2))
    yield made
    made.close()


def stored(redis_url: str, queue: Queue) -> list[dict[str, object]]:
    """The rings that wait in a queue, oldest first: task name and arguments."""
    with redis_client(redis_url) as client:
        raw = client.lrange(f"om:{queue.value}", 0, -1)
    messages = [json.loads(item) for item in reversed(raw)]
    return [
        {"task": message["headers"]["task"], **json.loads(base64.b64decode(message["body"]))[1]} for message in messages
    ]


@pytest.mark.parametrize(("kind", "queue", "task"), EXPECTED)
def test_a_ring_carries_ids_into_the_queue_of_its_job(dispatcher, redis_url, kind, queue, task):
    dispatcher.ring([job(7, kind, queue)])
    eventually(lambda: dispatcher.stats.sent == 1)

    arguments = {"job": 7, "kind": kind.value, "thread": "conversation 1", "attempt": 2, "tenant": "acme"}
    assert stored(redis_url, queue) == [{"task": task, **arguments}]


def test_closing_sends_what_waits(dispatcher, redis_url):
    dispatcher.ring(job(number) for number in range(100))
    dispatcher.close()

    assert [ring["job"] for ring in stored(redis_url, Queue.BUFFERING)] == list(range(100))


def test_an_outage_ends_by_itself_and_is_logged_twice(dispatcher, redis_url, servers: Servers, caplog):
    dispatcher.ring([job(1)])
    eventually(lambda: dispatcher.stats.sent == 1)
    with caplog.at_level(logging.INFO, logger="om.rings"):
        with redis_down(servers):
            dispatcher.ring([job(2), job(3)])
            eventually(lambda: dispatcher.stats.failures >= 3)
            assert not dispatcher.healthy
        eventually(lambda: dispatcher.healthy)
        eventually(lambda: dispatcher.stats.sent == 2)

    assert [ring["job"] for ring in stored(redis_url, Queue.BUFFERING)][-1] == 3  # 2 was lost: the sweep rings it again
    assert [record.levelname for record in caplog.records if record.name == "om.rings"] == ["WARNING", "INFO"]


def test_rings_that_waited_through_a_long_outage_are_forgotten(dispatcher, redis_url, servers: Servers, monkeypatch):
    monkeypatch.setattr(dispatch, "KEEP_S", 0.0)
    with redis_down(servers):
        dispatcher.ring(job(number) for number in range(5))
        eventually(lambda: not dispatcher.healthy)
    eventually(lambda: dispatcher.healthy)

    eventually(lambda: dispatcher.stats.dropped == 5)
    assert stored(redis_url, Queue.BUFFERING) == []


def test_a_redis_that_refuses_writes_counts_as_away(dispatcher, redis_url):
    with redis_client(redis_url) as client:
        client.config_set("maxmemory", "1")
        try:
            dispatcher.ring([job(1)])
            eventually(lambda: dispatcher.stats.failures >= 3)
            assert not dispatcher.healthy
        finally:
            client.config_set("maxmemory", "0")
    eventually(lambda: dispatcher.healthy)
