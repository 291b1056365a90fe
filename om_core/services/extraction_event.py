"""What functions of an extractor are given: `ExtractionRequest` before the model is asked, `ExtractionEvent` with the
value; and calling them within a time limit.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from om_core.domain.message import Text
from om_core.formats.sanitise import sanitise_json, sanitise_text
from om_core.prompts.redact import redact, redact_json

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from om_core.domain.extraction import Source
    from om_core.domain.message import Json, JsonObject, StoredMessage

MESSAGES_SHOWN: Final = 10
PART_CHARS: Final = 500
MOST_SIGNALS: Final = 20
"""Of one call of a function."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtractionRequest:
    """For `instructions` and `schema` given as functions: which value is asked for, and for whom."""

    source: Source
    slug: str
    name: str
    tenant: str
    thread: str
    resource: str
    timezone: str
    previous: Json
    """The value as it is kept, or None."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtractionEvent:
    """For `on_extracted`: a value before it is kept. The function may be called again for the same range, where a
    worker died before the value was stored.
    """

    source: Source
    slug: str
    name: str
    tenant: str
    thread: str
    resource: str
    previous: Json
    current: Json
    """The value of this range or generation; None for a hook."""
    observations: str | None = None
    """The notes of the range; None for a reflection."""
    messages: tuple[JsonObject, ...] = ()
    """The newest messages of the range: `seq`, `role`, and `texts` of at most 500 characters."""
    chunk_range: tuple[int | None, int | None] | None = None
    """First and last seq of the range; None for a reflection."""
    generation: int | None = None
    """Number of the reflection; None for a range."""
    signals: list[JsonObject] = field(default_factory=list)
    states: list[str | None] = field(default_factory=list)

    def send_signal(self, name: str, data: Json = None) -> None:
        """Write an event `data-om-signal` together with the value, for whoever follows the events.

        Raises:
            ValueError: more than 20 in one call.
        """
        if len(self.signals) >= MOST_SIGNALS:
            raise ValueError(f"more than {MOST_SIGNALS} signals in one call of on_extracted")
        self.signals.append({"name": sanitise_text(name)[:200], "data": redact_json(sanitise_json(data))})

    def send_state_signal(self, text: str | None) -> None:
        """Show the actor this text instead of the value, from the next context on; None: the value again."""
        self.states.append(None if text is None else redact(sanitise_text(text)))


def shown_messages(messages: Sequence[StoredMessage]) -> tuple[JsonObject, ...]:
    """The newest messages of a range in words, bounded."""
    return tuple(
        {
            "seq": stored.seq,
            "role": stored.message.role.value,
            "texts": [part.text[:PART_CHARS] for part in stored.parts if isinstance(part, Text)],
        }
        for stored in messages[-MESSAGES_SHOWN:]
    )


def call_function(function: Callable[..., Any], given: ExtractionRequest | ExtractionEvent, *, timeout_s: float) -> Any:
    """What the function returns, awaited if need be.

    A function cannot be stopped: one that takes too long goes on in a thread of its own, and its result is dropped.

    Raises:
        TimeoutError: it took longer. Exception: whatever it raised.
    """
    outcome: list[Any] = []
    failure: list[BaseException] = []
    context = contextvars.copy_context()

    def run() -> None:
        try:
            outcome.append(context.run(_complete, function, given, timeout_s))
        except BaseException as error:  # raised again by whoever waits
            failure.append(error)

    worker = threading.Thread(target=run, name=f"extractor-{given.slug}", daemon=True)
    worker.start()
    worker.join(timeout_s)
    if failure:
        error = failure[0]
        raise error if isinstance(error, Exception) else RuntimeError(f"it raised {type(error).__name__}")
    if not outcome:
        raise TimeoutError(f"it took longer than {timeout_s:g} s")
    return outcome[0]


def _complete(function: Callable[..., Any], given: Any, timeout_s: float) -> Any:
    result = function(given)
    return asyncio.run(_within(result, timeout_s)) if inspect.isawaitable(result) else result


async def _within(awaitable: Awaitable[Any], timeout_s: float) -> Any:
    return await asyncio.wait_for(awaitable, timeout_s)
