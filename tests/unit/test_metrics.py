"""The names, types and labels of metrics are an interface; they are bounded, documented and cheap."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path
from threading import Event
from types import SimpleNamespace

import pytest
from prometheus_client.parser import text_string_to_metric_families

from om_core import metrics
from om_core.domain.context import Context, ContextTokens
from om_core.domain.errors import NotFoundError, RetryLaterError
from om_core.ports import QueueGauge, SystemGauges
from om_core.scrape import DatabaseGauges, exposition, scrape_registry
from om_core.services.measure import PrefixShare, timed
from tests.support.metrics import counted, samples

ROOT = Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests" / "golden" / "metrics.txt"
GAUGES = SystemGauges(
    queues=(QueueGauge(queue="buffering", kind="observe", due=3, waiting=2, running=1, oldest_due_age_s=7.5),),
    oldest_pending_age_s=12.0,
    discarded={"reflect": 4},
    workers=2,
    slots=16,
)


class System:
    """A system store that answers with fixed gauges, fails, or hangs; it counts how often it is asked."""

    def __init__(self, found: SystemGauges | None = GAUGES, *, hangs: bool = False) -> None:
        self.found, self.asked, self.answers = found, 0, Event()
        if not hangs:
            self.answers.set()

    def gauges(self) -> SystemGauges:
        self.asked += 1
        assert self.answers.wait(20)
        if self.found is None:
            raise ConnectionError("away")
        return self.found


def lines() -> str:
    return "".join(f"{item.name} {item.type} {','.join(item.labels) or '-'}\n" for item in metrics.CATALOGUE)


def test_names_types_and_labels_change_only_on_purpose() -> None:
    if os.environ.get("OM_WRITE_GOLDEN"):
        GOLDEN.write_text(lines(), encoding="utf-8", newline="\n")
    assert lines() == GOLDEN.read_text(encoding="utf-8"), "metrics are an interface: dashboards and alerts name them"


@pytest.mark.parametrize("item", metrics.CATALOGUE, ids=lambda item: item.name)
def test_a_name_has_prefix_and_unit_a_help_text_and_no_label_that_grows_with_users(item: metrics.Described) -> None:
    assert re.fullmatch(r"om_[a-z_]+", item.name)
    assert (item.type == "counter") == item.name.endswith("_total")
    assert item.type != "histogram" or item.name.endswith("_seconds")
    assert len(item.help) > 20 and item.help.endswith(".")
    assert set(item.labels) <= {"operation", "outcome", "state", "reason", "kind", "queue", "model", "direction"}


def test_the_table_in_the_architecture_is_the_catalogue() -> None:
    text = (ROOT / "om_core" / "ARCHITECTURE.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(om_[a-z_]+)(?:\{([a-z,]+)\})?` \| (\w+) \|", text, flags=re.MULTILINE)
    assert [(name, kind, labels) for name, labels, kind in rows] == [
        (item.name, item.type, ",".join(item.labels)) for item in metrics.CATALOGUE
    ]


def test_a_scrape_exposes_exactly_the_catalogue() -> None:
    text, content_type = exposition(scrape_registry(System()), "")
    found = {family.name for family in text_string_to_metric_families(text.decode())}
    assert found == {item.name.removesuffix("_total") for item in metrics.CATALOGUE}
    assert content_type.startswith("text/plain")
    assert b"_created" not in text


def test_what_postgres_says_is_shown_with_a_zero_for_every_empty_queue() -> None:
    found = samples(exposition(scrape_registry(System()), "")[0].decode())
    lane, other = {"queue": "buffering", "kind": "observe"}, {"queue": "reflection", "kind": "reflect"}
    expected: list[tuple[str, dict[str, str], float]] = [
        ("om_database_up", {}, 1),
        ("om_due_jobs", lane, 3),
        ("om_due_jobs", other, 0),
        ("om_oldest_due_age_seconds", lane, 7.5),
        ("om_oldest_due_age_seconds", other, 0),
        ("om_waiting_jobs", lane, 2),
        ("om_leases_active", lane, 1),
        ("om_discarded_jobs", {"kind": "reflect"}, 4),
        ("om_discarded_jobs", {"kind": "observe"}, 0),
        ("om_oldest_pending_age_seconds", {}, 12),
        ("om_workers", {}, 2),
        ("om_worker_slots", {}, 16),
    ]
    assert [(name, labels, found[name, frozenset(labels.items())]) for name, labels, _ in expected] == expected


def test_a_breaker_is_shown_where_the_store_keeps_one() -> None:
    class Breakers(System):
        def breakers(self) -> list[SimpleNamespace]:
            return [SimpleNamespace(model="a/b", state="open"), SimpleNamespace(model="c/d", state="closed")]

    found = samples(exposition(scrape_registry(Breakers()), "")[0].decode())
    assert {labels: state for (name, labels), state in found.items() if name == "om_breaker_state"} == {
        frozenset({("model", "a/b")}): 2,
        frozenset({("model", "c/d")}): 0,
    }


def test_without_postgres_the_process_is_served_and_says_so() -> None:
    text = exposition(scrape_registry(System(None)), "")[0].decode()
    assert "om_database_up 0.0" in text
    assert "om_due_jobs" not in text
    assert "om_turn_duration_seconds_count" in text


def test_a_database_that_does_not_answer_holds_up_no_scrape_and_is_asked_once() -> None:
    system = System(hangs=True)
    gauges = DatabaseGauges(system, patience_s=0.02)
    for _ in range(5):
        [up] = gauges.collect()
        assert (up.name, up.samples[0].value) == ("om_database_up", 0)
    system.answers.set()
    assert system.asked == 1


def test_many_scrapes_ask_postgres_once() -> None:
    system = System()
    registry = scrape_registry(system)
    for _ in range(10):
        exposition(registry, "")
    assert system.asked == 1


@pytest.mark.report("Q07")
def test_models_beyond_a_number_share_a_label(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "_models", set())  # the names of this process are those of other tests too
    labels = {metrics.model_label(f"test/model-{number}") for number in range(metrics.MOST_MODELS + 50)}
    assert metrics.OTHER_MODEL in labels
    assert len(labels) <= metrics.MOST_MODELS + 1


@pytest.mark.parametrize(
    ("error", "outcome"),
    [(None, "ok"), (NotFoundError("no"), "refused"), (RetryLaterError("later"), "error"), (OSError("away"), "error")],
)
def test_a_step_is_counted_by_its_outcome(error: Exception | None, outcome: str) -> None:
    @timed("append")
    def step() -> int:
        if error:
            raise error
        return 7

    with counted("om_turn_duration_seconds_count", operation="append", outcome=outcome) as count:
        if error is None:
            assert step() == 7
        else:
            with pytest.raises(type(error)):
                step()
    assert count() == 1


def test_timing_a_step_costs_less_than_five_microseconds() -> None:
    @timed("append")
    def nothing() -> None: ...

    def per_call(rounds: int = 1000) -> float:
        started = time.thread_time()
        for _ in range(rounds):
            nothing()
        return (time.thread_time() - started) / rounds

    assert min(per_call() for _ in range(30)) < 5e-6


def context(*, log: int, messages: int, observed: int = 0, generation: int = 0, changed: str | None = None) -> Context:
    return Context(
        system=(),
        messages=(),
        stable_messages=0,
        volatile=(),
        tokens=ContextTokens(log=log, messages=messages, total=log + messages),
        generation=generation,
        observed_seq=observed,
        head_seq=9,
        prefix_hash="",
        prefix_changed=changed,
    )


GROWN = context(log=100, messages=500)
AFTER = [
    ("a context that only grew kept all of the one before", context(log=100, messages=600), 600, 100),
    ("an activation keeps the log", context(log=150, messages=200, observed=4, changed="activation"), 100, 250),
    ("a reflection keeps nothing", context(log=50, messages=500, generation=1, changed="reflection"), 0, 550),
    ("a rebuild keeps nothing", context(log=100, messages=500, changed="rebuild"), 0, 600),
    ("a change that another process reported is seen", context(log=150, messages=200, observed=4), 100, 250),
]


@pytest.mark.parametrize(("name", "second", "kept", "new"), AFTER, ids=[case[0] for case in AFTER])
def test_the_cacheable_share_counts_what_the_context_before_had(
    name: str, second: Context, kept: int, new: int
) -> None:
    share = PrefixShare()
    with (
        counted("om_prefix_tokens_total", state="kept") as kept_tokens,
        counted("om_prefix_tokens_total", state="new") as new_tokens,
    ):
        share.count(1, GROWN, ())
        assert (kept_tokens(), new_tokens()) == (0, 0), "the first of a thread has none before it"
        share.count(2, GROWN, ())
        share.count(1, second, ())
    assert (kept_tokens(), new_tokens()) == (kept, new), name


@pytest.mark.report("Q07")
def test_only_so_many_threads_are_remembered() -> None:
    share = PrefixShare(most_threads=2)
    with counted("om_prefix_tokens_total", state="kept") as kept:
        for thread in (1, 2, 3, 1):
            share.count(thread, GROWN, ())
    assert kept() == 0
