"""What the offline notes keep of a real dialogue, through the whole pipeline; `make quality` measures all of them."""

from __future__ import annotations

import pytest

from om_core.memory import Memory
from tests.quality.dialogues import load
from tests.quality.pipeline import options
from tests.quality.score import Judge

pytestmark = pytest.mark.data

FLOOR = 0.75
"""Of `answer_vs_ceiling` at 5×; the target of all dialogues together is 0.80."""


def test_notes_of_a_fifth_of_the_size_answer_most_questions(data_dir, services_with):
    dialogue = min((one for one in load(data_dir) if one.dataset == "locomo"), key=lambda one: len(one.turns))
    judge = Judge.of(dialogue)
    row, observed = judge.offline(Memory(services_with(options(5.0))), 5.0, lambda messages: None)
    found = row.to_json()
    last = judge.baseline("last_n", 5.0).to_json()

    assert found["compression_reached"] >= 5.0
    assert found["answer_vs_ceiling"] >= FLOOR
    assert found["answer_vs_ceiling"] >= 2 * last["answer_vs_ceiling"]
    assert found["evidence_share"] >= 0.6
    assert len(observed.lines()) >= 20
