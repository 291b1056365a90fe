"""Faults are the fuzz's business: what the product logs about them is not shown."""

from __future__ import annotations

import logging

import structlog


def silence() -> None:
    """No log lines from here on, in this process."""
    logging.disable(logging.CRITICAL)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
