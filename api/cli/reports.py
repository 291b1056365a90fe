"""Machine-readable reports: one JSON document each, under `reports` of the data folder (API 1)."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path


def write_report(home: Path, name: str, report: Any) -> Path:
    """Write `reports/NAME.json` so that a reader sees the old document or the new one, never half of one."""
    folder = home / "reports"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.json"
    draft = folder / f".{name}.{os.getpid()}"
    draft.write_text(json.dumps(report, ensure_ascii=False, indent=2) + "\n", encoding="utf-8")
    draft.replace(path)
    return path
