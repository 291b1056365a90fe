"""`offline/extractive`: an Observer and a Reflector without a network, deterministic, no dependencies (DESIGN 7)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from om_core.domain.errors import RetryLaterError, SetupError
from om_core.domain.message import Role, text_of
from om_core.domain.policy import OFFLINE_MODEL
from om_core.llm.names import OFFLINE_PROVIDER
from om_core.llm.offline_observe import notes_of, read_range, select
from om_core.llm.offline_reflect import reflect
from om_core.llm.offline_text import sentences, terse, words
from om_core.ports import ExtractMaterial, ModelReply, ObserverMaterial, ReflectorMaterial
from om_core.prompts.notes import EXTRACT_MARK
from om_core.prompts.quoting import clean_text, escape_tags
from om_core.prompts.redact import redact_messages
from om_core.prompts.render import one_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from threading import Event

    from om_core.domain.message import JsonObject, StoredMessage
    from om_core.ports import ModelRequest

WINDOW_TOKENS: Final = 1_000_000
_MOST: Final = 100
_TASK_CHARS: Final = 240
_TASK_WORDS: Final = 2
"""A message with fewer content words (thanks, yes) is no task."""
_TITLE_WORDS: Final = 5
_ROUNDS: Final = 8
_SNUG: Final = 0.985
"""Notes that take this share of the wanted size are near enough to it."""
_UNTIMED: Final = 8
"""From this compression on, the words of a talk are worth more than the times of day at which they were said."""
_AIM: Final = 0.993


class OfflineModel:
    """Implements `LanguageModel`. Reads the request's material; the rendered prompt is only counted.

    Args:
        count_tokens: the tokens of a text.
    """

    def __init__(self, *, count_tokens: Callable[[str], int]) -> None:
        self._count = count_tokens

    def complete(self, request: ModelRequest, *, timeout_s: float, cancelled: Event | None = None) -> ModelReply:
        """Answer in the form of the prompts; the time limit is not needed.

        Raises:
            RetryLaterError: `cancelled` is set.
            SetupError: the model is not `offline/extractive`, or its compression is no number from 1 to 100.
        """
        if request.model != OFFLINE_MODEL:
            raise SetupError(f"{request.model}: there is one offline model, {OFFLINE_MODEL}; set that name")
        if cancelled is not None and cancelled.is_set():
            raise RetryLaterError("the call was cancelled before it began")
        text = self._answer(request)
        prompt = (message.content for message in request.prompt)
        return ModelReply(
            text=text,
            model=OFFLINE_MODEL,
            input_tokens=sum(self._count(content) for content in prompt if isinstance(content, str)),
            output_tokens=self._count(text),
            cost_usd=0.0,
            finish_reason="stop",
        )

    def window_tokens(self, model: str) -> int | None:
        """A million: it reads any range at once."""
        return WINDOW_TOKENS

    def _answer(self, request: ModelRequest) -> str:
        match request.material:
            case ObserverMaterial() as material:
                return self._observe(material, compression_of(request.provider_options))
            case ReflectorMaterial() as material:
                return f"<observations>\n{reflect(material, self._count)}\n</observations>"
            case ExtractMaterial():
                return "{}"  # it picks sentences, and works nothing out

    def _observe(self, material: ObserverMaterial, compression: float | None) -> str:
        texts = [f"<observations>\n{_quoted(self._notes(material, compression))}\n</observations>"]
        hints = (
            ("current-task", material.ask_current_task, _current_task(material.messages)),
            ("suggested-response", material.ask_suggested_response, _suggested_response(material)),
            ("thread-title", material.ask_thread_title, material.thread_title or _title(material.messages)),
        )
        texts.extend(f"<{tag}>\n{_quoted(value)}\n</{tag}>" for tag, asked, value in hints if asked and value)
        return "\n".join(texts)

    def _notes(self, material: ObserverMaterial, compression: float | None) -> str:
        """Notes of about the wanted size: estimated, counted, and chosen again where the estimate was off."""
        found = read_range(
            material.messages, timezone=material.timezone, open_calls=material.open_calls, count=self._count
        )
        known = frozenset(words(material.prior_notes))
        target = material.target_tokens
        if target is None and compression is not None:
            target = int((found.prose_tokens + found.tool_tokens) / compression)
        prose, tools = found.budgets(target)
        wanted = prose + tools
        timed = found.prose_tokens + found.tool_tokens < _UNTIMED * wanted or found.is_work
        best = ""
        for _ in range(_ROUNDS):
            notes = notes_of(select(found, prose, tools, known), timed=timed)
            size = self._count(notes)
            if size <= wanted or not best:
                best = notes
            if _SNUG * wanted <= size <= wanted:
                break
            prose, tools = (int(budget * _AIM * wanted / max(1, size)) for budget in (prose, tools))
        return best


def compression_of(provider_options: JsonObject) -> float | None:
    """`compression` in the section `offline`: tokens of messages per token of notes; None where it is not set.

    Raises:
        SetupError: it is no number from 1 to 100.
    """
    section = provider_options.get(OFFLINE_PROVIDER) or {}
    wanted = section.get("compression") if isinstance(section, dict) else None
    if wanted is None:
        return None
    if isinstance(wanted, bool) or not isinstance(wanted, int | float) or not 1 <= wanted <= _MOST:
        raise SetupError(f"provider_options.offline.compression = {wanted!r}: set a number from 1 to {_MOST}")
    return float(wanted)


def _quoted(text: str) -> str:
    """The text, without what our parser would take for a section: it repeats words of anybody."""
    return escape_tags(clean_text(text))


def extract_short(messages: Iterable[StoredMessage], max_tokens: int, *, timezone: str = "UTC") -> str:
    """What stands for a range whose notes could not be made: marked, dated, about `max_tokens` long (DESIGN 6.7)."""
    found = read_range(redact_messages(messages), timezone=timezone)
    share = found.prose_tokens / max(1, found.prose_tokens + found.tool_tokens)
    room = max(0, max_tokens - 24)
    notes = _quoted(notes_of(select(found, round(room * max(share, 0.5)), round(room * min(1 - share, 0.5)))))
    day, _, rest = notes.partition("\n")
    mark = f"* 🟢 {EXTRACT_MARK}"
    return f"{day}\n{mark}\n{rest}" if rest else mark


def _questions(messages: Iterable[StoredMessage]) -> list[str]:
    said = (text_of(message.parts) for message in messages if message.role is Role.USER and not message.removed)
    return [text for text in said if text.strip()]


def _current_task(messages: Sequence[StoredMessage]) -> str | None:
    """The newest thing a user asked for, in a few words. None where no user speaks: unknown does not erase known."""
    asked = _questions(messages)
    telling = (text for text in reversed(asked) if len(words(text[:_TASK_CHARS])) >= _TASK_WORDS)
    newest = next(telling, asked[-1] if asked else None)
    return _brief(newest) if newest else None


def _brief(text: str) -> str:
    kept = ""
    for sentence in sentences(text):
        if kept and len(kept) + len(sentence) > _TASK_CHARS:
            break
        kept = f"{kept} {sentence}".strip()
    return kept if len(kept) <= _TASK_CHARS else f"{kept[: _TASK_CHARS - 1].rstrip()}…"


def _suggested_response(material: ObserverMaterial) -> str | None:
    if material.open_calls:
        return f"Wait for the result of {one_line(material.open_calls[-1].name)}, then go on."
    live = [message for message in material.messages if not message.removed]
    if live and live[-1].is_question and (asked := _questions(live[-1:])):
        return f"Answer the user: {_brief(asked[0])}"
    return None


def _title(messages: Sequence[StoredMessage]) -> str | None:
    """The first telling words of the first request."""
    for text in _questions(messages):
        for sentence in sentences(text):
            found = [word for word in terse(sentence).split() if len(word) < 40]
            if len(found) >= 2:
                return " ".join(found[:_TITLE_WORDS])
    return None
