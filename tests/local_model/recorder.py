"""What a model was asked and what it wrote, kept while the pipeline uses it."""

from __future__ import annotations

import json
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from om_core.ports import ObserverMaterial, ReflectorMaterial
from om_core.prompts.parse import ObserverOutput, ReflectorOutput, parse_observer, parse_reflector
from om_core.prompts.render import plain_words

if TYPE_CHECKING:
    from threading import Event

    from om_core.ports import LanguageModel, ModelReply, ModelRequest


@dataclass(frozen=True)
class Call:
    """One answered call; what the parser makes of the answer is in `outcome`."""

    phase: str
    text: str
    finish_reason: str | None
    outcome: str
    reason: str | None
    input_tokens: int
    output_tokens: int
    seconds: float


def _read(request: ModelRequest, reply: ModelReply) -> ObserverOutput | ReflectorOutput:
    """The answer as the pipeline reads it."""
    if isinstance(request.material, ReflectorMaterial):
        return parse_reflector(reply.text, finish_reason=reply.finish_reason, source=request.material.log)
    assert isinstance(request.material, ObserverMaterial)
    return parse_observer(reply.text, finish_reason=reply.finish_reason, source=plain_words(request.material.messages))


@dataclass
class Recorder:
    """Implements `ports.LanguageModel` by another one. Each answer is a line of the file `kept` at once, to be looked at;
    `errors` counts calls that raised.
    """

    inner: LanguageModel
    kept: Path
    calls: list[Call] = field(default_factory=list)
    errors: Counter[str] = field(default_factory=Counter)

    def complete(self, request: ModelRequest, *, timeout_s: float, cancelled: Event | None = None) -> ModelReply:
        started = time.perf_counter()
        try:
            reply = self.inner.complete(request, timeout_s=timeout_s, cancelled=cancelled)
        except Exception as error:
            self.errors[f"{type(error).__name__}: {str(error)[:80]}"] += 1
            raise
        output = _read(request, reply)
        call = Call(
            phase=request.phase,
            text=reply.text,
            finish_reason=reply.finish_reason,
            outcome="empty" if output.outcome == "valid" and not output.notes else output.outcome,
            reason=output.reason,
            input_tokens=reply.input_tokens,
            output_tokens=reply.output_tokens,
            seconds=time.perf_counter() - started,
        )
        self.calls.append(call)
        with self.kept.open("a", encoding="utf-8") as file:
            file.write(json.dumps(vars(call), ensure_ascii=False) + "\n")
        return reply

    def window_tokens(self, model: str) -> int | None:
        return self.inner.window_tokens(model)
