"""Contexts as a client reads them, each checked against what that client knows (DESIGN 2.1, 2.5, 2.6)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from om_core.domain.validate_context import check_context
from om_core.services.context import ContextRequest, get_context
from om_core.testing.scripted_replies import traces
from tests.fuzz.world import RESOURCE, TENANT, Dialogue, Told, World, text_of

if TYPE_CHECKING:
    from om_core.domain.context import Context
    from om_core.services.deps import Services


def read_context(
    world: World, services: Services, dialogue: Dialogue, *, max_tokens: int | None, read_only: bool, wait: bool
) -> None:
    """One context call; what it must not miss is what was answered before it began.

    A client asks for one context after the other, so a call beside another one only looks (`read_only`).
    """
    stored = set(dialogue.stored)
    lives = dialogue.lives
    first = not dialogue.reading
    seen = dialogue.seen
    request = ContextRequest(
        thread=dialogue.name,
        resource=RESOURCE,
        max_tokens=max_tokens,
        read_only=read_only or not first,
        wait=wait,
    )
    dialogue.reading = True
    if not request.read_only:
        dialogue.seen = None  # if this client dies, nobody knows what it was told
    try:
        found = get_context(services, world.waiter, TENANT, request)  # type: ignore[arg-type]  # the fuzz's own waiter
    finally:
        dialogue.reading = dialogue.reading and not first
    world.findings += [f"context: {problem}" for problem in check_context(found)]
    if found.trimmed is None and (lost := stored & dialogue.stored - shown(found)):
        world.findings.append(f"context: {sorted(lost)} stored before it, neither raw nor in the log")
    if request.read_only or lives != dialogue.lives or dialogue.ending:
        return
    known = seen if seen is not None and seen.lives == lives else None
    if known is not None and found.prefix_changed is None and not _extends(known.context, found) and world.one_reader:
        world.findings.append("context: the stable part changed, and nothing was said")
    dialogue.seen = Told(found, lives)


def shown(context: Context) -> set[str]:
    """Traces that a model would see."""
    texts = [block.text for block in context.system] + [text_of(message) for message in context.messages]
    return {trace for text in texts for trace in traces(text)}


def _extends(before: Context, after: Context) -> bool:
    stable = before.stable_messages
    return before.system == after.system and before.messages[:stable] == after.messages[:stable]
