"""Celery's worker with signals that end a pool of threads.

Celery's own handlers of SIGQUIT and of a second Ctrl-C cancel tasks one by one, which the threads pool cannot: they
raise, and the process then waits for its jobs as long as these take.
"""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, Any, Final

from celery import signals
from celery.apps.worker import Worker
from celery.worker import state

if TYPE_CHECKING:
    from types import FrameType

WARM: Final = "Warm"
COLD: Final = "Cold"


class OmWorker(Worker):
    """SIGTERM, SIGHUP and Ctrl-C stop claiming and let jobs finish; SIGQUIT and a second Ctrl-C hand them back."""

    hostname: str
    _interrupted = False

    def install_platform_tweaks(self, worker: Any) -> None:
        """As the base, with our handlers in the place of its own."""
        super().install_platform_tweaks(worker)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
            signal.signal(number, self._stop)

    def _stop(self, number: int, frame: FrameType | None) -> None:
        """The runtime hears of it and ends the jobs; Celery sees the flag, and waits for the pool."""
        again = number == signal.SIGINT and self._interrupted
        self._interrupted = self._interrupted or number == signal.SIGINT
        how = COLD if again or number == signal.SIGQUIT else WARM
        signals.worker_shutting_down.send(sender=self.hostname, sig=signal.Signals(number).name, how=how, exitcode=0)
        state.should_stop = 0  # type: ignore[assignment]  # the stub knows only its first value
