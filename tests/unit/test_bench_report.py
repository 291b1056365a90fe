"""The bench report: which numbers it has, how they are judged, and how statements and calls are counted."""

from __future__ import annotations

import itertools
import json

import pytest
from rich.console import Console

from om_core.testing.scripted_server import Call
from tests.benchmarks.calls import most_at_once
from tests.benchmarks.history import COUNTER, TEXT_TOKENS, message_text
from tests.benchmarks.report import FIELDS, Results, document, missed, table, write
from tests.benchmarks.statements import counted
from tests.benchmarks.timing import Samples, interleaved, ratio, several

NAMES = [
    "turn_vs_insert",
    "turn_growth",
    "sql_per_turn",
    "sql_per_context",
    "activation_growth",
    "jobs_vs_noop",
    "tokens_mb_per_s",
    "concurrent_model_calls",
    "worker_rss_mb",
    "turns_http_vs_library",
    "sse_reader_kb",
]
GOOD: Results = {
    "turn_vs_insert": (4.2, {"runs": [4.1, 4.2, 4.4]}),
    "turn_growth": (1.0123456, {"runs": [1.0123456]}),
    "sql_per_turn": (5, {}),
    "sql_per_context": (4, {}),
    "activation_growth": (0.98, {}),
    "jobs_vs_noop": (0.31, {}),
    "tokens_mb_per_s": (18.0, {}),
    "concurrent_model_calls": (32, {}),
    "worker_rss_mb": (265.0, {}),
    "turns_http_vs_library": (0.3, {}),
    "sse_reader_kb": (36.0, {}),
}


def test_the_report_has_exactly_the_agreed_numbers_and_detail() -> None:
    report = document(GOOD, {"cpus": 2})

    assert list(report) == [*NAMES, "detail"]
    assert all(isinstance(report[name], int | float) for name in NAMES)
    assert report["detail"]["turn_vs_insert"]["runs"] == [4.1, 4.2, 4.4]
    assert report["detail"]["environment"] == {"cpus": 2}


def test_a_written_report_is_one_json_document_and_leaves_no_draft(tmp_path) -> None:
    path = tmp_path / "reports" / "bench.json"

    write(path, document(GOOD, {}))

    assert json.loads(path.read_text())["turn_growth"] == 1.012
    assert [entry.name for entry in path.parent.iterdir()] == ["bench.json"]


@pytest.mark.parametrize(
    "name, value, met",
    [
        ("turn_vs_insert", 8.0, True),
        ("turn_vs_insert", 8.01, False),
        ("turn_growth", 1.10, True),
        ("turn_growth", 1.11, False),
        ("turn_growth", 0.5, True),
        ("sql_per_turn", 6, True),
        ("sql_per_turn", 7, False),
        ("sql_per_context", 4, True),
        ("sql_per_context", 5, False),
        ("activation_growth", 1.21, False),
        ("jobs_vs_noop", 0.3, True),
        ("jobs_vs_noop", 0.29, False),
        ("concurrent_model_calls", 31, False),
        ("worker_rss_mb", 401, False),
    ],
)
def test_each_number_is_judged_by_its_target(name: str, value: float, met: bool) -> None:
    assert missed({name: (value, {})}) == ([] if met else [name])


def test_a_number_without_a_target_is_never_missed() -> None:
    assert missed({"tokens_mb_per_s": (0.001, {})}) == []


def test_a_part_of_the_measurements_makes_a_part_of_the_report() -> None:
    assert set(document({"sql_per_turn": (3, {})}, {})) == {"sql_per_turn", "detail"}


def test_the_table_shows_each_number_with_its_target() -> None:
    console = Console(record=True, width=160)

    console.print(table({**GOOD, "worker_rss_mb": (512.0, {})}))

    lines = console.export_text().splitlines()
    row = next(line for line in lines if "worker_rss_mb" in line)
    assert "512 MB" in row and "≤ 400 MB" in row and "missed" in row
    assert all(any(field.name in line and field.target in line for line in lines) for field in FIELDS)


def test_what_frames_a_transaction_is_no_statement() -> None:
    framed = (
        "BEGIN; SELECT set_config('role', %s, true), set_config('om.tenant', %s, true); SELECT om_lock_thread_v1(%s)"
    )

    assert counted(framed) == ["SELECT om_lock_thread_v1(%s)"]
    assert counted("COMMIT") == counted("ROLLBACK") == []
    assert counted("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; SELECT 1; SELECT 2") == ["SELECT 1", "SELECT 2"]
    assert counted("SELECT set_config('work_mem', '1MB', true)") == ["SELECT set_config('work_mem', '1MB', true)"]


def test_a_semicolon_in_a_value_ends_no_statement() -> None:
    assert len(counted("UPDATE t SET a = 'x; y''; z', b = E'it\\'s; so'; SELECT ';'; COMMIT")) == 2


def test_operations_are_timed_in_turn_and_each_begins_a_round_equally_often() -> None:
    order: list[str] = []
    operations = {name: (lambda name=name: order.append(name)) for name in "ab"}

    samples = interleaved(operations, 4, warm_up=1)

    assert "".join(order[2:]) == "abbaabba"
    assert {name: len(taken.seconds) for name, taken in samples.items()} == {"a": 4, "b": 4}


def test_the_time_between_rounds_is_nobodys() -> None:
    visits = itertools.count()

    interleaved({"a": lambda: None}, 6, tend=lambda: next(visits), tend_every=2)

    assert next(visits) == 3


def test_a_ratio_is_of_medians_so_one_slow_sample_changes_nothing() -> None:
    samples = {"a": Samples((2.0, 2.0, 90.0)), "b": Samples((1.0, 1.0, 1.0))}

    assert ratio(samples, "a", "b") == 2.0


def test_of_several_runs_the_middle_ratio_counts_and_all_are_reported() -> None:
    runs = iter([5.0, 1.0, 3.0])

    value, detail = several(lambda: {"a": Samples((next(runs),)), "b": Samples((1.0,))}, 3, "a", "b")

    assert value == 3.0
    assert detail["runs"] == [5.0, 1.0, 3.0]
    assert [run["a"]["median_us"] for run in detail["medians"]] == [5e6, 1e6, 3e6]


@pytest.mark.parametrize("spans, most", [([], 0), ([(0, 5), (1, 2), (2, 3)], 2), ([(0, 9), (1, 9), (2, None)], 3)])
def test_calls_at_once_are_those_unanswered_at_one_moment(spans: list[tuple[float, float | None]], most: int) -> None:
    calls = [
        Call(number=number, path="", request={}, headers={}, started=started, ended=ended)
        for number, (started, ended) in enumerate(spans)
    ]

    assert most_at_once(calls) == most


def test_the_measured_message_has_120_tokens_and_differs_by_its_number() -> None:
    texts = [message_text(number) for number in (0, 7, 500_000, 999_999)]

    assert {COUNTER.count_text(text) for text in texts} == {TEXT_TOKENS}
    assert len(set(texts)) == len(texts)
