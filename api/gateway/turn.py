"""One gateway request with memory: store what is new, make the prompt, store the reply.

Nothing of memory may cost the caller an answer: where it cannot do its part, the request goes on as it came, and the
answer's header `X-OM-Memory` says so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from starlette.concurrency import run_in_threadpool

from api.errors import DATABASE_ERRORS
from om_core.domain.errors import ConflictError, OmError
from om_core.domain.message import Role
from om_core.formats import parse_messages
from om_core.formats.fingerprint import fingerprint
from om_core.services.ingest import MOST_MESSAGES, StepRequest
from om_core.telemetry import described, get_logger

if TYPE_CHECKING:
    from collections.abc import Sequence

    from api.gateway.switch import Switch
    from om_core.domain.context import Context
    from om_core.domain.message import JsonObject, Message
    from om_core.memory import Memory

log = get_logger("om.gateway")

State: TypeAlias = Literal["on", "read_only", "unavailable", "diverged", "conflict"]
"""`unavailable`: no database. `diverged`: the request rewrites history. `conflict`: a known id, other content."""
SHORTER: Final = 0.6
"""Of the tokens that were too many, so many are tried once more."""


class GatewayTurn:
    """Memory's part in one request.

    Args:
        memory: of the request's tenant.
        switch: thread, resource, mode.
        format: `openai` or `anthropic`.
        model: the actor's, as the client names it.
    """

    def __init__(self, memory: Memory, switch: Switch, *, format: str, model: str) -> None:
        self._memory = memory
        self._switch = switch
        self._format = format
        self._model = model
        self._head_seq = 0
        self._resource = switch.resource
        self._ephemeral: tuple[Message, ...] = ()
        self.state: State = "read_only" if switch.mode == "read_only" else "on"
        self.context: Context | None = None
        """What to send; None: the request as it came."""

    async def begin(self, messages: Sequence[JsonObject], fallback_id: str | None) -> None:
        """Store the request's new messages and read the prompt.

        Args:
            messages: of the request, in its format.
            fallback_id: id of a single message that brings none, the same at every retry.

        Raises:
            InvalidInputError: a message is not of the format.
            NotFoundError, AmbiguousThreadError: as `Memory.context`.
        """
        parsed = parse_messages(list(messages), self._format)
        try:
            if self.state == "on":
                await run_in_threadpool(self._store, parsed, fallback_id)
            else:
                self._ephemeral = _since_the_question(parsed)
            if self.state in {"on", "read_only"}:
                self.context = await self._read()
        except ConflictError as error:
            self._give_up("conflict", error)
        except DATABASE_ERRORS as error:
            self._give_up("unavailable", error)

    async def shorten(self) -> bool:
        """After the provider found the prompt too long: activate what is ready, cut the rest; whether it is shorter."""
        before = self.context
        if before is None:
            return False
        try:
            if self.state == "on":
                await run_in_threadpool(self._memory.activate, self._switch.thread, resource=self._resource)
            self.context = await self._read(max_tokens=max(1, int(before.tokens.total * SHORTER)))
        except (*DATABASE_ERRORS, OmError) as error:
            log.warning("the prompt could not be shortened", thread=self._switch.thread, **described(error))
            return False
        return self.context.tokens.total < before.tokens.total

    async def finish(self, reply: JsonObject, *, end_of_turn: bool) -> None:
        """Store the reply. A failure is logged: the client sends the reply again with its next request."""
        if self.state != "on":
            return
        try:
            await run_in_threadpool(self._store_reply, reply, end_of_turn=end_of_turn)
        except (*DATABASE_ERRORS, OmError) as error:
            log.warning("a reply was not stored", thread=self._switch.thread, **described(error))

    async def _read(self, max_tokens: int | None = None) -> Context:
        found = await self._memory.context_async(
            self._switch.thread,
            resource=self._resource,
            model=self._model,
            max_tokens=max_tokens,
            read_only=self.state == "read_only",
            ephemeral=self._ephemeral,
        )
        return found.context

    def _store(self, messages: Sequence[Message], fallback_id: str | None) -> None:
        spoken = [message for message in messages if message.role is not Role.SYSTEM]
        # A longer history is known but for its end; a new one is taken over piece by piece.
        pieces = [spoken[at : at + MOST_MESSAGES] for at in range(0, len(spoken), MOST_MESSAGES)] or [[]]
        if len(pieces) > 1 and self._exists():
            pieces = [spoken[-MOST_MESSAGES:]]
        for piece in pieces:
            result = self._memory.store(
                StepRequest(
                    thread=self._switch.thread,
                    resource=self._resource,
                    messages=tuple(piece),
                    model=self._model,
                    fallback_ids=(fallback_id,) if fallback_id and len(piece) == 1 else (),
                )
            )
            self._resource = result.thread.resource_id
            self._head_seq = result.thread.head_seq
            if result.diverged_at_seq is not None:
                self.state = "diverged"
                log.warning(
                    "a request rewrites stored history and was passed on without memory",
                    thread=self._switch.thread,
                    seq=result.diverged_at_seq,
                )
                return

    def _exists(self) -> bool:
        try:
            self._memory.get_thread(self._switch.thread, resource=self._resource)
        except OmError:
            return False
        return True

    def _store_reply(self, reply: JsonObject, *, end_of_turn: bool) -> None:
        [message] = parse_messages([reply], self._format)
        known = fingerprint(message)
        # A client that was faster than its own stream has sent the reply back already.
        later = self._memory.messages(self._switch.thread, resource=self._resource, after_seq=self._head_seq)
        if any(fingerprint(row.message) == known for row in later):
            return
        self._memory.store(
            StepRequest(
                thread=self._switch.thread,
                resource=self._resource,
                messages=(message,),
                model=self._model,
                end_of_turn=end_of_turn,
            )
        )

    def _give_up(self, state: State, error: Exception) -> None:
        self.state, self.context = state, None
        log.warning("a request was passed on without memory", thread=self._switch.thread, **described(error))


def _since_the_question(messages: Sequence[Message]) -> tuple[Message, ...]:
    """From the newest user message on: what a request that stores nothing adds to what is stored."""
    at = max((index for index, message in enumerate(messages) if message.role is Role.USER), default=0)
    return tuple(message for message in messages[at:] if message.role is not Role.SYSTEM)
