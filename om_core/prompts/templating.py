"""Versioned templates: one file per prompt, cut into named parts by lines `=== name ===`."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

_PART: Final = re.compile(r"^=== ([a-z0-9_]+) ===\n", re.MULTILINE)
_SLOT: Final = re.compile(r"\{\{([a-z_]+)\}\}")


@cache
def load_parts(template: str) -> Mapping[str, str]:
    """The parts of `templates/<template>.md` by name, each without its final line feed.

    Raises:
        FileNotFoundError: no such template.
    """
    text = files(__package__).joinpath("templates", f"{template}.md").read_text(encoding="utf-8")
    pieces = _PART.split(text)[1:]
    return {name: body.removesuffix("\n") for name, body in zip(pieces[::2], pieces[1::2], strict=True)}


def fill(part: str, **values: str) -> str:
    """The part with each `{{name}}` replaced once; a value is never searched for slots itself.

    Raises:
        KeyError: the part names a slot without a value.
    """
    return _SLOT.sub(lambda match: values[match[1]], part)
