"""`om keys` on real servers."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from tests.support.om_command import run_om
from tests.support.processes import environment

if TYPE_CHECKING:
    from pathlib import Path

    from om_core.config import Settings


def test_a_key_is_printed_once_listed_without_its_secret_and_revoked(settings: Settings, tmp_path: Path) -> None:
    om = partial(run_om, environment=environment(settings), folder=tmp_path)
    made = om("keys", "create", "my app", "--days", "30", "--json").json
    [listed] = om("keys", "list", "--json").json["items"]
    revoked = om("keys", "revoke", str(made["id"]), "--json").json

    assert made["key"].startswith(made["prefix"])
    assert (listed["name"], listed["state"]) == ("my app", "active")
    assert "key" not in listed
    assert revoked["state"] == "revoked"
