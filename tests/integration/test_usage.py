"""What memory costs: summed by day, resource, thread, kind and model; in Python, over HTTP, as CSV, on the command line."""

from __future__ import annotations

import csv
import io
from datetime import date
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from om_core.domain.errors import InvalidInputError
from om_core.domain.reach import Reach
from om_core.formats.table import csv_lines
from om_core.memory import Memory
from om_core.ports import NewThread
from om_core.services.keys import create_key
from om_core.store.cursors import encode_cursor, encode_place
from tests.integration.api_server import ApiClient, api_of
from tests.support.fixtures import raw_session
from tests.support.jobs import work_off
from tests.support.om_command import run_om
from tests.support.processes import environment
from tests.support.services import settings_services

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from om_core.config import Settings
    from om_core.ports import Store
    from om_core.services.deps import Services

ADD = (
    "INSERT INTO usage (tenant_id, day, thread_id, resource_id, kind, model, calls, input_tokens, output_tokens, cost_usd)"
    " SELECT tenant_id, CAST(%s AS date), id, resource_id, %s, %s, 1, %s, 10, 0.25 FROM threads"
    " WHERE resource_id = %s AND external_id = %s RETURNING 1"
)
DAYS = ("2026-01-30", "2026-01-31", "2026-02-01")


@pytest.fixture
def spent(memory: Memory) -> Memory:
    """Two resources with thread `t` each and one more; three days, two kinds, two models, of 100 input tokens each."""
    fill(memory.services.store)
    return memory


def fill(store: Store, tenant: str = "default") -> None:
    with store.transaction(tenant) as tx:
        for resource, thread in (("alice", "t"), ("alice", "u"), ("=bob", "t")):
            tx.threads.create(NewThread(external_id=thread, resource_id=resource, scope="thread"))
    with raw_session(store, tenant) as session:
        for resource, thread in (("alice", "t"), ("alice", "u"), ("=bob", "t")):
            for day in DAYS:
                for kind, model in (("observe", "a/one"), ("observe", "b/two"), ("reflect", "b/two")):
                    assert session.hot(ADD, (day, kind, model, 100, resource, thread))


def sums(memory: Memory, **query: Any) -> list[dict[str, Any]]:
    """Every page, three rows at a time."""
    found: list[dict[str, Any]] = []
    cursor = None
    while True:
        page = memory.usage(cursor=cursor, limit=3, **query)
        found += page.items
        cursor = page.next_cursor
        if cursor is None:
            return found


@pytest.mark.parametrize(
    ("by", "rows"),
    [
        ((), 1),
        (("day",), 3),
        (("resource",), 2),
        (("thread",), 3),
        (("kind",), 2),
        (("model",), 2),
        (("kind", "model"), 3),
        (("day", "resource", "thread", "kind", "model"), 27),
        (("model", "day"), 6),
    ],
)
def test_every_way_to_sum_counts_everything_once_over_its_pages(spent: Memory, by: tuple[Any, ...], rows: int) -> None:
    found = sums(spent, by=by)

    assert len(found) == rows
    assert [sum(row[name] for row in found) for name in ("calls", "input_tokens", "output_tokens")] == [27, 2700, 270]
    assert sum(row["cost_usd"] for row in found) == pytest.approx(27 * 0.25)
    groups = [tuple(row.get(name) or "" for name in by) for row in found]
    assert len(set(groups)) == rows or by == ("thread",)
    assert groups == sorted(groups)


def test_threads_with_one_id_are_told_apart_by_their_resource(spent: Memory) -> None:
    named = {(row["resource"], row["thread"]) for row in sums(spent, by=("thread",))}
    assert named == {("alice", "t"), ("alice", "u"), ("=bob", "t")}


def test_what_is_asked_for_is_what_is_summed(spent: Memory) -> None:
    def total(**query: Any) -> int:
        return sum(row["calls"] for row in sums(spent, by=(), **query))

    assert total(resource="alice") == 18
    assert total(resource="alice", thread="u") == 9
    assert total(first_day=date(2026, 1, 31)) == 18
    assert total(first_day=date(2026, 1, 31), last_day=date(2026, 1, 31)) == 9
    assert total(resource="nobody") == 0, "one sum, of nothing"
    assert total(first_day=date(2027, 1, 1)) == 0


def test_a_narrowed_caller_sees_its_own(spent: Memory) -> None:
    for reach, calls in ((Reach(resource="alice"), 18), (Reach(resource="alice", thread="u"), 9)):
        rows = sums(spent.within(reach), by=("resource",))
        assert [(row["resource"], row["calls"]) for row in rows] == [("alice", calls)]


@pytest.mark.parametrize(
    "cursor",
    [
        "x",
        "\u00e9",
        encode_cursor(1),
        encode_place([]),
        encode_place(["not a day"]),
        encode_place([1]),
        encode_place(["2026-01-01", "x"]),
        encode_place(["2026-01-01\0"]),
    ],
)
def test_a_cursor_of_another_list_is_refused(spent: Memory, cursor: str) -> None:
    with pytest.raises(InvalidInputError, match="not a cursor of this list"):
        spent.usage(by=("day",), cursor=cursor)


@pytest.mark.parametrize("by", [("day", "day"), ("week",), ("",)])
def test_what_cannot_be_summed_by_is_refused(spent: Memory, by: Any) -> None:
    with pytest.raises(InvalidInputError, match="at most once"):
        spent.usage(by=by)


def test_a_job_that_ran_is_in_it(services: Services, memory: Memory) -> None:
    said = [{"role": "user", "content": f"The cat {n} sat on the wall of my house. " * 12} for n in range(6)]
    memory.append("t", said, resource="r")
    work_off(services)

    [row] = memory.usage(by=("kind", "model")).items
    assert (row["kind"], row["model"]) == ("observe", "offline/extractive")
    assert row["calls"] >= 1
    assert row["input_tokens"] > 100


@pytest.fixture
def client(spent: Memory) -> Iterator[ApiClient]:
    with api_of(spent.services) as found:
        yield found


def test_over_http_it_comes_in_pages(client: ApiClient) -> None:
    first = client.ok("GET", "/v1/usage?by=day&limit=2")
    second = client.ok("GET", f"/v1/usage?by=day&limit=2&cursor={first['next_cursor']}")
    assert [row["day"] for row in first["items"] + second["items"]] == list(DAYS)
    assert second["next_cursor"] is None
    assert client.ok("GET", "/v1/resources/alice/usage?by=none")["items"][0]["calls"] == 18
    assert client.ok("GET", "/v1/usage?thread=u&by=none&first_day=2026-02-01")["items"][0]["calls"] == 3


def test_csv_has_every_row_and_no_formula(client: ApiClient) -> None:
    response = client.get("/v1/usage?by=day,thread,kind,model&format=csv")

    assert response.headers["content-type"].startswith("text/csv")
    rows = list(csv.DictReader(io.StringIO(response.text)))
    assert len(rows) == 27
    assert list(rows[0]) == [
        *("day", "resource", "thread", "kind", "model"),
        *("calls", "input_tokens", "output_tokens", "cost_usd"),
    ]
    assert {row["resource"] for row in rows} == {"alice", "'=bob"}


@pytest.mark.parametrize(
    ("query", "path"),
    [
        ("by=week", "by"),
        ("by=day,day", "by"),
        ("first_day=yesterday", "first_day"),
        ("first_day=2026-02-30", "first_day"),
        ("cursor=x", "cursor"),
        ("format=csv&cursor=x", "cursor"),
        ("limit=201", "limit"),
        ("week=1", "week"),
        ("by=", "by"),
    ],
)
def test_what_is_wrong_with_the_question_is_named(client: ApiClient, query: str, path: str) -> None:
    for place in ("/v1/usage", "/v1/resources/alice/usage"):
        response = client.get(f"{place}?{query}")
        assert response.status_code == 422, response.text
        assert [error["path"] for error in response.json()["errors"]] == [path]


def test_the_spreadsheets_formulas_are_texts() -> None:
    rows = [{"a": text} for text in ("=1+1", "+1", "-1", "@x", "\tx", "plain", None, 3, -3, 'say "x", y')]
    assert csv_lines(["a"], rows).splitlines() == [
        *("a", "'=1+1", "'+1", "'-1", "'@x", "'\tx", "plain", '""', "3", "-3", '"say ""x"", y"')
    ]


def test_the_command_shows_a_table_json_and_csv(settings: Settings, tmp_path: Path) -> None:
    with settings_services(settings) as services:
        fill(services.store)
    om = partial(run_om, environment=environment(settings), folder=tmp_path)

    found = om("usage", "--by", "resource", "--json").json
    assert [(row["resource"], row["calls"]) for row in found["items"]] == [("=bob", 9), ("alice", 18)]
    lines = om(
        "usage", "--csv", "--by", "day,kind", "--resource", "alice", "--first-day", "2026-01-31"
    ).out.splitlines()
    assert lines[0] == "day,kind,calls,input_tokens,output_tokens,cost_usd"
    assert len(lines) == 5
    assert "a/one" in om("usage").out


def test_another_tenants_usage_is_its_own(spent: Memory) -> None:
    secret = create_key(spent.services, "other", name="x").secret
    with api_of(spent.services, auth="keys") as client:
        found = client.ok("GET", "/v1/usage", headers={"Authorization": f"Bearer {secret}"})
    assert found == {"items": [], "next_cursor": None}
