"""Running the command line: exit codes, one clear line per error, no traceback unless OM_LOG_LEVEL is `debug`."""

from __future__ import annotations

import os
import sys
import traceback
from typing import TYPE_CHECKING, Final

import typer
from typer.exceptions import TyperException

from om_core.domain.errors import InvalidInputError, OmError, PolicyError, SetupError

if TYPE_CHECKING:
    from collections.abc import Sequence

DONE: Final = 0
FAILED: Final = 1
USAGE: Final = 2
"""Wrong usage, or a setting is missing."""
INTERRUPTED: Final = 130


def run(arguments: Sequence[str]) -> int:
    """Run one command; its exit code."""
    try:
        return _flushed(_invoke(arguments))
    except BrokenPipeError:  # the reader has seen enough: `om threads | head`
        _discard_stdout()
        return DONE
    except (KeyboardInterrupt, typer.Abort):
        return _flushed(_interrupted())
    except typer.Exit as exit_:
        return _flushed(exit_.exit_code)
    except TyperException as error:
        return _usage(error)
    except Exception as error:  # the last resort of a command line: one line instead of a traceback
        return _report(error)


def _invoke(arguments: Sequence[str]) -> int:
    from api.cli.app import app

    command = typer.main.get_command(app)
    # Typer's own main would turn a closed pipe into exit code 1.
    with command.make_context("om", list(arguments)) as context:
        result = command.invoke(context)
    return result if isinstance(result, int) else DONE


def _interrupted() -> int:
    """The exit code of Ctrl-C, whatever was running when it came.

    CPython notes an interrupt that leaves `exec` of a text (the import of a dataclass is one) as unhandled, and at its
    end dies by SIGINT although it was caught here. The next `exec` takes the note back.
    """
    exec("")  # noqa: S102 - for its effect on the interpreter, see above
    return INTERRUPTED


def _flushed(code: int) -> int:
    """The code, once everything printed is out: a pipe that is closed by then shows up here, not at exit."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        _discard_stdout()
    return code


def _discard_stdout() -> None:
    """Let the interpreter flush into nothing when it exits."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _usage(error: TyperException) -> int:
    print(f"error: {error.format_message()}", file=sys.stderr)
    context = getattr(error, "ctx", None)
    if context is not None:
        print(f"Try: {context.command_path} --help", file=sys.stderr)
    return int(error.exit_code)


def _report(error: Exception) -> int:
    if os.environ.get("OM_LOG_LEVEL", "").lower() == "debug":
        traceback.print_exception(error)
    print(f"error: {_text(error)}", file=sys.stderr)
    return exit_code(error)


def exit_code(error: Exception) -> int:
    """2 for what the caller has to put right before it can work at all, else 1."""
    return USAGE if isinstance(error, SetupError | InvalidInputError | PolicyError) or _no_servers(error) else FAILED


def _no_servers(error: Exception) -> bool:
    """Whether embedded servers cannot run here; their package is imported only by commands that use them."""
    module = sys.modules.get("om_core.embedded")
    return module is not None and isinstance(error, module.EmbeddedUnavailable)


def _text(error: Exception) -> str:
    if isinstance(error, OmError) or _no_servers(error):
        return str(error)
    if type(error).__module__.startswith("sqlalchemy"):
        cause = " ".join(str(getattr(error, "orig", None) or error).split())
        return f"the database: {cause}. Check OM_DATABASE_URL with `om doctor`"
    if isinstance(error, OSError | TimeoutError) and str(error):
        return str(error)
    return f"{type(error).__name__}: {error} (OM_LOG_LEVEL=debug shows where)"
