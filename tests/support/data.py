"""Where the real conversations lie."""

from __future__ import annotations

import os
from pathlib import Path

from tests.support.processes import ROOT


def data_folder() -> Path:
    """OM_TEST_DATA, or ../shared/data beside the checkout; it may be missing."""
    return Path(os.environ.get("OM_TEST_DATA") or ROOT.parent / "shared" / "data")
