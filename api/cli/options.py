"""Options that several commands share, with one help text each."""

from __future__ import annotations

from typing import Annotated, TypeAlias

import typer

Tenant: TypeAlias = Annotated[
    str | None, typer.Option("--tenant", metavar="T", help="Whose memory (default: OM_TENANT, else `default`).")
]
Resource: TypeAlias = Annotated[
    str | None, typer.Option("--resource", metavar="R", help="The thread's owner, where several have this thread id.")
]
AsJson: TypeAlias = Annotated[bool, typer.Option("--json", help="One JSON document on stdout, nothing else.")]
Thread: TypeAlias = Annotated[str, typer.Argument(metavar="THREAD", help="Id of the thread.")]
Limit: TypeAlias = Annotated[int, typer.Option("--limit", metavar="N", min=1, max=200, help="At most so many.")]
Cursor: TypeAlias = Annotated[
    str | None, typer.Option("--cursor", metavar="C", help="Go on where a list ended: its `next_cursor`.")
]
Wait: TypeAlias = Annotated[
    float, typer.Option("--wait", metavar="SECONDS", min=0, help="Wait so long for the result; 0: only ask.")
]
