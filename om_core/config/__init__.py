"""Settings of a process (environment `OM_*` over om.toml over defaults) and the option tree inside them (API 2).

Importing this costs little: pydantic-settings is loaded by `load_settings`, the policy rules live in `om_core.options`.
"""

from __future__ import annotations

from om_core.config.checks import ModelChoice, check_auth_binding, choose_model
from om_core.config.loading import load_settings, unknown_variables, variable_of
from om_core.config.secrets import Secret, SecretUrl, mask_url
from om_core.config.settings import SettingRow, Settings, Source, describe
from om_core.options import resolve_policy

__all__ = [
    "ModelChoice",
    "Secret",
    "SecretUrl",
    "SettingRow",
    "Settings",
    "Source",
    "check_auth_binding",
    "choose_model",
    "describe",
    "load_settings",
    "mask_url",
    "resolve_policy",
    "unknown_variables",
    "variable_of",
]
