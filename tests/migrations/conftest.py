"""Migration tests run on real servers."""

from __future__ import annotations

from tests.support.fixtures import database_url, servers, store  # noqa: F401 - fixtures
