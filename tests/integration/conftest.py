"""Fixtures of integration tests: real servers, and services over a fresh database."""

from __future__ import annotations

from tests.support.servers import database_url, databases, module_database_url, redis_url, servers
from tests.support.services import memory, scripted, scripted_services, services, settings, store

__all__ = [
    "database_url",
    "databases",
    "memory",
    "module_database_url",
    "redis_url",
    "scripted",
    "scripted_services",
    "servers",
    "services",
    "settings",
    "store",
]
