"""A dialogue through the real pipeline with the offline model: its notes, and what of its prompts stays cacheable."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from om_core.demo.score import CacheMeter
from om_core.domain.message import JsonObject, Role
from om_core.memory import Memory
from om_core.prompts.notes import note_lines
from om_core.services.coverage import check_coverage
from om_core.transcripts import steps
from tests.quality.baselines import COUNTER, count
from tests.quality.dialogues import Dialogue
from tests.support.jobs import work_off

CHUNK_TOKENS = 6_000
"""Tokens of messages that one observation reads: the default, a fifth of 30,000, kept although dialogues are shorter."""


@dataclass(frozen=True)
class Observed:
    """The notes of a thread. Each chunk: the ids of its first and last message, and its text."""

    chunks: tuple[tuple[str, str, str], ...]
    cacheable_share: float

    @property
    def tokens(self) -> int:
        """Of all notes with their dates and marks, as the log holds them."""
        return sum(COUNTER.count_text(text) for _, _, text in self.chunks)

    def lines(self) -> list[str]:
        """The notes as the log holds them, each behind the header of its day."""
        found: list[str] = []
        for _, _, text in self.chunks:
            day = ""
            for line in text.split("\n"):
                if line.startswith("* "):
                    found.append(f"{day}\n{line}")
                elif not line.startswith(" "):
                    day = line
        return found

    def notes(self) -> list[str]:
        """The notes as the measure reads them: each with its details and its date."""
        found: list[str] = []
        for _, _, text in self.chunks:
            for note in note_lines(text):
                if note.depth and found:
                    found[-1] += f" {note.line()}"
                else:
                    day = f"{note.date.day} {note.date:%B}, {note.date.year}" if note.date else ""
                    found.append(f"{day} {note.line()}")
        return found


def options(compression: float) -> dict[str, Any]:
    """Small chunks, no reflection, and notes of the wanted size."""
    return {
        "model": "offline/extractive",
        "observation": {
            "message_tokens": 2 * CHUNK_TOKENS,
            "buffer_tokens": CHUNK_TOKENS,
            "provider_options": {"offline": {"compression": compression}},
        },
        "reflection": {"observation_tokens": 1_000_000},
    }


def observe(
    memory: Memory, dialogue: Dialogue, *, thread: str, advance: Callable[[int], None] = lambda messages: None
) -> Observed:
    """Replay a dialogue into a thread of its own: jobs are run as they come due, a context is asked for at each turn.

    Args:
        memory: with the `options` of the wanted compression.
        dialogue: what is replayed.
        thread: a new one.
        advance: told how many messages a step had.

    Raises:
        AssertionError: a message is in no chunk, or in two.
    """
    meter = CacheMeter(count)
    for step in steps(dialogue.conversation):
        stored = memory.append(thread, step.messages, resource="quality", format="om", end_of_turn=step.end_of_turn)
        if stored.jobs:
            work_off(memory.services)
        if step.messages[0].role is Role.USER:
            meter.add(memory.context(thread, resource="quality").context)
        advance(len(step.messages))
    while memory.observe(thread, resource="quality")["job"] is not None:
        work_off(memory.services)
    memory.activate(thread, resource="quality")
    found = check_coverage(memory.services, memory.tenant, thread, "quality")
    assert found.holds, f"{thread} is not covered: {found}"
    return Observed(_chunks(memory, thread), meter.share)


def _chunks(memory: Memory, thread: str) -> tuple[tuple[str, str, str], ...]:
    cursor: str | None = None
    items: list[JsonObject] = []
    while True:
        page = memory.observations(thread, resource="quality", state="all", cursor=cursor, limit=200)
        items.extend(page.items)
        cursor = page.next_cursor
        if cursor is None:
            return tuple((item["from_message_id"], item["to_message_id"], item["text"]) for item in items)
