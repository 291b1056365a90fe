"""What every test may use. Fixtures of one kind of test live in the conftest of its folder."""

import logging
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from om_core.telemetry import HANDLER
from tests.support.data import data_folder

ALONE = ("tests/faults/", "tests/fuzz/")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """How the tests are shared out where several processes run them, as in `make test`.

    A file stays in one process, whose fixtures serve all of it; the long cases of fuzz and faults share nothing but
    servers, and go one by one. Slow tests begin first, so that none is left for the end.
    """
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)
    for item in items:
        if not item.nodeid.startswith(ALONE):
            item.add_marker(pytest.mark.xdist_group(item.location[0]))


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
