"""What the demo found: the numbers of the report (API 1), and the same for people."""

from __future__ import annotations

import os
import shutil
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from api.cli.replaying import Replayed
    from om_core.domain.context import Context
    from om_core.domain.message import JsonObject, StoredMessage
    from om_core.memory import Memory

LEAST_ACTIVATIONS: Final = 3
LEAST_REFLECTIONS: Final = 1
EXCERPT_LINES: Final = {"preamble": 2, "reflection": 10, "log": 8}
"""Block -> lines shown of it."""
LINE_WIDTH: Final = 110


@dataclass(slots=True, kw_only=True)
class Measured:
    """A replay with its last context."""

    replayed: Replayed
    context: Context
    cacheable_share: float
    jobs: list[JsonObject] = field(default_factory=list)
    """Oldest first."""


def measure(memory: Memory, measured: Measured, *, seconds: Callable[[], float]) -> dict[str, Any]:
    """The report. Fills in the jobs of `measured`."""
    from api.cli.replaying import all_jobs
    from om_core.demo.score import context_text, joined, last_messages, share_of_facts

    done, context = measured.replayed, measured.context
    measured.jobs = list(all_jobs(memory, done.thread, done.resource))[::-1]
    chunks = all_chunks(memory, done)
    last = last_messages(all_messages(memory, done), context.tokens.total)
    coverage = done.coverage
    assert coverage is not None, "a finished replay was audited"
    return {
        "turns": done.turns,
        "messages": done.messages,
        "message_tokens": done.tokens,
        "activations": done.activations,
        "reflections": done.generation,
        "chunks": len(chunks),
        "compression": round(compression(chunks), 2),
        "evidence": {
            "kept": round(share_of_facts(context_text(context)), 4),
            "last_n": round(share_of_facts(joined([], [row.message for row in last])), 4),
            "tokens": context.tokens.total,
        },
        "cacheable_share": round(measured.cacheable_share, 4),
        "jobs": dict(done.jobs),
        "uncovered_messages": coverage.uncovered_messages,
        "doubly_covered_messages": coverage.doubly_covered_messages,
        "seconds": round(seconds(), 1),
    }


def compression(chunks: list[JsonObject]) -> float:
    """Tokens of the observed messages for one token of their notes."""
    notes = sum(chunk["tokens"] for chunk in chunks)
    return sum(chunk["message_tokens"] for chunk in chunks) / notes if notes else 0.0


def all_chunks(memory: Memory, done: Replayed) -> list[JsonObject]:
    """Every chunk of the thread, by range."""
    found: list[JsonObject] = []
    cursor: str | None = None
    while True:
        page = memory.observations(done.thread, resource=done.resource, state="all", cursor=cursor, limit=200)
        found += page.items
        cursor = page.next_cursor
        if cursor is None:
            return found


def all_messages(memory: Memory, done: Replayed) -> list[StoredMessage]:
    """Every message of the thread, by seq."""
    found: list[StoredMessage] = []
    while page := memory.messages(
        done.thread, resource=done.resource, after_seq=found[-1].seq if found else 0, limit=200
    ):
        found += page
    return found


def broken(report: dict[str, Any], measured: Measured) -> list[str]:
    """What a demo must not show."""
    coverage = measured.replayed.coverage
    faults = [
        ("fewer activations than expected", report["activations"] < LEAST_ACTIVATIONS),
        ("no reflection took effect", report["reflections"] < LEAST_REFLECTIONS),
        ("messages are uncovered", report["uncovered_messages"] > 0),
        ("messages are covered twice", report["doubly_covered_messages"] > 0),
        ("jobs had not ended in time", measured.replayed.waited_in_vain),
    ]
    misfits = list(coverage.misfits) if coverage is not None else []
    return [fault for fault, is_so in faults if is_so] + misfits


def print_report(measured: Measured, report: dict[str, Any], path: Path, *, model: str, lowered_to: int) -> None:
    """The report for people."""
    from api.cli.output import say

    evidence, done = report["evidence"], measured.replayed
    say()
    say("What the agent would see now")
    for line in _excerpt(measured.context):
        say(f"  {line}")
    say()
    say("What happened")
    rows = [
        (
            "conversation",
            f"{report['messages']:,} messages, {report['turns']:,} turns, {report['message_tokens']:,} tokens",
        ),
        ("activations", f"{report['activations']}, of {report['chunks']} chunks of notes"),
        ("reflections", f"{report['reflections']} (threshold lowered from 40,000 to {lowered_to:,} tokens of notes)"),
        ("compression", f"{report['compression']:.1f} tokens of messages per token of notes, by {model}"),
        ("facts kept", f"{evidence['kept']:.0%} in a context of {evidence['tokens']:,} tokens"),
        ("", f"{evidence['last_n']:.0%} in the newest raw messages of the same size"),
        ("cacheable", f"{report['cacheable_share']:.0%} of all prompt tokens repeat the prompt before, byte for byte"),
        ("uncovered", f"{report['uncovered_messages']} messages; covered twice: {report['doubly_covered_messages']}"),
        ("time", f"{report['seconds']:.0f} s"),
    ]
    for name, text in rows:
        say(f"  {name:<13} {text}")
    say()
    _print_jobs(measured.jobs)
    say()
    say(f"Look further (`{own_name()} up` in a second terminal keeps the servers running)")
    for command in ("show {} --context", "show {} --log", "status {}", "jobs"):
        say(f"  {own_name()} {command.format(done.thread)} --tenant demo")
    say(f"  {path}")


def own_name() -> str:
    """How to call this command from here: `om` where it is on the PATH, else by its file."""
    if shutil.which("om"):
        return "om"
    script = Path(sys.argv[0])
    if script.name != "om":
        return "om"
    return os.path.relpath(script) if script.is_relative_to(Path.cwd()) else str(script)


def _print_jobs(jobs: list[JsonObject]) -> None:
    from api.cli.output import print_table, say

    say("Jobs")
    rows = [
        (
            f"  {job['id']}",
            job["kind"],
            job["state"],
            f"{job['from_seq']}-{job['to_seq']}" if job["from_seq"] else "-",
            job["attempt"],
            job["input_tokens"],
            job["output_tokens"],
            job["reason"],
        )
        for job in jobs
    ]
    headers = ("  id", "kind", "state", "messages", "attempts", "tokens in", "tokens out", "because")
    print_table(headers, rows, right=("attempts", "tokens in", "tokens out"))


def _excerpt(context: Context) -> list[str]:
    """The head of the prompt: the first lines of its blocks, and how many raw messages follow."""
    lines: list[str] = []
    for kind, most in EXCERPT_LINES.items():
        blocks = [block for block in context.system if block.kind == kind]
        content = [line for block in blocks for line in block.text.splitlines() if line.strip()]
        if not content:
            continue
        lines.append(f"[{kind}, {sum(len(block.text) for block in blocks):,} characters]")
        lines += [f"  {line[:LINE_WIDTH]}{'…' if len(line) > LINE_WIDTH else ''}" for line in content[:most]]
        if len(content) > most:
            lines.append(f"  … {len(content) - most} more lines")
    tokens = context.tokens
    raw = sum(seq is not None for seq in context.message_seqs)
    lines.append(f"[{raw} raw messages: {context.observed_seq + 1} to {context.head_seq}, {tokens.messages:,} tokens]")
    lines.append(f"[all of it: {tokens.total:,} tokens, of which notes {tokens.log:,}]")
    return lines
