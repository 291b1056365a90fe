"""Structured logs: events with fields, bound once per job (job, kind, thread, attempt), never content.

A library stays quiet: without `configure_logging` records go to the standard library's loggers under `om`, so the
application decides. The services' own processes call `configure_logging` at start.
"""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING, Any

import structlog

if TYPE_CHECKING:
    from structlog.typing import Processor

_SHARED: list[Processor] = [
    structlog.contextvars.merge_contextvars,
    structlog.stdlib.add_log_level,
    structlog.stdlib.add_logger_name,
    structlog.processors.TimeStamper(fmt="iso", utc=True),
    structlog.processors.format_exc_info,
]


def get_logger(name: str) -> Any:
    """A logger whose records carry fields; it renders through the standard library's logger of that name."""
    return structlog.wrap_logger(
        logging.getLogger(name),
        wrapper_class=structlog.stdlib.BoundLogger,
        processors=[
            structlog.stdlib.filter_by_level,
            *_SHARED,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
    )


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
    handler.set_name("om")
    root = logging.getLogger()
    root.handlers = [kept for kept in root.handlers if kept.get_name() != "om"] + [handler]
    root.setLevel(level.upper())
