"""The Observer's request: instructions in the system role, everything else as quoted data (DESIGN 7)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from om_core.ports import ModelRequest, PromptMessage
from om_core.prompts.attachments import attachment_blocks
from om_core.prompts.extract import known_values, value_sections
from om_core.prompts.notes import without_extract_marks
from om_core.prompts.quoting import clean_text, quote_block
from om_core.prompts.render import render_history
from om_core.prompts.templating import fill, load_parts

if TYPE_CHECKING:
    from om_core.domain.message import JsonObject
    from om_core.ports import ObserverMaterial, TextTokenizer
    from om_core.prompts.attachments import Accepts
    from om_core.prompts.render import History

OBSERVER_VERSION: Final = "observer-1"
"""Stored with each job. A change of the template's bytes needs a new version."""
OBSERVER_TEMPLATE: Final = "observer_v1"


def build_observer_request(
    material: ObserverMaterial,
    *,
    model: str,
    settings: JsonObject,
    provider_options: JsonObject,
    instruction: str | None,
    tokenizer: TextTokenizer,
    attachments: Accepts | None = None,
) -> ModelRequest:
    """The request whose answer `parse_observer` reads. Same arguments, same bytes.

    The caller keeps the range within the model's window; here only tool payloads are bounded. Images and files that
    `attachments` accepts follow the text; without it only their placeholders are sent.
    """
    history = render_history(
        material.messages,
        timezone=material.timezone,
        tokenizer=tokenizer,
        open_calls=material.open_calls,
        gaps=dict(material.gaps),
    )
    user = _user_text(material, history)
    blocks = list(attachment_blocks(history.attachments, attachments)) if attachments else []
    content: str | list[JsonObject] = [{"type": "text", "text": user}, *blocks] if blocks else user
    return ModelRequest(
        phase="observe",
        model=model,
        prompt=(
            PromptMessage(role="system", content=system_prompt(material, instruction, attached=bool(blocks))),
            PromptMessage(role="user", content=content),
        ),
        material=material,
        settings=settings,
        provider_options=provider_options,
        prompt_version=OBSERVER_VERSION,
    )


def system_prompt(material: ObserverMaterial, instruction: str | None, *, attached: bool = False) -> str:
    """The instructions, with a part for each thing the material asks for or brings, and the installation's rules."""
    parts = load_parts(OBSERVER_TEMPLATE)
    brought = [name for name, there in (("gaps", bool(material.gaps)), ("attachments", attached)) if there]
    text = "".join([parts["main"], *("\n" + parts[name] for name in (*brought, *_asked(material)))])
    text += value_sections(material.values)
    if instruction and instruction.strip():
        text += "\n" + fill(parts["instruction"], instruction=clean_text(instruction).strip())
    return text


def _asked(material: ObserverMaterial) -> list[str]:
    wanted = {
        "current_task": material.ask_current_task,
        "suggested_response": material.ask_suggested_response,
        "thread_title": material.ask_thread_title,
    }
    return [name for name, asked in wanted.items() if asked]


def _user_text(material: ObserverMaterial, history: History) -> str:
    parts = load_parts(OBSERVER_TEMPLATE)
    texts: list[str] = []
    if (earlier := without_extract_marks(material.prior_notes)).strip():
        texts.append(fill(parts["prior_notes"], block=quote_block("earlier-notes", earlier)))
    if known := _known(material):
        texts.append(fill(parts["known"], block=quote_block("known", known)))
    texts.append(fill(parts["history"], block=quote_block("history", history.text)))
    names = ["observations", *(name.replace("_", "-") for name in _asked(material))]
    names += [value.slug for value in material.values]
    tokens = material.target_tokens
    length = fill(parts["length"], tokens=f"{tokens:,}") if tokens else ""
    texts.append(fill(parts["task"], sections=", ".join(names), length=length))
    return "\n\n".join(texts)


def _known(material: ObserverMaterial) -> str:
    """What was believed before, where it helps to answer: no hints where none are asked for (DESIGN 6.6)."""
    lines = []
    if material.ask_current_task and material.current_task:
        lines.append(f"Current task: {material.current_task}")
    if material.ask_thread_title and material.thread_title:
        lines.append(f"Title: {material.thread_title}")
    return "\n".join([*lines, *known_values(material.values)])
