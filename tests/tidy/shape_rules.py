"""Rules about size, documentation, layering and decisions, read from the syntax tree."""

import ast
import re
import sys
from collections.abc import Iterable, Iterator

from tests.tidy import allowed
from tests.tidy.sources import Finding, Source

FUNCTION_CAP = 70
MODULE_CAP = 400
DOCUMENTED = ("om_core/domain/", "om_core/services/")
DOMAIN = "om_core/domain/"
DECISION = re.compile(r"(should|plan|decide)(_|$)")
WRITES = {"execute", "commit", "add", "insert"}


def parses(source: Source) -> Iterator[Finding]:
    """Python files parse with the oldest supported version."""
    if not source.is_python:
        return
    try:
        ast.parse(source.text, feature_version=(3, 11))
    except SyntaxError as error:
        yield Finding(
            source.path, error.lineno or 1, f"does not parse as Python 3.11: {error.msg}", "Correct the syntax"
        )


def function_length(source: Source) -> Iterator[Finding]:
    """Functions aim for 30 lines and end at the cap."""
    for node in source.functions():
        length = (node.end_lineno or node.lineno) - node.lineno + 1
        if length > FUNCTION_CAP:
            what = f"{node.name} has {length} lines, the cap is {FUNCTION_CAP}"
            yield Finding(source.path, node.lineno, what, "Move the parts with a name of their own into functions")


def module_length(source: Source) -> Iterator[Finding]:
    """Modules aim for 150 lines and end at the cap."""
    if source.is_python and len(source.lines) > MODULE_CAP and not allowed.is_allowed(source.path, allowed.LONG_MODULE):
        what = f"{len(source.lines)} lines, the cap is {MODULE_CAP}"
        yield Finding(source.path, MODULE_CAP, what, "Split it by responsibility")


def docstrings(source: Source) -> Iterator[Finding]:
    """What is public in domain and services says what it is for."""
    if not (source.is_python and source.path.startswith(DOCUMENTED) and source.tree.body):
        return
    if ast.get_docstring(source.tree) is None:
        yield Finding(source.path, 1, "the module has no docstring", "Say what it owns and what it must not do")
    for node in source.tree.body:
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) or node.name.startswith("_"):
            continue
        overloaded = any(ast.unparse(decorator).endswith("overload") for decorator in node.decorator_list)
        if ast.get_docstring(node) is None and not overloaded:
            yield Finding(
                source.path, node.lineno, f"{node.name} has no docstring", "Say what it is for in one sentence"
            )


def domain_imports(source: Source) -> Iterator[Finding]:
    """The domain imports the standard library and itself."""
    if not (source.is_python and source.path.startswith(DOMAIN)):
        return
    for line, name in imports(source.nodes):
        own = f"{name}.".startswith("om_core.domain.")
        if not own and name.partition(".")[0] not in sys.stdlib_module_names:
            yield Finding(source.path, line, f"the domain imports {name}", "Pass the value in, or define a port")


def imports(nodes: Iterable[ast.AST]) -> Iterator[tuple[int, str]]:
    """Line and full name of each imported module; a sibling imported by a dot is left out."""
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module == "om_core" and not node.level:
            yield from ((node.lineno, f"om_core.{alias.name}") for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level != 1:
            yield node.lineno, "." * node.level + (node.module or "")


def pure_decisions(source: Source) -> Iterator[Finding]:
    """A function of the domain that decides does not write."""
    if not source.path.startswith(DOMAIN):
        return
    for function in source.functions():
        if not DECISION.match(function.name):
            continue
        for node in ast.walk(function):
            if isinstance(node, ast.Call) and _last_name(node.func) in WRITES:
                what = f"{function.name} decides, and calls {_last_name(node.func)}"
                yield Finding(source.path, node.lineno, what, "Return the decision, and let a service carry it out")


def _last_name(node: ast.expr) -> str:
    return ast.unparse(node).rpartition(".")[2]


def lazy_litellm(source: Source) -> Iterator[Finding]:
    """LiteLLM takes seconds to import, so it is imported inside the function that calls it."""
    for line, name in imports(_run_at_import(source.tree)):
        if name.partition(".")[0] == "litellm":
            what = "LiteLLM is imported when the module is loaded"
            yield Finding(source.path, line, what, "Import it inside the function that calls it")


def _run_at_import(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
        return
    if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
        return
    yield node
    for child in ast.iter_child_nodes(node):
        yield from _run_at_import(child)


RULES = [
    parses,
    function_length,
    module_length,
    docstrings,
    domain_imports,
    pure_decisions,
    lazy_litellm,
]
