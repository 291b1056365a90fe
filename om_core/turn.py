"""A turn, the forms of its context, and the formats its messages may come in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from om_core.domain.errors import InvalidInputError
from om_core.domain.message import Message
from om_core.formats.anthropic import parse_anthropic
from om_core.formats.canonical import dump_message, parse_message
from om_core.formats.openai import parse_openai
from om_core.services.ingest import StepRequest
from om_core.services.render_context import context_to_json, to_anthropic, to_om, to_openai

if TYPE_CHECKING:
    from collections.abc import Sequence

    from om_core.domain.context import Activated, Context
    from om_core.domain.message import JsonObject
    from om_core.memory import Memory

FORMATS = ("om", "openai", "anthropic")


def parse_messages(messages: Sequence[JsonObject | Message], format: str) -> tuple[Message, ...]:
    """Messages in any of the three formats, or canonical ones; checked and sanitised.

    Raises:
        InvalidInputError: with the path of the field that is wrong.
    """
    if format not in FORMATS:
        msg = f"{format!r} is not a format: {', '.join(FORMATS)}"
        raise InvalidInputError(msg, path="format")
    if messages and all(isinstance(message, Message) for message in messages):
        # A round trip through the canonical form checks and sanitises what was built by hand or read from a file.
        return tuple(
            parse_message(dump_message(message), f"messages.{index}")  # type: ignore[arg-type]  # all are Message
            for index, message in enumerate(messages)
        )
    given: list[Any] = list(messages)
    if format == "openai":
        return tuple(parse_openai(given))
    if format == "anthropic":
        return tuple(parse_anthropic(given))
    return tuple(parse_message(message, f"messages.{index}") for index, message in enumerate(given))


@dataclass(frozen=True, slots=True)
class ContextResult:
    """A context, and its forms to send."""

    context: Context

    @property
    def activated(self) -> Activated | None:
        return self.context.activated

    def to_openai(self) -> list[JsonObject]:
        """The complete list of chat messages, system first."""
        return to_openai(self.context)

    def to_anthropic(self) -> JsonObject:
        """`system` and `messages`, with cache breakpoints."""
        return to_anthropic(self.context)

    def to_om(self) -> list[JsonObject]:
        """Canonical messages."""
        return to_om(self.context)

    def to_json(self, format: str = "om") -> JsonObject:
        """The answer of `POST …/context`."""
        return context_to_json(self.context, format)


class Turn:
    """One turn of a thread: `start` with the user's message, `step` after each model step or tool result."""

    def __init__(self, memory: Memory, thread: str, resource: str | None, model: str | None) -> None:
        self._memory = memory
        self._thread = thread
        self._resource = resource
        self._model = model
        self._started = False
        self.context: ContextResult | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Close the turn. A turn that failed in the caller's code is closed too: its messages are stored."""
        if self._started:
            self._memory.append(self._thread, [], resource=self._resource, end_of_turn=True)

    def start(
        self, messages: Sequence[JsonObject | Message], *, format: str = "openai", **options: Any
    ) -> ContextResult:
        """Store the first messages of the turn; the context to answer them with."""
        return self._post(messages, format, options)

    def step(
        self, messages: Sequence[JsonObject | Message], *, format: str = "openai", **options: Any
    ) -> ContextResult:
        """Store what came since; the context for the next model call."""
        return self._post(messages, format, options)

    def _post(self, messages: Sequence[JsonObject | Message], format: str, options: dict[str, Any]) -> ContextResult:
        # What is new gets an id; a history that is sent whole is recognised by its content, as it brings none.
        request = StepRequest(
            thread=self._thread, resource=self._resource, messages=parse_messages(messages, format), model=self._model
        )
        result = self._memory.store(request)
        self._started = True
        self._resource = self._resource or result.thread.resource_id
        self.context = self._memory.context(self._thread, resource=self._resource, model=self._model, **options)
        return self.context
