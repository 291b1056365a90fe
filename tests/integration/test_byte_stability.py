"""Two hundred turns: every context extends the one before it, byte for byte, unless it says why not (DESIGN 2.5).

The talk goes over midnights and over both changes of the clock in its zone; the service's own clock and the time that
clients give move along.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import pytest

from om_core.demo.score import CacheMeter
from om_core.domain.stable import stable_bytes
from om_core.domain.validate_context import check_context
from om_core.memory import Memory
from om_core.services.render_context import render
from tests.support.fixtures import COUNTER
from tests.support.jobs import work_off

if TYPE_CHECKING:
    from collections.abc import Callable

    from om_core.domain.context import Context
    from om_core.services.deps import Services

ZONE = ZoneInfo("Europe/Berlin")
SPRING = datetime(2026, 3, 28, 20, 0, tzinfo=UTC)
"""Five hours before clocks go forward."""
AUTUMN = datetime(2026, 10, 24, 20, 0, tzinfo=UTC)
"""Five hours before they go back."""
TURNS = 200
ANNOUNCED = {"activation", "reflection"}
OPTIONS: dict[str, Any] = {
    "model": "offline/extractive",
    "temporal_markers": True,
    "observation": {"message_tokens": 1500, "buffer_tokens": 0.2, "block_timeout": 0},
    "reflection": {"observation_tokens": 900},
}


class MovingClock:
    """A service's clock that the test sets."""

    def __init__(self) -> None:
        self.at = SPRING

    def now(self) -> datetime:
        return self.at

    def monotonic(self) -> float:
        return self.at.timestamp()


@dataclass
class Reader:
    """The client of one thread: what it was told last, and what changes it has seen."""

    thread: str
    meter: CacheMeter = field(default_factory=lambda: CacheMeter(COUNTER.count_text))
    before: Context | None = None
    reasons: Counter[str] = field(default_factory=Counter)
    kept: int = 0

    def read(self, memory: Memory, now: datetime) -> None:
        """One context, compared with the last one; asked again at other times, its prefix is the same."""
        context = memory.context(self.thread, resource="r", now=now).context
        assert check_context(context) == []
        if context.prefix_changed is not None:
            self.reasons[context.prefix_changed] += 1
        elif self.before is not None:
            self._extends(context)
            self.kept += 1
        if self.kept % 10 == 0:
            later = now + (timedelta(hours=13) if self.kept % 20 else timedelta(days=220))
            again = memory.context(self.thread, resource="r", now=later, read_only=True).context
            assert again.prefix_hash == context.prefix_hash
        self.meter.add(context)
        self.before = context

    def _extends(self, context: Context) -> None:
        before = self.before
        assert before is not None
        old, new = ((each.system, each.messages[: each.stable_messages]) for each in (before, context))
        assert stable_bytes(*new).startswith(stable_bytes(*old)), f"{self.thread}: the prefix changed without a word"
        for form in ("om", "openai", "anthropic"):
            earlier, later = render(before, form), render(context, form)
            assert later.messages[: earlier.stable] == earlier.messages[: earlier.stable]


def turn(number: int, at: datetime) -> list[list[dict[str, Any]]]:
    """The steps of a turn: a question, perhaps a call and its result, an answer."""
    when = at.astimezone(ZONE).isoformat()

    def message(part: int, role: str, *parts: dict[str, Any]) -> dict[str, Any]:
        return {"id": f"m{number}-{part}", "role": role, "parts": list(parts), "created_at": when}

    def text(words: str) -> dict[str, Any]:
        return {"type": "text", "text": words}

    question = f"Question {number}: what do we know of order {number * 37 % 1000}? I live in Lyon since {number}."
    answer = f"Order {number * 37 % 1000} was shipped to Lyon on day {number}; it holds {number % 9} books."
    call = {"type": "tool_call", "call_id": f"c{number}", "name": "look_up", "args": {"order": number}}
    result = {"type": "tool_result", "call_id": f"c{number}", "result": {"state": "shipped", "books": number % 9}}
    steps = [[message(0, "user", text(question))]]
    if number % 8 == 0:
        steps += [[message(1, "assistant", call)], [message(2, "tool", result)]]
    return [*steps, [message(3, "assistant", text(answer + " Anything else?" * (number % 5)))]]


def replay(memory: Memory, clock: MovingClock, readers: list[Reader]) -> None:
    """The turns, spread over a week around each change of the clock, the threads in turns."""
    for number in range(TURNS):
        half, hours = divmod(number, TURNS // 2)
        at = (AUTUMN if half else SPRING) + timedelta(minutes=97 * hours)
        clock.at = at
        reader = readers[number // 4 % len(readers)]
        question, *rest = turn(number, at)
        memory.append(reader.thread, question, resource="r", format="om")
        for step in rest:
            reader.read(memory, at)
            memory.append(reader.thread, step, resource="r", format="om")
        reader.read(memory, at)
        work_off(memory.services)


@pytest.mark.conforms("11.44")
@pytest.mark.parametrize(("scope", "names"), [("thread", "a"), ("resource", "ab")])
def test_each_context_extends_the_one_before_it_over_200_turns(
    services_with: Callable[..., Services], scope: str, names: str, capsys: pytest.CaptureFixture[str]
):
    clock = MovingClock()
    memory = Memory(services_with({**OPTIONS, "scope": scope}, clock=clock))
    readers = [Reader(name) for name in names]
    for reader in readers:
        memory.put_thread(reader.thread, resource="r", timezone="Europe/Berlin")
    replay(memory, clock, readers)

    with capsys.disabled():
        for reader in readers:
            changes = ", ".join(f"{count} by {reason}" for reason, count in reader.reasons.most_common())
            print(f"\n{scope} {reader.thread}: {reader.meter.share:.1%} cacheable, prefix changed {changes}", end="")
    for reader in readers:
        assert reader.before is not None
        assert "activation" in reader.reasons
        assert set(reader.reasons) <= ANNOUNCED
        assert reader.kept > TURNS / len(readers)
        assert reader.meter.share > 0.75
        assert reader.before.generation > 0


def test_the_clock_of_the_zone_really_changes_within_the_talk():
    offsets = {
        (start + timedelta(minutes=97 * hours)).astimezone(ZONE).utcoffset()
        for start in (SPRING, AUTUMN)
        for hours in range(TURNS // 2)
    }
    assert offsets == {timedelta(hours=1), timedelta(hours=2)}
