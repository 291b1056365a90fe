"""A model that answers at once, so that what is measured is everything around it."""

from __future__ import annotations

from threading import Event

from om_core.ports import ModelReply, ModelRequest

NOTES = """<observations>
Date: May 4, 2026
* 🔴 (09:12) The user decided that the invoice goes to the Berlin office on Friday.
* 🟡 (09:20) The assistant changed the delivery address and confirmed it by mail.
* 🟢 (09:31) Maria asked about the missing boxes and was told that they arrive next week.
</observations>
<current-task>
Confirm the delivery date with the warehouse.
</current-task>"""


class InstantModel:
    """Implements `LanguageModel`: the same three notes, whatever is asked."""

    def complete(self, request: ModelRequest, *, timeout_s: float, cancelled: Event | None = None) -> ModelReply:
        return ModelReply(
            text=NOTES, model=request.model, input_tokens=2_500, output_tokens=90, cost_usd=0.0, finish_reason="stop"
        )

    def window_tokens(self, model: str) -> int | None:
        return 1_000_000
