"""The circuit breaker of a job's model calls (DESIGN 5): one per model, shared by all workers through the database.

A claim says which models failed lately. Of those the breaker is asked before a call, and told of an answer; for all
others a call costs no statement more. An outage is always told.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from om_core.domain.errors import GiveUpError, RetryLaterError
from om_core.telemetry import described, get_logger

if TYPE_CHECKING:
    from collections.abc import Callable
    from threading import Event

    from om_core.domain.policy import JobPolicy
    from om_core.ports import ClaimedJob, LanguageModel, ModelReply, ModelRequest, SystemStore

log = get_logger("om.breaker")
T = TypeVar("T")


class GuardedModel:
    """Implements `ports.LanguageModel` for one attempt: refuses while a breaker is open, and reports outages."""

    def __init__(self, model: LanguageModel, system: SystemStore, claimed: ClaimedJob, policy: JobPolicy) -> None:
        self._model = model
        self._system = system
        self._job = claimed.job
        self._failing = set(claimed.breakers)
        self._policy = policy

    def complete(self, request: ModelRequest, *, timeout_s: float, cancelled: Event | None = None) -> ModelReply:
        """As `LanguageModel.complete`; RetryLaterError without a call while the model's breaker is open."""
        name = request.model
        if name in self._failing:
            self._ask(name)
        try:
            reply = self._model.complete(request, timeout_s=timeout_s, cancelled=cancelled)
        except RetryLaterError as error:
            if cancelled is None or not cancelled.is_set():
                self._failed(name, error)
            raise
        except GiveUpError:  # the model answered: it is not out of order
            self._worked(name)
            raise
        self._worked(name)
        return reply

    def window_tokens(self, model: str) -> int | None:
        """As `LanguageModel.window_tokens`."""
        return self._model.window_tokens(model)

    def _ask(self, name: str) -> None:
        wait_s = _tried(lambda: self._system.breaker_gate(name, self._job))
        if wait_s is not None:
            msg = f"{name}: the circuit breaker is open after repeated outages; asked again in {wait_s:.0f} s"
            raise RetryLaterError(msg, after_s=wait_s)

    def _failed(self, name: str, error: RetryLaterError) -> None:
        self._failing.add(name)
        state = _tried(lambda: self._system.breaker_failed(name, self._job, self._policy, after_s=error.after_s))
        if state == "open":
            log.warning("breaker open", model=name)

    def _worked(self, name: str) -> None:
        if name not in self._failing:
            return
        self._failing.discard(name)
        if _tried(lambda: self._system.breaker_worked(name)):
            log.info("breaker closed", model=name)


def _tried(step: Callable[[], T]) -> T | None:
    """A step of the breaker; a database that is away must hide neither the model's answer nor its error."""
    try:
        return step()
    except Exception as error:  # the job's own writes will tell
        log.warning("breaker not reached", **described(error))
        return None
