"""The bytes of the prompts. When one of these fails on purpose: raise the version constant, name the template file
after it, and write the golden file anew with `OM_WRITE_GOLDEN=1`."""

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from om_core.domain.message import Image, Role
from om_core.ports import AskedValue, ExtractMaterial, ReflectorMaterial
from om_core.prompts.extract import (
    EXTRACT_TEMPLATE,
    EXTRACT_VERSION,
    build_extract_request,
    value_sections,
    working_memory_instructions,
)
from om_core.prompts.observer import OBSERVER_TEMPLATE, OBSERVER_VERSION, build_observer_request
from om_core.prompts.reflector import LEVELS, REFLECTOR_TEMPLATE, REFLECTOR_VERSION, build_reflector_request
from tests.unit.prompt_samples import FourCharTokens, sample_material, stored

GOLDEN = Path(__file__).resolve().parent.parent / "golden"


def observer(instruction=None, *, attachments=None, **asks):
    return build_observer_request(
        sample_material(**asks),
        model="m",
        settings={"temperature": 0.3},
        provider_options={},
        instruction=instruction,
        tokenizer=FourCharTokens(),
        attachments=attachments,
    )


def with_gap_and_image():
    picture = stored(1, Role.USER, Image(data="QUJD", mime_type="image/png"))
    gaps = ((1, "2 days 3 hours later — 2023-05-08 13:57+02:00"),)
    return observer(messages=(picture,), gaps=gaps, attachments=lambda _: True)


def reflector(level):
    material = ReflectorMaterial(log="Date: May 8, 2023\n* 🔴 (13:57) User moved.", level=level, target_tokens=4_000)
    return build_reflector_request(material, model="m", settings={}, provider_options={}, instruction=None)


def reflector_user(level):
    return reflector(level).prompt[1].content


MOOD = AskedValue(slug="mood", name="Mood", instructions="How does the user feel?", previous="calm")
PLAN = AskedValue(
    slug="plan", name="Plan", instructions="What is next?", schema={"type": "array", "items": {"type": "string"}}
)


def extract(*, again=False):
    material = ExtractMaterial(
        values=(MOOD, PLAN),
        notes="Date: May 8, 2023\n* 🔴 (13:57) User moved.",
        messages=sample_material().messages[:2],
        most_tokens=1_000,
        again=again,
    )
    return build_extract_request(material, model="m", settings={}, provider_options={}, tokenizer=FourCharTokens())


ALL_ASKED = {"ask_suggested_response": True, "ask_thread_title": True, "target_tokens": 500}
TEXTS: dict[str, Callable[[], Any]] = {
    "observer_system.txt": lambda: observer(ask_current_task=False).prompt[0].content,
    "observer_system_all.txt": lambda: observer("Note every price.", **ALL_ASKED).prompt[0].content,
    "observer_system_gap_and_image.txt": lambda: with_gap_and_image().prompt[0].content,
    "observer_user_gap_and_image.txt": lambda: with_gap_and_image().prompt[1].content[0]["text"],
    "observer_user.txt": lambda: observer(**ALL_ASKED).prompt[1].content,
    "reflector_system.txt": lambda: reflector(0).prompt[0].content,
    **{f"reflector_user_{level}.txt": partial(reflector_user, level) for level in LEVELS},
    "extract_sections.txt": lambda: value_sections([MOOD, PLAN]),
    "extract_system.txt": lambda: extract().prompt[0].content,
    "extract_user.txt": lambda: extract().prompt[1].content,
    "extract_user_again.txt": lambda: extract(again=True).prompt[1].content,
    "extract_working_memory_text.txt": lambda: working_memory_instructions("# Name:"),
    "extract_working_memory_object.txt": lambda: working_memory_instructions(None),
}
VERSIONS = {
    "observer": (OBSERVER_VERSION, OBSERVER_TEMPLATE),
    "reflector": (REFLECTOR_VERSION, REFLECTOR_TEMPLATE),
    "extract": (EXTRACT_VERSION, EXTRACT_TEMPLATE),
}


@pytest.mark.conforms("4.2")
@pytest.mark.parametrize("name", TEXTS)
def test_the_bytes_of_a_prompt_change_only_together_with_its_version(name):
    phase = name.split("_")[0]
    version, template = VERSIONS[phase]
    path = GOLDEN / f"{template}" / name
    text = TEXTS[name]()
    if os.environ.get("OM_WRITE_GOLDEN"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8", newline="\n")

    assert path.exists(), f"{path.name}: no golden file for {version}; write it with OM_WRITE_GOLDEN=1"
    assert text == path.read_text(encoding="utf-8"), (
        f"{path.name} differs: raise {phase.upper()}_VERSION ({version}) in om_core/prompts/{phase}.py and name the "
        f"template after it, then write the golden files with OM_WRITE_GOLDEN=1"
    )


@pytest.mark.parametrize("phase", VERSIONS)
def test_version_and_template_carry_the_same_number(phase):
    version, template = VERSIONS[phase]

    assert version.replace("-", "_v") == template
