"""Recall of hints: what a thread believes after a row of chunks, and what its next context shows of it."""

from __future__ import annotations

import pytest

from om_core.domain.chunk import Hints
from tests.unit.context_builders import build, thread, user

TASK, REPLY = "current_task", "suggested_response"


def said(seq: int, task: str | None = None, reply: str | None = None) -> Hints:
    return Hints(seen_seq=seq, current_task=task, suggested_response=reply)


def after(chunks: list[Hints]) -> Hints:
    """What activation makes of the chunks' hints, in their order."""
    hints = Hints()
    for chunk in chunks:
        hints = chunk.merged_over(hints)
    return hints


CASES = {
    "nothing said": ([], 3, {}),
    "both": ([said(3, "boxes", "call Maria")], 3, {TASK: "boxes", REPLY: "call Maria"}),
    "a reply is dropped once anything newer exists": ([said(3, "boxes", "call Maria")], 4, {TASK: "boxes"}),
    "not asked does not erase the task": ([said(3, "boxes"), said(6)], 6, {TASK: "boxes"}),
    "the newer task holds": ([said(3, "boxes"), said(6, "invoice")], 6, {TASK: "invoice"}),
    "a task without a reply takes the old reply away": (
        [said(3, "boxes", "call Maria"), said(6, "invoice")],
        6,
        {TASK: "invoice"},
    ),
    "a reply without a task leaves the task": ([said(3, "boxes"), said(6, None, "wait")], 6, {TASK: "boxes", REPLY: "wait"}),
    "a silent chunk makes the reply no newer": ([said(3, "boxes", "call Maria"), said(6)], 6, {TASK: "boxes"}),
}  # fmt: skip


@pytest.mark.conforms("6.5", "11.14")
@pytest.mark.parametrize(("chunks", "head", "shown"), CASES.values(), ids=CASES)
def test_recall_of_hints(chunks: list[Hints], head: int, shown: dict[str, str]) -> None:
    rows = [user(seq) for seq in range(1, head + 1)]
    context = build(rows, state=thread(rows, hints=after(chunks)))

    assert {block.kind: block.text for block in context.volatile} == shown
