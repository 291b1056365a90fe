"""`om replay`: transcripts through the whole pipeline, as if they were live."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from api.cli.options import AsJson, Tenant

if TYPE_CHECKING:
    from collections import Counter

    from api.cli.replaying import Replayed
    from om_core.memory import Memory
    from om_core.transcripts.model import Transcript

Files = Annotated[list[Path], typer.Argument(metavar="FILE...", exists=True, readable=True, help="Transcripts.")]
Format = Annotated[
    str, typer.Option("--format", metavar="F", help="auto, claude-code, openai, anthropic, om, locomo or longmemeval.")
]
ThreadOption = Annotated[
    str | None, typer.Option("--thread", metavar="T", help="Thread to replay into (default: the transcript's own id).")
]
Owner = Annotated[
    str | None, typer.Option("--resource", metavar="R", help="Owner of the thread (default: the transcript's own).")
]
Speed = Annotated[
    float | None,
    typer.Option(
        "--speed", metavar="X", min=0.001, help="1 keeps the pauses of the transcript, 10 makes them shorter."
    ),
]
Most = Annotated[int | None, typer.Option("--limit", metavar="N", min=1, help="At most so many messages per file.")]


def replay(
    files: Files,
    format: Format = "auto",
    thread: ThreadOption = None,
    resource: Owner = None,
    speed: Speed = None,
    limit: Most = None,
    tenant: Tenant = None,
    as_json: AsJson = False,
) -> None:
    """Import transcripts and run them as if live: one POST per step, the context after each.

    Replaying a file again adds nothing. Without --speed, it waits after each step for the jobs that became due.
    """
    from api.cli.connect import open_memory
    from om_core.transcripts.reader import read

    transcripts = [(path, read(path, format, limit=limit)) for path in files]
    _check_one_thread(thread, [transcript for _, transcript in transcripts])
    with open_memory(tenant, ring=True) as memory:
        done = [
            (path, transcript, _replay_one(memory, transcript, thread, resource, speed))
            for path, transcript in transcripts
        ]
    if as_json:
        _emit(done)
    else:
        for path, transcript, replayed in done:
            _summarise(path, transcript, replayed)
    if any(one.coverage is not None and not one.coverage.holds for _, _, replayed in done for one in replayed):
        raise typer.Exit(1)


def _check_one_thread(thread: str | None, transcripts: list[Transcript]) -> None:
    count = sum(len(transcript.conversations) for transcript in transcripts)
    if thread is not None and count > 1:
        raise typer.BadParameter(f"{count} conversations do not fit into one thread: leave --thread out")


def _replay_one(
    memory: Memory, transcript: Transcript, thread: str | None, resource: str | None, speed: float | None
) -> list[Replayed]:
    from api.cli.output import note
    from api.cli.progress import progress
    from api.cli.replaying import Replayer

    replayed: list[Replayed] = []
    for conversation in transcript.conversations:
        with progress(conversation.thread_suggestion[:24], len(conversation.messages)) as advance:
            replayer = Replayer(
                memory, speed=speed, on_step=lambda done, step, context: advance(len(step.messages), done.activations)
            )
            if not replayer.has_workers:
                note("notice: no worker was seen in the last 15 seconds; messages wait for `om worker`")
            replayed.append(replayer.replay(conversation, thread=thread, resource=resource))
    return replayed


def _emit(done: list[tuple[Path, Transcript, list[Replayed]]]) -> None:
    from api.cli.output import emit_json

    items: list[dict[str, Any]] = [
        {
            "file": str(path),
            "format": transcript.format,
            "skipped": dict(transcript.skipped),
            "threads": [one.to_json() for one in replayed],
        }
        for path, transcript, replayed in done
    ]
    emit_json({"items": items})


def _summarise(path: Path, transcript: Transcript, replayed: list[Replayed]) -> None:
    from api.cli.output import say

    say(f"{path.name}: {transcript.format}, {len(replayed)} thread{'s' if len(replayed) != 1 else ''}")
    if transcript.skipped:
        say(f"  skipped      {counted(transcript.skipped)}")
    for one in replayed:
        for line in summary_lines(one):
            say(f"  {line}")


def summary_lines(one: Replayed) -> list[str]:
    """A replayed thread for people."""
    found = one.coverage
    known = f", {one.duplicates:,} known already" if one.duplicates else ""
    lines = [
        f"thread       {one.thread} of {one.resource}",
        f"messages     {one.messages:,} new ({one.tokens:,} tokens){known}, {one.turns:,} turns",
        f"activations  {one.activations}, reflections {one.generation}",
        f"jobs         {counted(one.jobs) or 'none'}",
    ]
    if found is not None:
        lines.append(
            f"coverage     {found.uncovered_messages} uncovered, {found.doubly_covered_messages} doubly covered"
        )
        lines += [f"misfit       {misfit}" for misfit in found.misfits]
    if one.waited_in_vain:
        lines.append("notice       some jobs had not ended in time; see `om jobs`")
    return lines


def counted(counter: Counter[str]) -> str:
    """`completed 12, discarded 1`."""
    return ", ".join(f"{name} {count:,}" for name, count in sorted(counter.items()))
