"""A real Chromium, headless, driven by Playwright; the browser is the system's, the package brings none."""

from __future__ import annotations

import os
import shutil
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser

NAMES = ("chromium", "chromium-browser", "google-chrome")
ARGUMENTS = ("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync")
PICTURES = Path(__file__).resolve().parents[2] / ".om" / "test-artefacts"
"""Screenshots of the last run, to be looked at."""


@contextmanager
def chromium() -> Iterator[Browser]:
    """The browser; the test is skipped without one, and fails in CI."""
    found = next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        message = f"no Chromium on this machine: install one of {', '.join(NAMES)}"
        if os.environ.get("CI", "").lower() in {"1", "true"}:
            pytest.fail(message, pytrace=False)
        pytest.skip(message)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=list(ARGUMENTS))
        try:
            yield browser
        finally:
            browser.close()


def picture(name: str) -> Path:
    """Where a screenshot goes."""
    PICTURES.mkdir(parents=True, exist_ok=True)
    return PICTURES / f"{name}.png"
