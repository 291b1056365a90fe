"""Request bodies (API 3). Messages are checked by `om_core.formats`, which names the field that is wrong."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AwareDatetime, Field

from api.schemas.fields import (
    MAX_SEQ,
    MAX_WAIT_S,
    CleanObject,
    CleanText,
    FormatName,
    Id,
    Mode,
    ModelName,
    Strict,
    Tokens,
)

Messages = list[dict[str, Any]]


class ThreadBody(Strict):
    """Absent fields are kept, null clears, `metadata` is merged key by key."""

    resource_id: Id
    title: Annotated[CleanText, Field(max_length=1_000)] | None = None
    metadata: CleanObject | None = None
    timezone: Annotated[str, Field(max_length=64)] | None = Field(None, description="IANA name, as in Europe/Paris.")
    scope: Literal["thread", "resource"] | None = Field(None, description="Fixed when the thread is created.")
    config: CleanObject | None = Field(None, description="Options of this memory, over those of the installation.")
    version: Annotated[int, Field(ge=0, le=MAX_SEQ)] | None = Field(
        None, description="The version that was read; a stale one is 409."
    )


class ContextOptions(Strict):
    """Which context."""

    format: FormatName | None = Field(None, description="Form of `messages` and `ephemeral`.")
    model: ModelName | None = Field(None, description="The actor's model: its window is the cap.")
    max_tokens: Tokens | None = Field(None, description="Cap in tokens; wins over the model's window.")
    read_only: bool = Field(default=False, description="Show only: activate, wait for and store nothing.")
    ephemeral: Messages = Field(default=[], description="Messages for this context alone, in the volatile tail.")
    now: AwareDatetime | None = Field(None, description="The caller's time; affects rendering only.")


class ContextBody(ContextOptions):
    """Body of `POST …/context`."""

    resource_id: Id | None = None
    memory: Mode | None = Field(None, description="Mode; the stricter of this and X-OM-Mode.")


class MessagesBody(Strict):
    """One step: messages to store, and what to do with them."""

    resource_id: Id | None = Field(None, description="Needed to create the thread.")
    format: FormatName | None = Field(None, description="Absent: recognised; `parts` means `om`.")
    messages: Messages
    model: ModelName | None = Field(None, description="The actor's model.")
    end_of_turn: bool = False
    on_divergence: Literal["report", "rewind"] = "report"
    context: ContextOptions | None = Field(None, description="Asks for the context in the same answer.")
    memory: Mode | None = Field(None, description="Mode; the stricter of this and X-OM-Mode.")


class WorkingMemoryBody(Strict):
    """A whole document, in place of the one before."""

    resource_id: Id | None = None
    content: CleanText | CleanObject = Field(description="Text, or an object for JSON; an empty one clears it.")
    format: Literal["markdown", "json"] | None = Field(None, description="Absent: as the content is.")
    version: Annotated[int, Field(ge=0, le=MAX_SEQ)] | None = Field(
        None, description="The version that was read, 0 for none; a stale one is 409."
    )


class WorkingMemoryChangeBody(Strict):
    """The arguments of the agent's tool."""

    resource_id: Id | None = None
    memory: CleanText | CleanObject = Field(description="Text replaces the document, an object is merged into it.")


class KeyBody(Strict):
    """A new key."""

    name: Annotated[CleanText, Field(min_length=1, max_length=100)] = Field(description="To recognise it by.")
    resource_id: Id | None = Field(None, description="Only for this resource.")
    thread: Id | None = Field(None, description="Only for this thread of the resource.")
    read_only: bool = False
    days: Annotated[float, Field(gt=0, le=36_500, allow_inf_nan=False)] | None = Field(
        None, description="Until it expires; absent: never."
    )


class WaitBody(Strict):
    """Body of work asked for by hand."""

    resource_id: Id | None = None
    wait_s: Annotated[float, Field(ge=0, le=MAX_WAIT_S, allow_inf_nan=False)] | None = Field(
        None, description="Seconds to wait for the result."
    )


class ReflectBody(WaitBody):
    """Body of `POST …/reflect`."""

    guidance: Annotated[CleanText, Field(max_length=10_000)] | None = Field(
        None, description="What the Reflector should mind."
    )


class WebhookBody(Strict):
    """Where to send events, and which."""

    url: Annotated[str, Field(min_length=1, max_length=2_000)]
    types: Annotated[list[str], Field(max_length=20)] = Field(default=[], description="Absent: every type.")
    resource_id: Id | None = Field(None, description="Only events of this resource.")


class RewindBody(Strict):
    """How far back."""

    resource_id: Id | None = None
    to_seq: Annotated[int, Field(ge=0, le=MAX_SEQ, description="The last message that stays; 0: none.")]


class CloneBody(Strict):
    """The thread to make."""

    thread: Id = Field(description="Its id; there is none of this name yet.")
    resource_id: Id | None = Field(None, description="Its resource; absent: that of the original.")
    to_seq: Annotated[int, Field(ge=0, le=MAX_SEQ)] | None = Field(
        None, description="The last message that is taken over; absent: all."
    )
