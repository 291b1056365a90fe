"""Structured logs: events with fields, bound once per job (job, kind, thread, attempt, cycle), never content.

A library stays quiet: without `configure_logging` records go to the standard library's loggers under `om`, so the
application decides. The services' own processes call `configure_logging` at start.
"""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING, Any

import structlog

from om_core.domain.errors import OmError

if TYPE_CHECKING:
    from structlog.typing import EventDict, Processor

HANDLER = "om"
"""Name of the handler that `configure_logging` installs."""
ERROR_LIMIT = 500
"""Characters of an error's text in a log line."""

_SHARED: list[Processor] = [
    structlog.contextvars.merge_contextvars,
    structlog.stdlib.add_log_level,
    structlog.stdlib.add_logger_name,
    structlog.processors.TimeStamper(fmt="iso", utc=True),
    structlog.processors.format_exc_info,
]


_PLAIN = structlog.processors.KeyValueRenderer(key_order=["event"], drop_missing=True)


def _hand_over(logger: Any, method: str, event: EventDict) -> Any:
    """To our own formatter if there is one, else as one line of text for the application's."""
    if any(handler.get_name() == HANDLER for handler in logging.getLogger().handlers):
        return structlog.stdlib.ProcessorFormatter.wrap_for_formatter(logger, method, event)
    text = {key: value for key, value in event.items() if key not in {"level", "logger", "timestamp"}}
    return _PLAIN(logger, method, text)


def get_logger(name: str) -> Any:
    """A logger whose records carry fields; it renders through the standard library's logger of that name."""
    return structlog.wrap_logger(
        logging.getLogger(name),
        wrapper_class=structlog.stdlib.BoundLogger,
        processors=[
            structlog.stdlib.filter_by_level,
            *_SHARED,
            _hand_over,
        ],
    )


def described(error: BaseException) -> dict[str, str]:
    """An error as log fields, without content: of our own errors the text, or `log_text` where they have one.

    The text of others may hold what was being worked on (a driver quotes parameters, a parser its input), so of those
    the class is named, with the SQLSTATE where there is one, and what a server that is away looks like from here.
    """
    fields = {"error_type": type(error).__name__}
    if isinstance(error, OmError):
        return {**fields, "error": (error.log_text or str(error))[:ERROR_LIMIT]}
    origin = getattr(error, "orig", None) or error
    if state := getattr(origin, "pgcode", None):
        return {**fields, "sqlstate": str(state)}
    if isinstance(origin, OSError) or type(origin).__name__ == "OperationalError":  # of the connection, not of data
        return {**fields, "error": (str(origin).strip().splitlines() or [""])[0][:ERROR_LIMIT]}
    return fields


def configure_logging(level: str = "info", format: str = "console") -> None:
    """Send this process's logs to stderr, as JSON lines or for people; replaces earlier handlers of ours.

    Args:
        level: debug, info, warning, error or critical.
        format: `json` or `console`.
    """
    renderer: Processor = (
        structlog.processors.JSONRenderer(ensure_ascii=False)
        if format == "json"
        else structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())
    )
    formatter = structlog.stdlib.ProcessorFormatter(
        processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, renderer],
        foreign_pre_chain=_SHARED,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter)
    handler.set_name(HANDLER)
    root = logging.getLogger()
    root.handlers = [kept for kept in root.handlers if kept.get_name() != HANDLER] + [handler]
    root.setLevel(level.upper())
