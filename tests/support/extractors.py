"""Functions of extractors that workers can import by name."""

from __future__ import annotations

import asyncio
from typing import Any

from pydantic import BaseModel

from om_core import ExtractionEvent, ExtractionRequest

seen: list[ExtractionEvent] = []
"""Events that the functions were given, for the test that cleared it."""


class Mood(BaseModel):
    """A schema as a Pydantic model."""

    word: str
    strength: int = 1


NOT_CALLABLE = 3


def ask_in_french(request: ExtractionRequest) -> str:
    """Instructions made when they are needed."""
    return f"Humeur de {request.resource} dans {request.thread}? Avant: {request.previous}."


def mood_schema(request: ExtractionRequest) -> type[BaseModel]:
    """A schema made when it is needed."""
    return Mood


def no_text(request: ExtractionRequest) -> Any:
    """Not what instructions are."""
    return 3


def note(event: ExtractionEvent) -> None:
    """Keep the value as it is."""
    seen.append(event)


def shout(event: ExtractionEvent) -> Any:
    """Replace the value."""
    return str(event.current).upper()


async def later(event: ExtractionEvent) -> Any:
    """Replace the value, asynchronously."""
    return await asyncio.to_thread("later {}".format, event.current)


def count_notes(event: ExtractionEvent) -> Any:
    """A value that no model is asked for."""
    return {"notes": str(event.observations).count("* "), "before": event.previous}


def as_model(event: ExtractionEvent) -> Any:
    """A Pydantic model in place of the value."""
    return Mood(word=str(event.current), strength=2)


def signal(event: ExtractionEvent) -> None:
    """Tell followers and the actor."""
    event.send_signal("mood", {"now": event.current})
    event.send_state_signal(f"Take care: {event.current}")


def fail(event: ExtractionEvent) -> Any:
    """A function with a mistake in it."""
    raise ValueError("nothing there, password=hunter2hunter2")


def not_json(event: ExtractionEvent) -> Any:
    """Something that cannot be stored."""
    return object()


def of_another_kind(event: ExtractionEvent) -> Any:
    """Something that the schema refuses."""
    return {"word": 3}
