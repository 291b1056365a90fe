"""Fixtures of integration tests: real servers, and services over a fresh database."""

from __future__ import annotations

from tests.support.brokers import redis_url
from tests.support.fixtures import database_url, memory, servers, services, services_with, store
from tests.support.services import scripted, settings

__all__ = [
    "database_url",
    "memory",
    "redis_url",
    "scripted",
    "servers",
    "services",
    "services_with",
    "settings",
    "store",
]
