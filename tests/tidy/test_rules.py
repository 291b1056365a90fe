"""The rules themselves: each finds what it forbids, at the right line, and leaves the rest alone."""

import pytest

from tests.tidy import conformance, project_rules, reports
from tests.tidy.sources import Source
from tests.tidy.test_tidy import RULES

DOMAIN = "om_core/domain/x.py"
PRODUCT = "workers/x.py"
TEST = "tests/unit/test_x.py"
LONG_FUNCTION = "def f():\n" + "    x = 1\n" * 70
MACHINE_PATH = "/ho" + "me/me/file"
REGISTRY = "py" + "pi.org"
MARKER = "TO" + "DO"

BREACHES = [
    ("parses", PRODUCT, "x = 1\ndef f(:\n", 2),
    ("parses", PRODUCT, "type Json = str\n", 1),
    ("function_length", TEST, LONG_FUNCTION, 1),
    ("module_length", TEST, "x = 1\n" * 401, 400),
    ("docstrings", DOMAIN, "x = 1\n", 1),
    ("docstrings", DOMAIN, '"""Doc."""\nclass A:\n    pass\n', 2),
    ("docstrings", "om_core/services/x.py", '"""Doc."""\n\ndef f():\n    pass\n', 3),
    ("domain_imports", DOMAIN, "import re\nimport sqlalchemy as sa\n", 2),
    ("domain_imports", DOMAIN, "from om_core import ports\n", 1),
    ("domain_imports", DOMAIN, "from .. import ports\n", 1),
    ("pure_decisions", DOMAIN, "def plan_x(s):\n    s.execute()\n", 2),
    ("pure_decisions", DOMAIN, "def decide(s):\n    s.commit()\n", 2),
    ("lazy_litellm", PRODUCT, "import litellm\n", 1),
    ("lazy_litellm", PRODUCT, "try:\n    from litellm import completion\nexcept ImportError:\n    pass\n", 2),
    ("lazy_litellm", PRODUCT, "class A:\n    import litellm.exceptions\n", 2),
    ("sleep", PRODUCT, "import time\ntime.sleep(1)\n", 2),
    ("sleep", PRODUCT, "from time import sleep\n", 1),
    ("sleep", TEST, "import asyncio\nawait_ = asyncio.sleep(1)\n", 2),
    ("wall_clock", PRODUCT, "x = datetime.now(UTC)\n", 1),
    ("wall_clock", PRODUCT, "x = datetime.datetime.utcnow()\n", 1),
    ("wall_clock", PRODUCT, "x = field(default_factory=datetime.now)\n", 1),
    ("broad_except", PRODUCT, "try:\n    f()\nexcept Exception:\n    pass\n", 3),
    ("broad_except", PRODUCT, "try:\n    f()\nexcept:  # noqa: E722\n    pass\n", 3),
    ("broad_except", PRODUCT, "try:\n    f()\nexcept (ValueError, BaseException):\n    pass\n", 3),
    ("printing", PRODUCT, "print(1)\n", 1),
    ("random_numbers", PRODUCT, "import random\n", 1),
    ("random_numbers", PRODUCT, "from random import randint\n", 1),
    ("dangerous", TEST, "import pickle\n", 1),
    ("dangerous", PRODUCT, "x = eval('1')\n", 1),
    ("dangerous", PRODUCT, "run('ls', shell=True)\n", 1),
    ("skipped_tests", TEST, "import pytest\npytest.skip('no')\n", 2),
    ("skipped_tests", TEST, "@pytest.mark.xfail\ndef test():\n    pass\n", 1),
    ("type_ignores", PRODUCT, "x = 1  # type: ignore\n", 1),
    ("type_ignores", PRODUCT, "x = 1  # type: ignore[assignment]\n", 1),
    ("noqa_codes", PRODUCT, "x = 1  # noqa\n", 1),
    ("unfinished", PRODUCT, f"x = 1  # {MARKER} later\n", 1),
    ("unfinished", "README.md", f"one\n{MARKER}: two\n", 2),
    ("foreign_words", "README.md", f"see\n{MACHINE_PATH}\n", 2),
    ("foreign_words", "deploy/env", f"INDEX=https://{REGISTRY}/simple\n", 1),
]

COMPLIANT = [
    ("parses", PRODUCT, "def f(x: int) -> int:\n    return x\n"),
    ("function_length", PRODUCT, "def f():\n" + "    x = 1\n" * 69),
    ("module_length", "om_core/store/migrations/versions/0001.py", "x = 1\n" * 401),
    ("docstrings", DOMAIN, ""),
    ("docstrings", DOMAIN, '"""Doc."""\ndef _f():\n    pass\n'),
    ("docstrings", PRODUCT, "def f():\n    pass\n"),
    (
        "domain_imports",
        DOMAIN,
        "from om_core.domain import job\nfrom om_core.domain.job import Job\nfrom . import job\n",
    ),
    ("pure_decisions", DOMAIN, "def apply(s):\n    s.add(1)\ndef planet(s):\n    s.add(1)\n"),
    ("lazy_litellm", PRODUCT, "def f():\n    import litellm\nif TYPE_CHECKING:\n    import litellm\n"),
    ("sleep", "om_core/embedded/x.py", "time.sleep(1)\n"),
    ("sleep", TEST, "time.sleep(0.05)  # polls until the port is open\n"),
    ("wall_clock", "om_core/clock.py", "x = datetime.now(UTC)\n"),
    ("wall_clock", PRODUCT, "x = self.clock.now()\n"),
    ("broad_except", PRODUCT, "try:\n    f()\nexcept Exception:  # telemetry never breaks work\n    pass\n"),
    ("broad_except", PRODUCT, "try:\n    f()\nexcept BaseException:\n    close()\n    raise\n"),
    ("broad_except", PRODUCT, "try:\n    f()\nexcept ValueError:\n    pass\n"),
    ("printing", "api/cli/show.py", "print(1)\n"),
    ("random_numbers", PRODUCT, "import random  # jitter of the backoff\n"),
    ("dangerous", PRODUCT, "run(['ls'], shell=False)\nx.eval()\n"),
    ("dangerous", PRODUCT, 'exec("")\n'),
    ("skipped_tests", TEST, "x.skip(1)\n"),
    ("type_ignores", PRODUCT, "x = 1  # type: ignore[assignment]  # the stub is wrong\ny = '# type: ignore'\n"),
    ("noqa_codes", PRODUCT, "x = 1  # noqa: S310 - our own server\n"),
    ("unfinished", PRODUCT, f"x = '{MARKER}'\n"),
    ("foreign_words", "README.md", "see https://example.org" + MACHINE_PATH + " and ../shared/data\n"),
    ("foreign_words", "tests/golden/a.json", f'"{MACHINE_PATH}"\n'),
]


@pytest.mark.parametrize(("name", "path", "text", "line"), BREACHES)
def test_a_breach_is_found_at_its_line(name, path, text, line):
    findings = list(RULES[name](Source(path, text)))

    assert [(finding.path, finding.line) for finding in findings] == [(path, line)]
    assert str(findings[0]).startswith(f"{path}:{line}: ")


@pytest.mark.parametrize(("name", "path", "text"), COMPLIANT)
def test_what_keeps_the_rule_is_left_alone(name, path, text):
    assert list(RULES[name](Source(path, text))) == []


def test_each_rule_has_a_breach_and_a_compliant_sample():
    assert {row[0] for row in BREACHES} == {row[0] for row in COMPLIANT} == set(RULES)


AGREED = [
    "pyproject.toml",
    "om_core/a.py",
    "workers/a.py",
    "api/a.py",
    "deploy/a",
    "tests/a.py",
    "Makefile",
    "README.md",
]


@pytest.mark.parametrize(
    ("paths", "found"),
    [
        ([*AGREED, ".gitignore", ".ci/run", "LICENSE"], []),
        ([*AGREED, "docs/index.md"], ["docs/index.md"]),
        ([*AGREED, ".cache/x"], [".cache/x"]),
        ([*AGREED, "setup.py"], ["setup.py"]),
        (AGREED[1:], ["pyproject.toml"]),
    ],
)
def test_top_level(paths, found):
    assert [finding.path for finding in project_rules.top_level(paths)] == found


def test_binary_files_of_unknown_kind_are_found():
    findings = project_rules.vendored(["om_core/demo/session.jsonl.gz", "deploy/tool", "api/x.so"])

    assert [finding.path for finding in findings] == ["deploy/tool", "api/x.so"]


@pytest.mark.parametrize(
    ("section", "line", "found"),
    [
        ("tool.ruff.lint", 'ignore = [\n  "D1",\n]', 1),
        ("tool.ruff.lint", 'ignore = [\n  "D1",  # a reason\n]', 0),
        ("tool.ruff.lint", 'select = ["ALL"]', 0),
        ("tool.ruff.lint.per-file-ignores", '"tests/**" = [\n  "S101",\n]', 1),
        ("tool.ruff.lint.per-file-ignores", '"tests/**" = ["S101"]', 1),
        ("tool.pytest.ini_options", 'filterwarnings = [\n  "error",\n  "ignore:old:DeprecationWarning",\n]', 1),
        ("tool.pytest.ini_options", 'filterwarnings = [\n  "ignore:old:DeprecationWarning",  # celery 5.6\n]', 0),
    ],
)
def test_ignores_without_reason_are_found(section, line, found):
    assert len(list(project_rules.silent_ignores(f"[{section}]\n{line}\n"))) == found


PROJECT = '[project]\ndependencies = [\n  "redis>=6.4,<9",\n]\noptional-dependencies.dev = ["types-PyYAML"]\n'


@pytest.mark.parametrize(
    ("lock", "found"),
    [
        ("redis==8.1.0\ntypes-PyYAML==6.0.12\n", []),
        ("redis==8.1.0; sys_platform != 'win32'\ntypes_pyyaml==6.0.12\n", []),
        ("redis==9.0\ntypes-PyYAML==6.0.12\n", ["redis is locked at 9.0, outside <9,>=6.4"]),
        ("redis==8.1.0\n", ["types-PyYAML is not in requirements.lock"]),
    ],
)
def test_dependencies_outside_the_lock_are_found(lock, found):
    assert [finding.what for finding in project_rules.lock_covers(PROJECT, lock)] == found


@pytest.mark.parametrize("line", ["x @ file:///srv/x.whl", "--index-url y", "x>=1", "-e ."])
def test_lines_of_the_lock_without_an_exact_version_are_found(line):
    assert len(list(project_rules.lock_lines(f"# Header\na==1.0\n{line}\n"))) == 1


def test_a_changelog_without_unreleased_section_is_found():
    assert len(list(project_rules.changelog("# Changelog\n\n## [1.0.0]\n"))) == 1


def mark_of(path, *ids):
    names = ", ".join(f'"{name}"' for name in ids)
    return Source(path, f"import pytest\n\n@pytest.mark.report({names})\ndef test_x():\n    pass\n")


@pytest.mark.parametrize(
    ("path", "ids", "missing"),
    [
        (TEST, ["A01"], False),
        ("tests/fuzz/test_x.py", ["A01"], True),
        (TEST, ["A02"], True),
        ("workers/x.py", ["A01"], True),
    ],
)
def test_a_report_without_a_test_that_make_test_runs_is_found(path, ids, missing):
    found = [str(one) for one in reports.findings(reports.marked([mark_of(path, *ids)]), complete=frozenset("A"))]

    assert any("A01 (" in one for one in found) is missing


def test_a_mark_that_names_no_report_is_found_at_its_line():
    [found] = reports.findings(reports.marked([mark_of(TEST, "A99")]), complete=frozenset())

    assert (found.path, found.line) == (TEST, 3)


def test_a_reason_beside_a_test_and_a_pending_one_are_found(monkeypatch):
    monkeypatch.setattr(reports, "REASONS", {"A01": "there is none", "A02": f"{reports.PENDING}a feature"})
    found = [str(one) for one in reports.findings(reports.marked([mark_of(TEST, "A01")]), complete=frozenset("A"))]

    assert any("A01 has both" in one for one in found)
    assert any("A02 (" in one for one in found)


def shown(*sections):
    names = ", ".join(f'"{name}"' for name in sections)
    source = Source(TEST, f"import pytest\n\n@pytest.mark.conforms({names})\ndef test_x():\n    pass\n")
    return [str(one) for one in conformance.findings(reports.marked([source], mark=conformance.MARK))]


def test_a_section_without_a_test_and_one_that_does_not_exist_are_found():
    found = shown("4.8", "4.88")

    assert any("there is no section 4.88" in one for one in found)
    assert any("4.7 (" in one for one in found)
    assert not any("4.8 (" in one for one in found)


def test_a_reason_of_a_section_that_has_a_test_is_found(monkeypatch):
    monkeypatch.setattr(conformance, "REASONS", {"4.8": f"{reports.PENDING}a feature"})

    assert any("4.8 has both" in one for one in shown("4.8"))
