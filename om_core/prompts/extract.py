"""Asking for values: as sections of the Observer's and the Reflector's answer, and in a call of their own."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from om_core.ports import ModelRequest, PromptMessage
from om_core.prompts.notes import without_extract_marks
from om_core.prompts.quoting import clean_text, quote_block
from om_core.prompts.render import render_messages
from om_core.prompts.templating import fill, load_parts

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from om_core.domain.message import JsonObject
    from om_core.ports import AskedValue, ExtractMaterial, TextTokenizer

EXTRACT_VERSION: Final = "extract-1"
"""Stored with each job. A change of the template's bytes needs a new version."""
EXTRACT_TEMPLATE: Final = "extract_v1"


def value_sections(values: Sequence[AskedValue]) -> str:
    """What the instructions of another prompt say of them; nothing where none is asked for."""
    if not values:
        return ""
    parts = load_parts(EXTRACT_TEMPLATE)
    asked = (
        fill(parts["section"], name=_line(value.name), instructions=_text(value.instructions), slug=value.slug)
        for value in values
    )
    return "\n" + parts["sections"] + "\n" + "\n".join(asked)


def known_values(values: Iterable[AskedValue]) -> list[str]:
    """What is believed of them so far, as texts for the block `known`."""
    return [f"{value.slug}:\n{value.previous}" for value in values if value.previous.strip()]


def known_block(values: Iterable[AskedValue]) -> str:
    """The same as a part of its own; nothing where nothing is believed."""
    known = known_values(values)
    return fill(load_parts(EXTRACT_TEMPLATE)["known"], block=quote_block("known", "\n\n".join(known))) if known else ""


def build_extract_request(
    material: ExtractMaterial,
    *,
    model: str,
    settings: JsonObject,
    provider_options: JsonObject,
    tokenizer: TextTokenizer,
) -> ModelRequest:
    """The request whose answer `parse_values` reads. Same arguments, same bytes."""
    return ModelRequest(
        phase="extract",
        model=model,
        prompt=(
            PromptMessage(role="system", content=_system(material)),
            PromptMessage(role="user", content=_user(material, tokenizer)),
        ),
        material=material,
        settings=settings,
        provider_options=provider_options,
        prompt_version=EXTRACT_VERSION,
    )


def working_memory_instructions(template: str | None) -> str:
    """What the Observer is told of the document it keeps: text after a template, or (None) an object."""
    parts = load_parts(EXTRACT_TEMPLATE)
    if template is None:
        return parts["working_memory_object"]
    return fill(parts["working_memory_text"], template=template)


def _system(material: ExtractMaterial) -> str:
    parts = load_parts(EXTRACT_TEMPLATE)
    asked = (
        fill(
            parts["value"],
            slug=value.slug,
            name=_line(value.name),
            instructions=_text(value.instructions),
            schema=json.dumps(value.schema or {"type": "string"}, ensure_ascii=False),
        )
        for value in material.values
    )
    return parts["main"] + "\n" + "\n".join(asked)


def _user(material: ExtractMaterial, tokenizer: TextTokenizer) -> str:
    parts = load_parts(EXTRACT_TEMPLATE)
    texts = [known_block(material.values)]
    if (notes := without_extract_marks(material.notes)).strip():
        texts.append(fill(parts["notes"], block=quote_block("notes", notes)))
    if material.messages:
        history = render_messages(material.messages, timezone=material.timezone, tokenizer=tokenizer)
        if material.most_tokens is not None:
            history = tokenizer.truncate(history, material.most_tokens)
        texts.append(fill(parts["history"], block=quote_block("history", history)))
    names = ", ".join(value.slug for value in material.values)
    texts.append(fill(parts["again" if material.again else "task"], names=names))
    return "\n\n".join(filter(None, texts))


def _line(text: str) -> str:
    return " ".join(clean_text(text).split())


def _text(text: str) -> str:
    return clean_text(text).strip()
