"""Rules about comments and words, for Python and all other text files."""

import re
from collections.abc import Iterator

from tests.tidy import allowed
from tests.tidy.sources import Finding, Source

BARE_NOQA = re.compile(r"#\s*noqa\b(?!:\s*[A-Z]+[0-9]+)", re.IGNORECASE)
TYPE_IGNORE = re.compile(r"#\s*type:\s*ignore")
GOOD_TYPE_IGNORE = re.compile(r"#\s*type:\s*ignore\[[a-z0-9, -]+\]\s+#\s*\S{3,}")
MARKERS = re.compile(r"\b(TODO|FIXME|XXX)\b")

# The forbidden words are put together here, so that this file does not contain them.
MACHINE_PATH = re.compile(r"(?<![\w.~}>-])/(" + "|".join(("wo" + "rk", "ro" + "ot", "ho" + "me")) + r")/")
REGISTRIES = [
    ".".join(parts)
    for parts in (
        ("pypi", "org"),
        ("pythonhosted", "org"),
        ("npmjs", "org"),
        ("npmjs", "com"),
        ("yarnpkg", "com"),
        ("deb", "debian", "org"),
        ("security", "debian", "org"),
        ("archive", "ubuntu", "com"),
        ("anaconda", "org"),
        ("proxy", "golang", "org"),
        ("rubygems", "org"),
        ("crates", "io"),
        ("docker", "io"),
        ("ghcr", "io"),
        ("gcr", "io"),
        ("quay", "io"),
    )
]
REGISTRY = re.compile(r"\b(" + "|".join(re.escape(host) for host in REGISTRIES) + r")\b", re.IGNORECASE)


def type_ignores(source: Source) -> Iterator[Finding]:
    """An ignored type error names its code and its reason."""
    for line, comment in source.comments.items() if source.is_python else ():
        if TYPE_IGNORE.search(comment) and not GOOD_TYPE_IGNORE.search(comment):
            fix = "Write `type: ignore[code]  # reason`"
            yield Finding(source.path, line, "a type error is ignored without code and reason", fix)


def noqa_codes(source: Source) -> Iterator[Finding]:
    """A silenced lint rule is named."""
    for line, comment in source.comments.items() if source.is_python else ():
        if BARE_NOQA.search(comment):
            yield Finding(
                source.path, line, "all lint rules are silenced", "Name the rule, as in `noqa: S310 - reason`"
            )


def unfinished(source: Source) -> Iterator[Finding]:
    """What is unfinished is finished or filed, not marked."""
    if allowed.is_allowed(source.path, allowed.QUOTED_TEXT | allowed.SKIP_OR_TODO):
        return
    texts = source.comments.items() if source.is_python else enumerate(source.lines, 1)
    for line, text in texts:
        if match := MARKERS.search(text):
            fix = "Finish it, or add the file with a reason to SKIP_OR_TODO in tests/tidy/allowed.py"
            yield Finding(source.path, line, f"{match[0]} is left in the text", fix)


def foreign_words(source: Source) -> Iterator[Finding]:
    """Nothing names the machine it was written on, or a host that serves packages."""
    if allowed.is_allowed(source.path, allowed.QUOTED_TEXT):
        return
    for line, text in enumerate(source.lines, 1):
        if match := MACHINE_PATH.search(text):
            yield Finding(
                source.path, line, f"{match[0]} is a path of one machine", "Use a relative path, /srv or /app"
            )
        if match := REGISTRY.search(text):
            fix = "Name the package only; the reader's tools know their registry"
            yield Finding(source.path, line, f"{match[0]} is a package registry", fix)


RULES = [
    type_ignores,
    noqa_codes,
    unfinished,
    foreign_words,
]
