"""The services' hooks into metrics and traces, so that a use case says in one line what is counted."""

from __future__ import annotations

import threading
from collections import OrderedDict
from functools import wraps
from time import perf_counter
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, ParamSpec, TypeAlias, TypeVar

from om_core import metrics, tracing
from om_core.domain.errors import GiveUpError, OmError, RetryLaterError, SetupError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Hashable, Iterable
    from threading import Event

    from om_core.domain.context import Activated, Context
    from om_core.domain.job import Job
    from om_core.domain.message import StoredMessage
    from om_core.ports import LanguageModel, ModelReply, ModelRequest
    from om_core.services.sweep import SweepResult

P = ParamSpec("P")
R = TypeVar("R")
Operation: TypeAlias = Literal["append", "context"]

MOST_THREADS: Final = 10_000
"""Threads whose last context is remembered, for the share of its prompt that stayed."""


class _Clock:
    """Observes how long a step took, by outcome. The labels are looked up once: this is in every turn's way."""

    def __init__(self, operation: Operation) -> None:
        self.operation = operation
        self._ok, self._refused, self._error = (
            metrics.TURN_SECONDS.labels(operation, outcome) for outcome in ("ok", "refused", "error")
        )

    def ended(self, started: float) -> None:
        self._ok.observe(perf_counter() - started)

    def failed(self, started: float, error: Exception) -> None:
        wrong = isinstance(error, OmError) and not isinstance(error, RetryLaterError | SetupError)
        (self._refused if wrong else self._error).observe(perf_counter() - started)


def timed(operation: Operation) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Decorator: the duration and the span of a step."""
    clock = _Clock(operation)

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        @wraps(function)
        def run(*args: P.args, **kwargs: P.kwargs) -> R:
            started = perf_counter()
            try:
                with tracing.step(operation):
                    result = function(*args, **kwargs)
            except Exception as error:  # counted, and raised on
                clock.failed(started, error)
                raise
            clock.ended(started)
            return result

        return run

    return decorate


def timed_async(operation: Operation) -> Callable[[Callable[P, Awaitable[R]]], Callable[P, Awaitable[R]]]:
    """`timed` for a coroutine function."""
    clock = _Clock(operation)

    def decorate(function: Callable[P, Awaitable[R]]) -> Callable[P, Awaitable[R]]:
        @wraps(function)
        async def run(*args: P.args, **kwargs: P.kwargs) -> R:
            started = perf_counter()
            try:
                with tracing.step(operation):
                    result = await function(*args, **kwargs)
            except Exception as error:  # counted, and raised on
                clock.failed(started, error)
                raise
            clock.ended(started)
            return result

        return run

    return decorate


def ask(model: LanguageModel, request: ModelRequest, *, timeout_s: float, cancelled: Event) -> ModelReply:
    """One model call, measured; returns and raises as `LanguageModel.complete`."""
    label = metrics.model_label(request.model)
    in_flight = metrics.LLM_IN_FLIGHT.labels(label)
    outcome, started = "error", perf_counter()
    in_flight.inc()
    try:
        with tracing.chat(request.model) as span:
            reply = model.complete(request, timeout_s=timeout_s, cancelled=cancelled)
            tracing.note_reply(span, reply)
        outcome = "ok"
    except Exception as error:  # named, and raised on
        outcome = "cancelled" if cancelled.is_set() else _word(error)
        raise
    finally:
        in_flight.dec()
        metrics.LLM_SECONDS.labels(label, outcome).observe(perf_counter() - started)
    _spent(label, reply)
    return reply


def _word(error: Exception) -> str:
    for kind, word in ((RetryLaterError, "retry_later"), (GiveUpError, "give_up"), (SetupError, "setup")):
        if isinstance(error, kind):
            return word
    return "error"


def _spent(label: str, reply: ModelReply) -> None:
    counts = (("input", reply.input_tokens), ("output", reply.output_tokens), ("cached", reply.cached_tokens))
    for direction, count in counts:
        metrics.LLM_TOKENS.labels(label, direction).inc(max(0, count))
    if reply.cost_usd:
        metrics.LLM_COST.labels(label).inc(max(0.0, reply.cost_usd))


def claimed(job: Job, *, late_s: float) -> None:
    """A job was claimed, so many seconds after it was due."""
    metrics.DUE_TO_CLAIM_SECONDS.labels(job.kind.value).observe(max(0.0, late_s))


def attempt_ended(job: Job, outcome: str, seconds: float) -> None:
    """An attempt ended; `lost` is one whose writes the fence refused."""
    kind = job.kind.value
    metrics.ATTEMPTS.labels(kind, outcome).inc()
    metrics.CLAIM_TO_STORE_SECONDS.labels(kind).observe(seconds)
    if outcome == "lost":
        metrics.FENCE_REJECTED.labels(kind).inc()


def lease_expired(job: Job) -> None:
    """The sweep took a job over: that attempt has ended, too."""
    metrics.LEASES_EXPIRED.labels(job.kind.value).inc()
    metrics.ATTEMPTS.labels(job.kind.value, "lease_expired").inc()


def activated(found: Activated | None) -> None:
    """An activation was committed: of chunks, by reason, and of a reflection."""
    if found is None:
        return
    if found.chunks:
        metrics.ACTIVATIONS.labels(found.reason).inc()
    if found.generation is not None:
        metrics.ACTIVATIONS.labels("reflection").inc()


def waited(outcome: str, seconds: float) -> None:
    """A context call has waited; the outcome is the job's last state, `timeout` or `closed`."""
    metrics.TURN_WAIT_SECONDS.labels(outcome).observe(seconds)


def swept(result: SweepResult) -> SweepResult:
    """Count what a sweep did."""
    metrics.SWEEP_RUNG.inc(result.rung)
    metrics.SWEEP_RAN.inc(result.ran)
    metrics.SWEEP_RESCUED.inc(result.rescued)
    metrics.SWEEP_WOKEN.inc(result.woken)
    return result


class _Shown(NamedTuple):
    """What the last context of a thread was made of."""

    generation: int
    observed_seq: int
    log_tokens: int
    stable_tokens: int


class PrefixShare:
    """How much of each context's stable part the context before it had already (what a provider's cache can serve).

    Counted from numbers that a context has anyway. The last context of a thread is remembered in this process only;
    where several processes serve one thread, the share comes out too low.
    """

    def __init__(self, most_threads: int = MOST_THREADS) -> None:
        self._most = most_threads
        self._lock = threading.Lock()
        self._last: OrderedDict[Hashable, _Shown] = OrderedDict()

    def count(self, thread: Hashable, context: Context, rows: Iterable[StoredMessage]) -> None:
        """Add a context of a thread (whatever names it in this process), made of these rows."""
        now = _Shown(context.generation, context.observed_seq, context.tokens.log, _stable_tokens(context, rows))
        with self._lock:
            before = self._last.pop(thread, None)
            self._last[thread] = now
            if len(self._last) > self._most:
                self._last.popitem(last=False)
        if before is None:
            return
        kept = _kept(before, now, context.prefix_changed)
        metrics.PREFIX_TOKENS.labels("kept").inc(kept)
        metrics.PREFIX_TOKENS.labels("new").inc(now.stable_tokens - kept)


def _kept(before: _Shown, now: _Shown, changed: str | None) -> int:
    """Tokens at the beginning that both contexts share: all of the earlier one, or its log, or nothing."""
    same_log = before.generation == now.generation and changed in {None, "activation", "trim"}
    if changed is None and same_log and before.observed_seq == now.observed_seq:
        return min(before.stable_tokens, now.stable_tokens)
    return min(before.log_tokens, now.log_tokens) if same_log else 0


def _stable_tokens(context: Context, rows: Iterable[StoredMessage]) -> int:
    """Log and raw messages, without those that still wait for results."""
    total = context.tokens.log + context.tokens.messages
    unsettled = {seq for seq in context.message_seqs[context.stable_messages :] if seq is not None}
    return total - sum(row.tokens for row in rows if row.seq in unsettled) if unsettled else total


prefix_share: Final = PrefixShare()
"""Of this process."""
