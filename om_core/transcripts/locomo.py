"""LoCoMo: long dialogues of two people, in dated sessions.

One conversation per sample, its sessions in order; speaker A is the user, speaker B the assistant, both named as
author. A message's time is its session's date and one minute for each message before it; captions of pictures become
text.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from om_core.domain.errors import InvalidInputError
from om_core.domain.message import Json, JsonObject, Message
from om_core.formats.canonical import parse_message
from om_core.formats.fields import dump_time
from om_core.transcripts.times import loose_time

if TYPE_CHECKING:
    from collections.abc import Iterator

    from om_core.transcripts.model import Conversation, Tally
    from om_core.transcripts.source import Source

METADATA: Final = "locomo"
_SESSION: Final = re.compile(r"session_([0-9]{1,6})")
_STEP: Final = timedelta(minutes=1)


def is_sample(value: Json) -> bool:
    return (
        isinstance(value, dict) and isinstance(value.get("conversation"), dict) and "speaker_a" in value["conversation"]
    )


def read_locomo(source: Source, tally: Tally) -> Iterator[Conversation]:
    """One conversation for each sample."""
    document = source.document()
    samples = document if isinstance(document, list) else [document]
    for index, sample in enumerate(samples):
        if tally.is_full:
            return
        if not is_sample(sample):
            tally.skip("unknown record")
            continue
        name = sample["sample_id"] if isinstance(sample.get("sample_id"), str) else f"{source.stem}-{index}"
        conversation = tally.conversation(name, name, _messages(sample["conversation"], tally), timezone="UTC")
        if conversation is not None:
            yield conversation


def _messages(dialogue: JsonObject, tally: Tally) -> list[Message]:
    numbers = sorted(int(match[1]) for name in dialogue if (match := _SESSION.fullmatch(name)))
    dated = [name for name in dialogue if name.endswith("_date_time")]
    tally.skip("date without session", sum(name.removesuffix("_date_time") not in dialogue for name in dated))
    messages: list[Message] = []
    for number in numbers:
        session = dialogue[f"session_{number}"]
        start = loose_time(dialogue.get(f"session_{number}_date_time"))
        for index, entry in enumerate(session if isinstance(session, list) else []):
            message = _message(entry, dialogue, number, None if start is None else start + index * _STEP)
            if message is None:
                tally.skip("invalid message")
            else:
                messages.append(message)
    return messages


def _message(entry: Json, dialogue: JsonObject, session: int, when: datetime | None) -> Message | None:
    if not isinstance(entry, dict) or not isinstance(entry.get("text"), str):
        return None
    parts: list[JsonObject] = [{"type": "text", "text": entry["text"]}]
    if isinstance(entry.get("blip_caption"), str):
        parts.append({"type": "text", "text": f"[image: {entry['blip_caption']}]"})
    raw: JsonObject = {
        "role": "assistant" if entry.get("speaker") == dialogue.get("speaker_b") else "user",
        "author": entry.get("speaker"),
        "parts": parts,
        "id": entry.get("dia_id"),
        "created_at": None if when is None else dump_time(when),
        "metadata": {METADATA: {"session": session, "dia_id": entry.get("dia_id")}},
    }
    try:
        return parse_message(raw)
    except InvalidInputError:
        return None
