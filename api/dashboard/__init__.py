"""The dashboard: pages made on the server, one style sheet and one small script of our own, nothing from elsewhere."""

from __future__ import annotations

from api.dashboard.login import router as login
from api.dashboard.pages import router
from api.dashboard.serving import static_files

__all__ = ["login", "router", "static_files"]
