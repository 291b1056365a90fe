"""What every test may use. Fixtures of one kind of test live in the conftest of its folder."""

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """Return the folder of real conversations: OM_TEST_DATA, or ../shared/data beside the checkout."""
    folder = Path(os.environ.get("OM_TEST_DATA") or ROOT.parent / "shared" / "data")
    if folder.is_dir():
        return folder
    message = f"no test data at {folder}: set OM_TEST_DATA to the folder of real conversations"
    if os.environ.get("CI", "").lower() in {"1", "true"}:
        pytest.fail(message, pytrace=False)
    pytest.skip(message)
