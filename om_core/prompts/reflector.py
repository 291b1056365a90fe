"""The Reflector's request: the log as quoted data, and how strongly to condense it (DESIGN 6.8)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from om_core.ports import ModelRequest, PromptMessage
from om_core.prompts.extract import known_block, value_sections
from om_core.prompts.notes import without_extract_marks
from om_core.prompts.quoting import clean_text, quote_block
from om_core.prompts.templating import fill, load_parts

if TYPE_CHECKING:
    from om_core.domain.message import JsonObject
    from om_core.ports import ReflectorMaterial

REFLECTOR_VERSION: Final = "reflector-1"
"""Stored with each job. A change of the template's bytes needs a new version."""
REFLECTOR_TEMPLATE: Final = "reflector_v1"
LEVELS: Final = range(5)
"""0 no guidance, 1 about 8/10 of the detail, 2 about 6/10, 3 about 4/10, 4 about 2/10."""


def build_reflector_request(
    material: ReflectorMaterial,
    *,
    model: str,
    settings: JsonObject,
    provider_options: JsonObject,
    instruction: str | None,
) -> ModelRequest:
    """The request whose answer `parse_reflector` reads. Same arguments, same bytes.

    Raises:
        ValueError: a level outside 0 to 4.
    """
    if material.level not in LEVELS:
        raise ValueError(f"level: {material.level} is not a level of condensing; use 0 to 4")
    parts = load_parts(REFLECTOR_TEMPLATE)
    system = parts["main"] + value_sections(material.values)
    for name, text in (("instruction", instruction), ("guidance", material.guidance)):
        if text and text.strip():
            system += "\n" + fill(parts[name], **{name: clean_text(text).strip()})
    return ModelRequest(
        phase="reflect",
        model=model,
        prompt=(
            PromptMessage(role="system", content=system),
            PromptMessage(role="user", content=_user_text(material)),
        ),
        material=material,
        settings=settings,
        provider_options=provider_options,
        prompt_version=REFLECTOR_VERSION,
    )


def _user_text(material: ReflectorMaterial) -> str:
    parts = load_parts(REFLECTOR_TEMPLATE)
    notes = fill(parts["notes"], block=quote_block("notes", without_extract_marks(material.log)))
    level = parts[f"level_{material.level}"].rstrip("\n")
    task = fill(parts["task"], tokens=f"{material.target_tokens:,}", level=level)
    return "\n\n".join(filter(None, (notes, known_block(material.values), task)))
