"""Rules about the project as a whole: its top level, its settings, its lock file, its changelog."""

import re
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import PurePosixPath

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.tidy import allowed
from tests.tidy.sources import Finding

LOCKED = re.compile(r"([A-Za-z0-9._-]+)==([A-Za-z0-9.!+_-]+)(; .+)?")


def top_level(paths: Iterable[str]) -> Iterator[Finding]:
    """The top level holds exactly the agreed entries; dotfiles may stand beside them."""
    entries = {PurePosixPath(path).parts[0]: path for path in paths}
    folders = {PurePosixPath(path).parts[0] for path in paths if "/" in path}
    for entry, path in sorted(entries.items()):
        dotfile = entry.startswith(".") and entry not in folders
        if not dotfile and entry not in allowed.TOP_LEVEL | allowed.TOP_LEVEL_OPTIONAL:
            yield Finding(path, 1, f"{entry} is not part of the agreed top level", "Move it into one of its folders")
    for entry in sorted(allowed.TOP_LEVEL.keys() - entries):
        yield Finding(entry, 1, "it belongs to the agreed top level and is missing", "Add it")


def vendored(binaries: Iterable[str]) -> Iterator[Finding]:
    """Binary files are data and pictures, never programs."""
    for path in binaries:
        if PurePosixPath(path).suffix not in allowed.BINARY_SUFFIXES:
            yield Finding(path, 1, "a binary file of an unknown kind", "Install it from a package instead")


def silent_ignores(pyproject: str) -> Iterator[Finding]:
    """Each ignored lint rule and each ignored warning carries its reason on the line."""
    section = key = ""
    for number, line in enumerate(pyproject.splitlines(), 1):
        if header := re.match(r"\[([^\[\]]+)\]", line):
            section, key = header[1], ""
        elif opened := re.match(r'"?([^"=\s]+)"?\s*=', line):
            key = opened[1]
        code = re.search(r'"(ignore:[^"]+|[A-Z]+[0-9]*)"', line)
        if code and _ignores(section, key) and not re.search(r"#.*\w{3}", line[code.end() :]):
            what = f"{code[1]} is ignored without a reason"
            yield Finding("pyproject.toml", number, what, "Say why in a comment on the line")


def _ignores(section: str, key: str) -> bool:
    if section == "tool.ruff.lint":
        return key in {"ignore", "extend-ignore"}
    return section == "tool.ruff.lint.per-file-ignores" or key == "filterwarnings"


def lock_lines(lock: str) -> Iterator[Finding]:
    """The lock holds exact versions and nothing of the machine that made it."""
    for number, line in enumerate(lock.splitlines(), 1):
        if line and not line.startswith("#") and not LOCKED.fullmatch(line):
            yield Finding("requirements.lock", number, f"`{line}` is no exact version", "Run make lock")


def lock_covers(pyproject: str, lock: str) -> Iterator[Finding]:
    """The lock has each dependency, in its range."""
    versions = {canonicalize_name(match[1]): match[2] for match in map(LOCKED.fullmatch, lock.splitlines()) if match}
    project = tomllib.loads(pyproject)["project"]
    groups = [project.get("dependencies", []), *project.get("optional-dependencies", {}).values()]
    for text in (text for group in groups for text in group):
        wanted = Requirement(text)
        number = next((n for n, line in enumerate(pyproject.splitlines(), 1) if f'"{text}"' in line), 1)
        version = versions.get(canonicalize_name(wanted.name))
        if version is None:
            yield Finding("pyproject.toml", number, f"{wanted.name} is not in requirements.lock", "Run make lock")
        elif not wanted.specifier.contains(version, prereleases=True):
            what = f"{wanted.name} is locked at {version}, outside {wanted.specifier}"
            yield Finding("pyproject.toml", number, what, "Run make lock")


def changelog(text: str) -> Iterator[Finding]:
    """What changes for users is written down as it is made."""
    if not re.search(r"^## \[Unreleased\]$", text, re.MULTILINE):
        yield Finding(
            "CHANGELOG.md", 1, "there is no Unreleased section", "Add `## [Unreleased]` above the newest version"
        )
