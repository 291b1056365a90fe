"""The demo data is what it claims to be: a whole real session, and facts that are really in it."""

from __future__ import annotations

import hashlib
import json
from importlib.resources import files
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from om_core.demo import Fact, fact_found, load_facts, open_session

SESSION_SHA256 = "f35acfadc7105e8430928fd18da81bfc80b6f309d6e37ab0b4eb77042ecbe423"
SESSION_RECORDS = 1881
SOURCE_NAME = "claude_code_spotter/fa812bfe-b295-4cca-9c2f-fdf01028cb46.jsonl"

FACTS = load_facts()


def _block_text(block: dict[str, Any]) -> str:
    """Return what one content block says (nothing for thinking and images)."""
    if block["type"] == "text":
        return str(block["text"])
    if block["type"] == "tool_use":
        return json.dumps(block["input"], ensure_ascii=False)
    if block["type"] == "tool_result":
        content = block.get("content") or ""
        if isinstance(content, str):
            return content
        return "\n".join(_block_text(part) for part in content)
    return ""


def _record_text(record: dict[str, Any]) -> str:
    """Return the text of a user or assistant record: text, tool inputs, tool results."""
    content = record["message"]["content"]
    if isinstance(content, str):
        return content
    return "\n".join(_block_text(block) for block in content)


@pytest.fixture(scope="module")
def records() -> list[dict[str, Any]]:
    return [json.loads(line) for line in open_session()]


@pytest.fixture(scope="module")
def positions(records: list[dict[str, Any]]) -> dict[str, int]:
    """Where the user and assistant records are in the file, by uuid."""
    return {record["uuid"]: index for index, record in enumerate(records) if record["type"] in ("user", "assistant")}


@pytest.fixture(scope="module")
def texts(records: list[dict[str, Any]], positions: dict[str, int]) -> dict[str, str]:
    return {uuid: _record_text(records[index]) for uuid, index in positions.items()}


def _fact(*terms: tuple[str, ...]) -> Fact:
    return Fact(id="x", fact="x", terms=terms, message_ids=("x",), category="result")


def test_the_session_is_the_recorded_one() -> None:
    lines = list(open_session())
    data = "".join(f"{line}\n" for line in lines).encode()
    assert len(lines) == SESSION_RECORDS
    assert hashlib.sha256(data).hexdigest() == SESSION_SHA256


def test_the_archive_carries_no_time_and_no_file_name() -> None:
    header = files("om_core.demo").joinpath("session.jsonl.gz").read_bytes()[:10]
    assert header[:4] == b"\x1f\x8b\x08\x00"  # gzip, deflate, no flags
    assert header[4:8] == bytes(4)


@pytest.mark.data
def test_the_session_equals_its_source(data_dir: Path) -> None:
    source = data_dir / SOURCE_NAME
    packed = "".join(f"{line}\n" for line in open_session()).encode()
    assert packed == source.read_bytes()


def test_open_session_can_be_read_twice() -> None:
    assert next(open_session()) == next(open_session())


def test_the_licence_names_its_source() -> None:
    text = files("om_core.demo").joinpath("LICENSE.spotter").read_text(encoding="utf-8")
    for expected in (
        "MIT License",
        "Copyright (c) 2026 marot",
        "github.com/marot/spotter",
        "8cc42b0b",
    ):
        assert expected in text


def test_there_are_enough_facts_with_unique_ids() -> None:
    assert len(FACTS) >= 30
    assert len({fact.id for fact in FACTS}) == len(FACTS)
    assert len({fact.fact for fact in FACTS}) == len(FACTS)


def test_all_categories_are_used() -> None:
    assert {fact.category for fact in FACTS} == {
        "user_request",
        "decision",
        "identifier",
        "result",
        "error",
        "number",
    }


def test_facts_are_spread_over_the_session(positions: dict[str, int]) -> None:
    per_third = [0, 0, 0]
    for fact in FACTS:
        first = min(positions[uuid] for uuid in fact.message_ids)
        per_third[first * 3 // SESSION_RECORDS] += 1
    assert min(per_third) >= 8, per_third


def test_facts_are_in_session_order(positions: dict[str, int]) -> None:
    firsts = [min(positions[uuid] for uuid in fact.message_ids) for fact in FACTS]
    assert all(earlier <= later + SESSION_RECORDS // 10 for earlier, later in pairwise(firsts))


@pytest.mark.parametrize("fact", FACTS, ids=lambda fact: fact.id)
class TestEachFact:
    def test_has_two_to_four_groups_of_distinct_terms(self, fact: Fact) -> None:
        assert 2 <= len(fact.terms) <= 4
        for group in fact.terms:
            assert len(set(group)) == len(group)
            assert all(len(term) >= 2 and term == term.strip() for term in group)

    def test_cites_messages_that_exist(self, fact: Fact, positions: dict[str, int]) -> None:
        assert len(set(fact.message_ids)) == len(fact.message_ids)
        assert [uuid for uuid in fact.message_ids if uuid not in positions] == []

    def test_does_not_rest_on_a_compaction_summary(
        self, fact: Fact, records: list[dict[str, Any]], positions: dict[str, int]
    ) -> None:
        cited = [records[positions[uuid]] for uuid in fact.message_ids]
        assert not any(record.get("isCompactSummary") for record in cited)

    def test_has_all_its_terms_in_the_cited_messages(self, fact: Fact, texts: dict[str, str]) -> None:
        cited = "\n".join(texts[uuid] for uuid in fact.message_ids).casefold()
        for group in fact.terms:
            assert any(term.casefold() in cited for term in group), group

    def test_is_found_in_one_of_the_cited_messages(self, fact: Fact, texts: dict[str, str]) -> None:
        assert any(fact_found(fact, texts[uuid]) for uuid in fact.message_ids)

    def test_is_found_in_its_own_sentence(self, fact: Fact) -> None:
        assert fact_found(fact, fact.fact)

    def test_is_not_found_in_the_other_facts(self, fact: Fact) -> None:
        others = "\n\n\n".join(other.fact for other in FACTS if other is not fact)
        lines = others.splitlines()
        assert not any(fact_found(fact, line) for line in lines)


class TestFactFound:
    def test_needs_every_group(self) -> None:
        fact = _fact(("alpha",), ("beta",))
        assert fact_found(fact, "alpha and beta")
        assert not fact_found(fact, "only alpha")
        assert not fact_found(fact, "only beta")

    def test_needs_one_alternative_of_a_group(self) -> None:
        fact = _fact(("alpha", "first letter"), ("beta",))
        assert fact_found(fact, "the first letter comes before beta")

    def test_ignores_case_on_both_sides(self) -> None:
        assert fact_found(_fact(("Mix Format",), ("PRE-commit",)), "MIX FORMAT after pre-COMMIT")

    def test_reaches_over_three_lines_but_not_four(self) -> None:
        fact = _fact(("alpha",), ("beta",))
        assert fact_found(fact, "alpha\nx\nbeta")
        assert not fact_found(fact, "alpha\nx\ny\nbeta")

    def test_does_not_count_empty_lines(self) -> None:
        assert fact_found(_fact(("alpha",), ("beta",)), "\nalpha\n\n  \n\nx\n\n\nbeta\n")

    def test_finds_a_window_at_the_end(self) -> None:
        assert fact_found(_fact(("alpha",), ("beta",)), "1\n2\n3\n4\n5\nalpha\nbeta")

    def test_does_not_join_words_across_lines(self) -> None:
        assert not fact_found(_fact(("alpha beta",), ("x",)), "alpha\nbeta\nx")

    def test_finds_nothing_in_an_empty_text(self) -> None:
        fact = _fact(("alpha",), ("beta",))
        assert not fact_found(fact, "")
        assert not fact_found(fact, "\n \n")

    def test_finds_real_facts_in_a_summary_and_only_those(self) -> None:
        summary = (
            "* User asked to continue until all subtasks are done.\n"
            "* Full suite now 389 tests, 0 failures; credo clean.\n"
        )
        found = {fact.fact for fact in FACTS if fact_found(fact, summary)}
        assert len(found) == 2
        assert any("continue until all" in sentence for sentence in found)
        assert any("389" in sentence for sentence in found)
