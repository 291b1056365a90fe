"""How often a key may be used: counted in Redis by all processes together, and never a reason to fail."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from api.app import create_app
from api.rates import Rates
from om_core.clock import SystemClock
from om_core.services.keys import create_key, digest
from tests.integration.api_server import ApiClient, serving
from tests.support.brokers import redis_client, redis_down

if TYPE_CHECKING:
    from collections.abc import Iterator

    from om_core.services.deps import Services
    from tests.support.servers import Servers

ONE, TWO = digest("om_live_one"), digest("om_live_two")


class Clock(SystemClock):
    """A clock that moves by hand; only `monotonic` is asked for here."""

    def __init__(self) -> None:
        self.at = 1_000.0

    def monotonic(self) -> float:
        return self.at


@pytest.fixture
def rates(redis_url: str) -> Iterator[Rates]:
    found = Rates(redis_url, per_s=0.5, burst=3, clock=Clock())
    yield found
    found.close()


def test_a_burst_is_let_through_and_the_next_request_told_when_to_come(rates: Rates) -> None:
    assert [rates.take(ONE) for _ in range(3)] == [None] * 3
    pause_s = rates.take(ONE)
    assert pause_s is not None
    assert 1.0 < pause_s <= 2.0
    assert rates.take(TWO) is None, "each key has a bucket of its own"


def test_tokens_come_back_with_time_up_to_the_burst(rates: Rates, redis_url: str) -> None:
    for _ in range(4):
        rates.take(ONE)
    with redis_client(redis_url) as client:
        [name] = client.keys("om:rate:*")
        assert client.pttl(name) > 0, "it is forgotten when it is full again"
        client.hincrbyfloat(name, "at", -2.0)  # two seconds ago
        assert rates.take(ONE) is None
        assert rates.take(ONE) is not None
        client.hincrbyfloat(name, "at", -10_000.0)
        assert [rates.take(ONE) for _ in range(3)] == [None] * 3
        assert rates.take(ONE) is not None
        client.hincrbyfloat(name, "at", 10_000.0)  # a clock that was set back takes nothing away
        assert rates.take(ONE) is not None


def test_processes_and_threads_share_a_bucket(redis_url: str) -> None:
    several = [Rates(redis_url, per_s=0.001, burst=10, clock=SystemClock()) for _ in range(2)]
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda n: several[n % 2].take(ONE), range(40)))
    for rates in several:
        rates.close()
    assert found.count(None) == 10


def test_without_redis_nothing_is_limited_and_it_is_left_alone_for_a_while(servers: Servers, redis_url: str) -> None:
    clock = Clock()
    rates = Rates(redis_url, per_s=0.001, burst=1, clock=clock)
    assert rates.take(ONE) is None
    assert rates.take(ONE) is not None
    with redis_down(servers):
        assert [rates.take(ONE) for _ in range(5)] == [None] * 5
    assert rates.take(ONE) is None
    clock.at += 6
    assert rates.take(ONE) is not None, "it is asked again"
    rates.close()


@pytest.mark.parametrize(("per_s", "url"), [(0.0, "redis://nowhere:1/0"), (1.0, None)])
def test_no_limit_asks_nobody(per_s: float, url: str | None) -> None:
    rates = Rates(url, per_s=per_s, burst=1, clock=SystemClock())
    assert [rates.take(ONE) for _ in range(3)] == [None] * 3


@pytest.fixture
def limited(services: Services, redis_url: str) -> Iterator[ApiClient]:
    rates = Rates(redis_url, per_s=0.01, burst=2, clock=SystemClock())
    with serving(create_app(services, auth="keys", rates=rates)) as client:
        yield client


def test_a_key_that_runs_wild_is_429_and_told_when_to_come_others_go_on(limited: ApiClient, services: Services) -> None:
    wild, calm = ({"Authorization": f"Bearer {create_key(services, 'default', name=n).secret}"} for n in ("a", "b"))

    answers: list[Any] = [limited.get("/v1/threads", headers=wild) for _ in range(3)]

    assert [answer.status_code for answer in answers] == [200, 200, 429]
    refused = answers[-1]
    assert refused.json()["code"] == "rate_limited"
    assert 1 <= int(refused.headers["retry-after"]) <= 100
    assert "OM_RATE_LIMIT" in refused.json()["detail"]
    assert limited.get("/v1/threads", headers=calm).status_code == 200
    assert limited.get("/healthz").status_code == 200
    gateway = limited.send(limited.build_request("GET", "/v1/models", headers=wild))
    assert gateway.status_code == 429
    assert int(gateway.headers["retry-after"]) >= 1


def test_an_unknown_key_has_no_bucket(limited: ApiClient) -> None:
    for _ in range(5):
        assert limited.get("/v1/threads", headers={"Authorization": "Bearer om_live_x"}).status_code == 401
