"""The exceptions to the house rules, each with its reason: a path (or a folder ending in /) and why."""

SLEEP = {
    "om_core/embedded/": "operating-system processes are polled until they listen",
}

WALL_CLOCK = {
    "om_core/clock.py": "the one implementation of the Clock port",
}

PRINT = {
    "api/cli/": "the command line talks to a person",
    "api/cli.py": "the command line talks to a person",
    "om_core/embedded/supervisor.py": "a process of its own whose output is its log",
}

LONG_MODULE = {
    "om_core/store/migrations/versions/": "a migration is one change of the schema, however large, and never edited later",
}

SKIP_OR_TODO = {
    "tests/conftest.py": "the real conversations are optional on a developer's machine and required in CI",
    "tests/support/browser.py": "a browser is optional on a developer's machine and required in CI",
    "tests/local_model/test_local_model.py": "a real model is asked for with `make local-model` only: it takes a quarter of an hour",
    "tests/integration/test_embedded_users.py": "only root can become another user, where that user reaches Python",
}

QUOTED_TEXT = {
    "om_core/demo/": "a real conversation, quoted byte for byte",
    "tests/golden/": "real conversations and prompts, quoted byte for byte",
}

BINARY_SUFFIXES = {
    ".gz": "compressed conversations",
    ".png": "pictures of the dashboard and the documentation",
    ".ico": "the dashboard's icon",
    ".woff2": "the dashboard's typeface",
}

TOP_LEVEL = {
    "pyproject.toml": "metadata and tool settings",
    "om_core": "the library",
    "workers": "the Celery application",
    "api": "HTTP, dashboard and command line",
    "deploy": "images and manifests",
    "tests": "all tests and measurements",
    "Makefile": "the commands",
    "README.md": "the start",
}

TOP_LEVEL_OPTIONAL = {
    "requirements.lock": "exact versions",
    "LICENSE": "Apache-2.0",
    "CHANGELOG.md": "what changes for users",
    ".ci": "what CI runs",
}


def is_allowed(path: str, allowed: dict[str, str]) -> bool:
    """Tell whether the list names the path itself or a folder above it."""
    return any(path == entry or (entry.endswith("/") and path.startswith(entry)) for entry in allowed)
