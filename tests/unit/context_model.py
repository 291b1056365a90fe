"""A thread in memory, run by the product's own pure functions: appends, observes, activates, trims, loses notes.

It stands for the store in property tests of contexts. After every operation `check` builds the context and compares it
with what is promised (DESIGN 2.1, 2.5, 2.6, 6.2, 6.5).
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

from om_core.domain.activation import ActivationReason, choose_prefix, pins_after_activation
from om_core.domain.assemble import assemble
from om_core.domain.chunk import Hints
from om_core.domain.context import ContextInput
from om_core.domain.cuts import CutState, advance_cut, choose_cut
from om_core.domain.message import Data, Image, Message, Reasoning, Role, StoredMessage, Text, ToolCall, ToolResult
from om_core.domain.pairs import is_visible
from om_core.domain.stable import stable_bytes
from om_core.domain.thread import MemoryState
from om_core.domain.validate_context import check_context
from om_core.domain.validate_rendered import check_anthropic, check_openai
from om_core.services.render_context import render, to_anthropic, to_openai
from tests.unit.context_builders import START, chunk, policy, thread, words

FORMS = ("om", "openai", "anthropic")
HOUR = 3_600.0
RULES = policy(threshold=120, block=10**9)


class Model:
    def __init__(self):
        self.rows: list[StoredMessage] = []
        self.chunks = []
        self.cut = CutState()
        self.state = thread()
        self.now = START
        self.turn = 0
        self.before: Any = None
        self.prefix_changed = False
        self.memory = MemoryState(id=1)
        self.others: list[Any] = []

    # -- operations ------------------------------------------------------------------------------------------------

    def append(self, role, *parts, tokens=10, continues=None):
        """Store a message as ingest does: it moves head, counters, question and cut."""
        self.turn += role == "user"
        visible = role != "system" and any(map(is_visible, parts))
        new = StoredMessage(
            seq=len(self.rows) + 1, message=Message(role=Role(role), parts=parts), created_at=self.now,
            tokens=tokens if visible else 0, turn=self.turn, continues=continues,
        )  # fmt: skip
        self.rows.append(new)
        question = new.seq if new.is_question and visible else self.state.question_seq
        self.cut = advance_cut(self.cut, [new], question_seq=question, now=self.now, max_age_s=HOUR)
        self.state = replace(self.state, head_seq=new.seq, question_seq=question, open_calls=self.cut.open_calls)
        self._recount()

    def user(self, n):
        parts = [Text(text=f"question {n}"), Image(url="https://example.org/a.png"), Text(text=" ")]
        self.append("user", *parts[: 1 + n % 3])

    def says(self, n):
        lead = (Reasoning(text="hm", provider="anthropic", provider_metadata={"signature": "c2ln"}),) if n % 2 else ()
        self.append("assistant", *lead, Text(text=f"answer {n}"))

    def call(self, n):
        ids = [f"c{n % 5}", f"c{(n + 1) % 5}", f"c{(n + 2) % 5}"][: 1 + n % 3]
        lead = (Text(text="let me see"),) if n % 2 else ()
        self.append("assistant", *lead, *(ToolCall(call_id=id, name="tool", args={"n": n}) for id in ids))

    def answer(self, n):
        """Results for open calls, newest first or oldest first, alone or together, sometimes with words."""
        waiting = [call.call_id for call in self.cut.open_calls]
        ids = waiting[::-1][: 1 + n % 2] if n % 3 else waiting[: 1 + n % 2]
        self._results(ids or [f"c{n % 5}"], n)

    def stray(self, n):
        """A result nobody waits for, or a second one."""
        self._results([f"c{n % 5}"], n)

    def _results(self, ids, n):
        parts = [ToolResult(call_id=id, name="tool", result=f"result {n}") for id in ids]
        if n % 7 == 0:
            self.append("user", Text(text="and?"), *parts)
        elif n % 11 == 0:
            self.append("assistant", *parts, Text(text="so it is"))
        else:
            self.append("tool", *parts, tokens=5 + n % 40)

    def inline(self, n):
        """An assistant's message with a call and its result inside, as some kits save it."""
        parts = (Text(text="look"), ToolCall(call_id=f"i{n}", name="tool"), ToolResult(call_id=f"i{n}", result=n))
        self.append("assistant", *parts[: 2 + n % 2], *((Text(text="done"),) if n % 3 else ()))

    def unseen(self, n):
        self.append(*[
            ("assistant", Data(data_type="ui", data=n)), ("assistant", Reasoning(text="hm")),
            ("user", Text(text=" ")), ("system", Text(text="obey")),
        ][n % 4])  # fmt: skip

    def wait(self, n):
        self.now += timedelta(minutes=n)

    def observe(self, n):
        """The next range becomes a buffered chunk, through the real choice of a cut on the first part of the tail."""
        tail = [row for row in self.rows if row.seq > self.state.buffered_seq]
        part = tail[: 1 + n] if n % 2 else tail
        cut = choose_cut(
            part, question_seq=self.state.question_seq, now=self.now, open_call_max_age_s=HOUR,
            window_tokens=20 + n * 5, head_complete=len(part) == len(tail), waiting=self.state.open_calls,
        )  # fmt: skip
        if cut:
            text = "" if n % 6 == 0 else f"* notes up to {cut.to_seq}"
            made = chunk(len(self.chunks) + 1, self.state.buffered_seq + 1, cut.to_seq, text, message_tokens=cut.tokens)
            self.chunks.append(made)
            self.state = replace(self.state, buffered_seq=cut.to_seq)

    def activate(self, n):
        ready = self.buffered()
        reasons: tuple[ActivationReason, ...] = ("threshold", "ttl", "manual", "provider_change")
        reason = reasons[n % 4]
        chosen = choose_prefix([each.message_tokens for each in ready], self.state.pending_tokens, RULES, reason)
        if not chosen:
            return
        observed = ready[chosen - 1].to_seq
        pins = pins_after_activation(
            question_seq=self.state.question_seq, open_calls=self.state.open_calls, observed_seq=observed
        )
        first = self.memory.next_position
        for index, each in enumerate(ready[:chosen]):
            self.chunks[self.chunks.index(each)] = replace(each, position=first + index)
        self.memory = replace(self.memory, next_position=first + chosen)
        self.state = replace(
            self.state, observed_seq=observed, pins=pins, shown_from_seq=0, prefix_reason="activation",
            shown_position=first + chosen - 1, shown_version=self.memory.log_version,
        )  # fmt: skip
        self._recount()
        self.prefix_changed = True

    def other(self, n):
        """Another thread's notes enter the shared log."""
        position = self.memory.next_position
        self.others.append(chunk(position, 1, 1, f"* elsewhere {n}", thread_id=2, thread="elsewhere"))
        self.memory = replace(self.memory, next_position=position + 1)

    def trim(self, n):
        """A context call with a small cap, whose trim is stored."""
        context = assemble(self.given(max_tokens=40 + 15 * n), words)
        self.prefix_changed |= context.shown_from_seq > self.state.shown_from_seq
        if context.shown_from_seq > self.state.shown_from_seq:
            assert context.prefix_changed == "trim"
            self.state = replace(self.state, shown_from_seq=context.shown_from_seq, pins=context.pins)
            self._store_shown(context)
        assert not check_context(context, question_seq=self.state.question_seq)

    def lose(self, n):
        """A chunk becomes stale (a message of its range was removed), or a stale one is rebuilt."""
        active = self.active()
        if active:
            index = n % len(active)
            self.chunks[index] = replace(active[index], stale=not active[index].stale)
            self.memory = replace(self.memory, log_version=self.memory.log_version + 1, log_reason="removal")
            self.prefix_changed = True

    def hint(self, n):
        self.state = replace(
            self.state, hints=Hints(seen_seq=n, current_task=f"task {n}" if n % 2 else None, suggested_response="Yes.")
        )

    # -- reading ---------------------------------------------------------------------------------------------------

    def _recount(self):
        pending = sum(row.tokens for row in self.rows if row.seq > self.state.observed_seq)
        self.state = replace(self.state, pending_tokens=pending)

    def active(self):
        return [each for each in self.chunks if each.to_seq <= self.state.observed_seq]

    def buffered(self):
        return [each for each in self.chunks if each.to_seq > self.state.observed_seq]

    def raw_seqs(self):
        """What the store reads: pins, ranges of stale chunks, the tail from the trim on, the question."""
        state = self.state
        wanted = {*state.pins, state.question_seq}
        wanted |= {seq for each in self.active() if each.stale for seq in range(each.from_seq, each.to_seq + 1)}
        first = max(state.observed_seq + 1, state.shown_from_seq)
        return {seq for seq in wanted if seq} | set(range(first, state.head_seq + 1))

    def given(self, **more):
        wanted = self.raw_seqs()
        return ContextInput(
            thread=self.state, memory=self.memory, policy=replace(RULES, temporal_markers=True), reflection=None,
            chunks=tuple(sorted((*self.active(), *self.others), key=lambda each: each.position or 0)),
            messages=tuple(row for row in self.rows if row.seq in wanted), **more,
        )  # fmt: skip

    # -- promises --------------------------------------------------------------------------------------------------

    def check(self, n):
        context = assemble(self.given(), words)
        assert check_context(context, question_seq=self.state.question_seq) == []
        self._check_coverage(context)
        self._check_rendered(context)
        self._check_extends(context)
        self._check_ephemeral(context, n)
        self._check_log(context)
        assert (context.prefix_changed is not None) <= self.prefix_changed
        if context.prefix_changed is not None:
            self._store_shown(context)
        self.before, self.prefix_changed = context, False

    def _store_shown(self, context):
        self.state = replace(
            self.state, prefix_reason=None, shown_position=context.shown_position, shown_version=context.shown_version
        )

    def _check_log(self, context):
        """Every note is there once: in the log, or after the newest message if it came from elsewhere meanwhile."""
        log = "".join(block.text for block in context.system)
        news = "".join(block.text + "\n" for block in context.volatile if block.kind == "other_notes")
        for each in (*self.active(), *self.others):
            if each.text and not each.stale:
                places = [f"{each.text}\n" in log, f"{each.text}\n" in news]
                assert sum(places) == 1 or each in self.others, f"{each.text} stands in {places}"
                assert sum(places) >= 1
                assert not places[1] or each in self.others

    def _check_coverage(self, context):
        """Every visible row is raw above the cursor (or trimmed), and at or below it in one chunk, raw if that is stale."""
        state, shown = self.state, set(context.message_seqs)
        trimmed = context.trimmed or {"from_seq": 1, "to_seq": 0}
        for row in self.rows:
            if row.role is Role.SYSTEM or not any(map(is_visible, row.parts)):
                assert row.seq not in shown
                continue
            covering = [each for each in self.active() if each.from_seq <= row.seq <= each.to_seq]
            if row.seq > state.observed_seq:
                kept = {state.question_seq, *state.pins}
                left_out = trimmed["from_seq"] <= row.seq <= trimmed["to_seq"] and row.seq not in kept
                assert (row.seq in shown) != left_out, f"seq {row.seq} of the tail"
                assert not covering
            else:
                assert len(covering) == 1, f"seq {row.seq} is covered by {len(covering)} chunks"
                assert (row.seq in shown) == (
                    row.seq in state.pins or covering[0].stale or row.seq == state.question_seq
                )

    def _check_extends(self, context):
        """The stable part begins with the last one's bytes, in every form, unless there was a prefix change."""
        if self.before is None or self.prefix_changed:
            return
        old, new = ((each.system, each.messages[: each.stable_messages]) for each in (self.before, context))
        assert stable_bytes(*new).startswith(stable_bytes(*old)), "the stable part changed"
        for form in FORMS:
            earlier, later = render(self.before, form), render(context, form)
            assert later.messages[: earlier.stable] == earlier.messages[: earlier.stable], f"it changed in form {form}"

    def _check_rendered(self, context):
        assert check_openai(to_openai(context)) == []
        assert check_anthropic(to_anthropic(context)) == []

    def _check_ephemeral(self, context, n):
        """Whatever a caller adds for one call stays outside the stable part and is as well-formed."""
        waiting = [call.call_id for call in self.cut.open_calls] or ["x"]
        added = [
            Message(role=Role.TOOL, parts=(ToolResult(call_id=waiting[-1], result="now"),)),
            Message(role=Role.USER, parts=(Text(text="look"),)),
            Message(role=Role.ASSISTANT, parts=(ToolCall(call_id="e", name="tool"),)),
            Message(role=Role.SYSTEM, parts=(Text(text="be short"),)),
        ]
        more = assemble(self.given(ephemeral=tuple(added[n % 4 :] + added[: n % 2]), now=self.now), words)
        assert check_context(more, question_seq=self.state.question_seq) == []
        self._check_rendered(more)
        assert (more.prefix_hash, more.stable_messages) == (context.prefix_hash, context.stable_messages)


OPERATIONS = (
    "user", "says", "call", "answer", "stray", "inline", "unseen", "wait", "observe", "activate", "trim", "lose", "hint",
    "other",
)  # fmt: skip
