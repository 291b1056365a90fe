"""Acceptance tests run whole processes on real servers."""

from __future__ import annotations

from tests.support.brokers import redis_url
from tests.support.fixtures import database_url, servers
from tests.support.services import scripted, settings

__all__ = ["database_url", "redis_url", "scripted", "servers", "settings"]
