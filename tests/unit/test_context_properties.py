"""Contexts over random lives of a thread: the promises hold after every single step (DESIGN 2.1, 2.5, 2.6)."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.unit.context_model import OPERATIONS, Model

APPENDS = ("user", "says", "call", "call", "answer", "answer", "answer", "stray", "inline", "unseen")
STEPS = st.lists(
    st.tuples(st.one_of(st.sampled_from(APPENDS), st.sampled_from(OPERATIONS)), st.integers(0, 45)),
    min_size=1,
    max_size=40,
)


def live(steps):
    model = Model()
    for operation, number in steps:
        getattr(model, operation)(number)
        model.check(number)
    return model


@pytest.mark.report("D02", "D13", "Q01")
@settings(max_examples=250, deadline=None)
@given(STEPS)
@example(
    [("user", 0), ("call", 2), ("wait", 45), ("wait", 45), ("observe", 40), ("activate", 2), ("answer", 1), ("user", 1)]
)
@example(
    [("call", 0), ("user", 0), ("observe", 40), ("activate", 2), ("answer", 1), ("lose", 0), ("says", 1), ("lose", 0)]
)
@example(
    [("user", 0), *[("says", 1)] * 12, ("trim", 2), ("user", 1), ("call", 1), ("trim", 1), ("answer", 2), ("trim", 0)]
)
@example(
    [("user", 0), ("call", 1), ("stray", 4), ("answer", 1), ("answer", 7), ("inline", 3), ("unseen", 0), ("answer", 11)]
)
def test_every_context_is_sound_covers_everything_and_extends_the_last_one(steps):
    live(steps)


def test_the_model_reaches_what_it_is_meant_to_reach():
    """A guard for the test above: each situation it is about really occurs in a life of this length."""
    seen = set()
    for seed in range(20):
        model, rng = Model(), Random(seed)
        for _ in range(70):
            getattr(model, rng.choice(OPERATIONS + APPENDS))(rng.randrange(46))
            model.check(rng.randrange(46))
            context = model.before
            text = str(context.messages)
            seen |= {
                name
                for name, found in {
                    "open group": context.stable_messages < len(context.messages) - context.volatile_messages,
                    "late result": "om-late-result" in text,
                    "placeholder": "No result stands here" in text,
                    "gap": "are not shown" in text,
                    "trim": context.trimmed is not None,
                    "pinned question": model.state.question_seq in model.state.pins,
                    "pinned call": bool(set(model.state.pins) - {model.state.question_seq}),
                    "stale chunk": any(each.stale for each in model.active()),
                    "log": bool(context.system),
                    "hints": bool(context.volatile),
                    "time gap": "om-time-gap" in text,
                    "start": "om-start" in text,
                    "news": "om-other-notes" in text,
                    "news in the log": "elsewhere" in str(context.system),
                }.items()
                if found
            }
    assert seen == {
        "open group", "late result", "placeholder", "gap", "trim", "pinned question", "pinned call", "stale chunk", "log",
        "hints", "time gap", "start", "news", "news in the log",
    }  # fmt: skip
