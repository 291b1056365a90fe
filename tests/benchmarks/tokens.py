"""How fast tokens are counted, on a real conversation: every append counts its messages once."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from statistics import median
from typing import Any

from om_core.demo import open_session
from om_core.tokens import TiktokenCounter
from tests.benchmarks.stage import Effort

SECONDS = 1.0
"""Least length of one run."""


def tokens_mb_per_s(effort: Effort) -> tuple[float, dict[str, Any]]:
    """Megabytes of UTF-8 per second through `count_text`, one text of the demo conversation after another."""
    texts = [text for line in open_session() for text in _texts(json.loads(line).get("message"))]
    size = sum(len(text.encode("utf-8", "surrogatepass")) for text in texts)
    counter = TiktokenCounter()
    tokens = sum(map(counter.count_text, texts))
    runs = []
    for _ in range(effort.runs):
        rounds, started = 0, time.perf_counter()
        while time.perf_counter() - started < SECONDS:
            for text in texts:
                counter.count_text(text)
            rounds += 1
        runs.append(rounds * size / 1e6 / (time.perf_counter() - started))
    return median(runs), {"runs": runs, "bytes": size, "tokens": tokens, "texts": len(texts)}


def _texts(value: Any) -> Iterator[str]:
    """Every text that a message holds as its content, wherever it stands; not roles, ids and other short marks."""
    if isinstance(value, dict):
        for key, item in value.items():
            if key in {"content", "text", "input", "thinking", "message"} or not isinstance(item, str):
                yield from _texts(item)
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item)
    elif isinstance(value, str) and value:
        yield value
