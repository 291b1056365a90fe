"""The house rules, held against every file of the project."""

from collections.abc import Iterable

import pytest

from tests.tidy import call_rules, conformance, project_rules, reports, shape_rules, text_rules
from tests.tidy.sources import ROOT, Finding, binary_files, project_files, project_sources

RULES = {rule.__name__: rule for rules in (shape_rules, call_rules, text_rules) for rule in rules.RULES}


def assert_none(findings: Iterable[Finding]) -> None:
    lines = [str(finding) for finding in findings]
    if lines:
        pytest.fail("\n".join(lines), pytrace=False)


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


@pytest.mark.conforms("11.48")
@pytest.mark.parametrize("name", RULES)
def test_every_file_keeps_the_rule(name):
    assert_none(finding for source in project_sources() for finding in RULES[name](source))


def test_the_top_level_is_the_agreed_one():
    assert_none(project_rules.top_level(project_files()))


def test_binary_files_are_data_and_pictures():
    assert_none(project_rules.vendored(binary_files()))


def test_each_ignored_rule_has_a_reason():
    assert_none(project_rules.silent_ignores(read("pyproject.toml")))


def test_the_lock_holds_exact_versions_only():
    assert_none(project_rules.lock_lines(read("requirements.lock")))


def test_the_lock_covers_each_dependency():
    assert_none(project_rules.lock_covers(read("pyproject.toml"), read("requirements.lock")))


def test_the_changelog_collects_what_is_unreleased():
    assert_none(project_rules.changelog(read("CHANGELOG.md")))


def test_every_report_of_a_complete_theme_is_held_off_by_a_test():
    assert_none(reports.findings(reports.marked(project_sources())))


def test_every_section_of_the_specification_is_shown_by_a_test():
    assert_none(conformance.findings(reports.marked(project_sources(), mark=conformance.MARK)))
