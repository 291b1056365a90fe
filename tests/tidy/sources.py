"""The files of the project, and what a rule says about them."""

import ast
import io
import re
import subprocess
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
PRODUCT = ("om_core/", "workers/", "api/")
NOT_A_REASON = re.compile(
    r"noqa(:\s*[A-Z]+\d+(,\s*[A-Z]+\d+)*)?|type:\s*ignore(\[[^\]]*\])?|pragma:\s*no cover|fmt:\s*\w+"
)


@dataclass(frozen=True, slots=True)
class Finding:
    """One breach of a rule: where, what, and what to do about it."""

    path: str
    line: int
    what: str
    fix: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.what}. {self.fix}."


class Source:
    """One text file; Python files also have a syntax tree and comments by line."""

    def __init__(self, path: str, text: str) -> None:
        self.path = path
        self.text = text
        self.lines = text.splitlines()

    @property
    def is_python(self) -> bool:
        return self.path.endswith(".py")

    @property
    def is_product(self) -> bool:
        return self.is_python and self.path.startswith(PRODUCT)

    @cached_property
    def tree(self) -> ast.Module:
        """The syntax tree; empty while the file does not parse, which rule `parses` reports."""
        try:
            return ast.parse(self.text)
        except SyntaxError:
            return ast.Module(body=[], type_ignores=[])

    @cached_property
    def nodes(self) -> list[ast.AST]:
        return list(ast.walk(self.tree))

    @cached_property
    def comments(self) -> dict[int, str]:
        found: dict[int, str] = {}
        try:
            for token in tokenize.generate_tokens(io.StringIO(self.text).readline):
                if token.type == tokenize.COMMENT:
                    found[token.start[0]] = token.string
        except (tokenize.TokenError, SyntaxError):
            pass  # rule `parses` reports the file
        return found

    def has_reason(self, line: int) -> bool:
        """Tell whether the line's comment has words besides directives for tools."""
        words = NOT_A_REASON.sub("", self.comments.get(line, ""))
        return re.search(r"[A-Za-z]{3,}", words) is not None

    def functions(self) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
        for node in self.nodes:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield node


@cache
def project_files() -> tuple[str, ...]:
    """Paths of the files git knows or would add; without git, of all files that are not hidden."""
    if (ROOT / ".git").exists():
        command = ["git", "-c", "safe.directory=*", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.split("\0")
    else:
        listed = [path.relative_to(ROOT).as_posix() for path in ROOT.rglob("[!.]*")]
        listed = [path for path in listed if "__pycache__" not in path and not path.startswith(".")]
    return tuple(sorted({path for path in listed if path and (ROOT / path).is_file()}))


@cache
def project_sources() -> tuple[Source, ...]:
    """All text files of the project."""
    contents = ((path, (ROOT / path).read_bytes()) for path in project_files())
    return tuple(Source(path, content.decode("utf-8", "replace")) for path, content in contents if b"\0" not in content)


def binary_files() -> list[str]:
    """All files of the project that are not text."""
    texts = {source.path for source in project_sources()}
    return [path for path in project_files() if path not in texts]
