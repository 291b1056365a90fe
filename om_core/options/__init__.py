"""User-facing options (a tree of names) and their translation into a resolved MemoryPolicy (DESIGN 6)."""

from __future__ import annotations

from om_core.options.codec import policy_from_json, policy_to_json
from om_core.options.extractors import Extractor
from om_core.options.models import ModelByInputTokens
from om_core.options.resolve import resolve_policy

__all__ = ["Extractor", "ModelByInputTokens", "policy_from_json", "policy_to_json", "resolve_policy"]
