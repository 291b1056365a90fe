"""One short case per fault; `make faults` runs each many times."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from om_core.testing.failpoints import parse, points
from tests.faults.catalogue import FAULTS, run

if TYPE_CHECKING:
    from tests.faults.fleet import Starter
    from tests.support.servers import Servers


@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.parametrize("name", FAULTS)
def test_no_turn_fails_and_no_message_is_lost_or_covered_twice(name: str, servers: Servers, starter: Starter) -> None:
    fault = FAULTS[name]

    row = run(fault, servers, starter, times=fault.short, patience=5.0)

    assert row.problems == ()
    assert (row.turns_failed, row.messages_lost, row.messages_twice, row.given_up) == (0, 0, 0, 0)
    assert row.injected == fault.short
    assert row.turns > 0
    assert row.model_calls > row.model_calls_wasted
    assert fault.most_leases is None or row.recovery_leases is not None


def test_points_are_named_and_others_are_refused() -> None:
    armed = parse("observe.store.commit.after=kill@2, model.before=stop")

    assert [(name, found.nth) for name, found in armed.items()] == [
        ("observe.store.commit.after", 2),
        ("model.before", 1),
    ]
    assert set(armed) <= set(points())
    for wrong in ("observe.store=kill", "model.before=explode", "model.before=kill@x"):
        with pytest.raises(ValueError, match="POINT=ACTION"):
            parse(wrong)
