"""Rules about what code may call, read from the syntax tree."""

import ast
from collections.abc import Iterator

from tests.tidy import allowed
from tests.tidy.shape_rules import imports
from tests.tidy.sources import Finding, Source

WALL_CLOCK = {"datetime.now", "datetime.utcnow", "datetime.today", "date.today"}
SKIPS = {"skip", "skipif", "xfail", "importorskip"}
SERIALISERS = {"pickle", "cPickle", "dill", "marshal", "shelve"}


def _dotted(node: ast.AST) -> str:
    """The last two names of `a.b.c`, where all parts are plain names."""
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name | ast.Attribute):
        owner = node.value.id if isinstance(node.value, ast.Name) else node.value.attr
        return f"{owner}.{node.attr}"
    return ""


def _uses(source: Source, names: set[str]) -> Iterator[tuple[int, str]]:
    """Lines where an attribute of one of these names is used, or imported from its module."""
    for node in source.nodes:
        if isinstance(node, ast.Attribute) and _dotted(node) in names:
            yield node.lineno, _dotted(node)
        elif isinstance(node, ast.ImportFrom):
            full = (f"{node.module}.{alias.name}" for alias in node.names)
            yield from ((node.lineno, name) for name in full if name in names)


def sleep(source: Source) -> Iterator[Finding]:
    """Waiting is done on events; a test may poll when its line says for what."""
    if source.is_product and not allowed.is_allowed(source.path, allowed.SLEEP):
        for line, name in _uses(source, {"time.sleep"}):
            yield Finding(source.path, line, f"{name} is used", "Wait on an event or a condition with a timeout")
    elif source.is_python and source.path.startswith("tests/"):
        for line, name in _uses(source, {"time.sleep", "asyncio.sleep"}):
            if not source.has_reason(line):
                fix = "Wait on a condition with a deadline; on the polling line, say in a comment what is polled"
                yield Finding(source.path, line, f"{name} is used to wait", fix)


def wall_clock(source: Source) -> Iterator[Finding]:
    """The time of day comes from the Clock port."""
    if source.is_product and not allowed.is_allowed(source.path, allowed.WALL_CLOCK):
        for line, name in _uses(source, WALL_CLOCK):
            yield Finding(
                source.path, line, f"{name} reads the wall clock", "Take `now` as an argument, or use the Clock port"
            )


def broad_except(source: Source) -> Iterator[Finding]:
    """Who catches everything, and does not raise it again, says why on the line."""
    if not source.is_product:
        return
    for node in source.nodes:
        if not isinstance(node, ast.ExceptHandler):
            continue
        kinds = node.type.elts if isinstance(node.type, ast.Tuple) else [node.type]
        broad = [kind for kind in kinds if kind is None or ast.unparse(kind) in {"Exception", "BaseException"}]
        raises_again = isinstance(node.body[-1], ast.Raise) and node.body[-1].exc is None
        if broad and not raises_again and not source.has_reason(node.lineno):
            fix = "Name the exceptions, or say why in a comment on the line"
            yield Finding(source.path, node.lineno, "everything is caught without a reason", fix)


def printing(source: Source) -> Iterator[Finding]:
    """Only the command line prints."""
    if source.is_product and not allowed.is_allowed(source.path, allowed.PRINT):
        for node in source.nodes:
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print":
                yield Finding(
                    source.path, node.lineno, "print is called", "Log an event, or return the text to api/cli"
                )


def random_numbers(source: Source) -> Iterator[Finding]:
    """Ids come from the Ids port; other uses of random are named where it is imported."""
    if source.is_product:
        for line, name in imports(source.nodes):
            if name.partition(".")[0] == "random" and not source.has_reason(line):
                fix = "Take ids from the Ids port; for jitter, say so in a comment on the line"
                yield Finding(source.path, line, "random is imported without a reason", fix)


def _runs_nothing(call: ast.Call) -> bool:
    return [ast.unparse(argument) for argument in call.args] == ["''"]


def dangerous(source: Source) -> Iterator[Finding]:
    """No code is made from data."""
    if not source.is_python:
        return
    for line, name in imports(source.nodes):
        if name.partition(".")[0] in SERIALISERS:
            yield Finding(source.path, line, f"{name} can run code while loading", "Use JSON")
    for node in source.nodes:
        if not isinstance(node, ast.Call):
            continue
        if isinstance(node.func, ast.Name) and node.func.id in {"eval", "exec"} and not _runs_nothing(node):
            yield Finding(
                source.path, node.lineno, f"{node.func.id} is called", "Parse the data, or look the function up"
            )
        for keyword in node.keywords:
            if keyword.arg == "shell" and not (
                isinstance(keyword.value, ast.Constant) and keyword.value.value is False
            ):
                yield Finding(
                    source.path, node.lineno, "a shell is started", "Give the program and its arguments as a list"
                )


def skipped_tests(source: Source) -> Iterator[Finding]:
    """A test that is skipped or expected to fail is listed with its reason."""
    if not source.is_python or allowed.is_allowed(source.path, allowed.SKIP_OR_TODO):
        return
    for node in source.nodes:
        if (
            isinstance(node, ast.Attribute)
            and node.attr in SKIPS
            and _dotted(node).partition(".")[0] in {"pytest", "mark"}
        ):
            fix = "Make the test run, or add the file with a reason to SKIP_OR_TODO in tests/tidy/allowed.py"
            yield Finding(source.path, node.lineno, f"a test is switched off by {node.attr}", fix)


RULES = [
    sleep,
    wall_clock,
    broad_except,
    printing,
    random_numbers,
    dangerous,
    skipped_tests,
]
