"""What the supervisor tells its clients: a state file for the start, a status over the control socket later."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Literal

from om_core.embedded.layout import write_json

if TYPE_CHECKING:
    from om_core.embedded.layout import Layout

ServiceName = Literal["postgres", "redis"]
SERVICE_NAMES: tuple[ServiceName, ...] = ("postgres", "redis")
Phase = Literal["starting", "ready", "failed", "stopping"]


@dataclass(frozen=True)
class State:
    """Content of the state file; `sockets` is empty until the folder is known."""

    phase: Phase
    pid: int = field(default_factory=os.getpid)
    sockets: str = ""
    paused: tuple[str, ...] = ()
    error: str = ""

    def write(self, layout: Layout) -> None:
        """Publish this state."""
        write_json(layout.state_file, asdict(self))


def read_state(layout: Layout) -> State | None:
    """Return the published state, or None; only meaningful while the supervisor's lock is held."""
    try:
        return State(**json.loads(layout.state_file.read_text()))
    except (OSError, ValueError, TypeError):
        return None


@dataclass(frozen=True)
class ServiceStatus:
    """One server as the supervisor sees it; `starts` counts launches by this supervisor (0: adopted)."""

    pid: int | None
    answering: bool
    paused: bool
    starts: int


@dataclass(frozen=True)
class Status:
    """The supervisor and its servers."""

    supervisor_pid: int
    postgres: ServiceStatus
    redis: ServiceStatus
