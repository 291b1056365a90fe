"""What every test may use. Fixtures of one kind of test live in the conftest of its folder."""

import logging
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from om_core.telemetry import HANDLER
from tests.support.data import data_folder


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """How the tests are shared out where several processes run them, as in `make test`.

    A file stays in one process, whose fixtures serve all of it. Slow tests mostly drive processes of their own: they
    begin first, and one process has them all, so that they do not disturb each other.
    """
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)
    for item in items:
        if item.get_closest_marker("xdist_group") is None:
            group = "slow" if item.get_closest_marker("slow") else item.location[0]
            item.add_marker(pytest.mark.xdist_group(group))


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """Return the folder of real conversations: OM_TEST_DATA, or ../shared/data beside the checkout."""
    folder = data_folder()
    if folder.is_dir():
        return folder
    message = f"no test data at {folder}: set OM_TEST_DATA to the folder of real conversations"
    if os.environ.get("CI", "").lower() in {"1", "true"}:
        pytest.fail(message, pytrace=False)
    pytest.skip(message)


@pytest.fixture(autouse=True)
def root_logger() -> Iterator[None]:
    """Leave logging as it was: processes configure it once, tests of them would configure it for all others."""
    root = logging.getLogger()
    level = root.level
    yield
    root.handlers = [handler for handler in root.handlers if handler.get_name() != HANDLER]
    root.setLevel(level)
