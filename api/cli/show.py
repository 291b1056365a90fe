"""`om show`: one thread from inside: the prompt, the log, the messages, the chunks, the generations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from api.cli.options import AsJson, Limit, Resource, Tenant, Thread

if TYPE_CHECKING:
    from rich.console import Console

    from om_core.domain.context import Context
    from om_core.memory import Memory

MORE = "… {} more, oldest left out: --limit"
DIFF_STYLES = {"added": ("+", "green"), "removed": ("-", "red"), "same": (" ", ""), "gap": ("…", "dim")}
STYLES = {"system": "magenta", "user": "cyan", "assistant": "green", "tool": "yellow"}


def show(  # noqa: PLR0913, PLR0917 - the options of a command
    thread: Thread,
    context: Annotated[bool, typer.Option("--context", help="The prompt as the agent gets it (default).")] = False,
    log: Annotated[bool, typer.Option("--log", help="The visible notes with their positions and messages.")] = False,
    messages: Annotated[bool, typer.Option("--messages", help="The newest stored messages.")] = False,
    chunks: Annotated[bool, typer.Option("--chunks", help="Every chunk, buffered and active.")] = False,
    reflections: Annotated[
        bool,
        typer.Option("--reflections", help="Every generation, what it changed, and the messages behind it."),
    ] = False,
    limit: Limit = 50,
    resource: Resource = None,
    tenant: Tenant = None,
    as_json: AsJson = False,
) -> None:
    """Show a thread: its context, its log, its messages, its chunks or its generations. Changes nothing."""
    from api.cli.connect import open_memory

    views = {"log": log, "messages": messages, "chunks": chunks, "reflections": reflections}
    chosen = [name for name, given in views.items() if given]
    if len(chosen) + context > 1:
        raise typer.BadParameter("choose one of --context, --log, --messages, --chunks and --reflections")
    with open_memory(tenant) as memory:
        if not chosen:
            _show_context(memory, thread, resource, as_json=as_json)
        elif chosen == ["log"]:
            _show_log(memory, thread, resource, as_json=as_json)
        elif chosen == ["messages"]:
            _show_messages(memory, thread, resource, limit, as_json=as_json)
        elif chosen == ["reflections"]:
            _show_reflections(memory, thread, resource, limit, as_json=as_json)
        else:
            _show_chunks(memory, thread, resource, as_json=as_json)


def _show_context(memory: Memory, thread: str, resource: str | None, *, as_json: bool) -> None:
    from api.cli.output import console, emit_json

    found = memory.context(thread, resource=resource, read_only=True, wait=False)
    if as_json:
        emit_json(found.to_json("om"))
    else:
        print_context(console(), found.context)


def print_context(out: Console, context: Context) -> None:
    """Blocks and messages in order; a rule where the stable part ends, and where the volatile tail begins."""
    from rich.text import Text

    from om_core.demo.score import message_text

    for block in context.system:
        out.print(
            Text(f"── system · {block.kind}{'' if block.cacheable else ' · not cacheable'}", style="bold magenta")
        )
        out.print(Text(block.text))
    tail = len(context.messages) - context.volatile_messages
    for index, message in enumerate(context.messages):
        if index == context.stable_messages:
            out.print(Text("━━ the stable part ends here", style="bold red"))
        if index == tail and context.volatile_messages:
            out.print(Text("━━ volatile tail", style="bold red"))
        seq = context.message_seqs[index] if index < len(context.message_seqs) else None
        name = f"{message.role.value}{f' · {message.author}' if message.author else ''}"
        place = f"seq {seq}" if seq is not None else "added by memory"
        out.print(Text(f"── {name} · {place}", style=f"bold {STYLES[message.role.value]}"))
        out.print(Text(message_text(message)))
    tokens = context.tokens
    out.print(
        Text(
            f"{tokens.total:,} tokens: notes {tokens.log:,}, messages {tokens.messages:,}; generation "
            f"{context.generation}; observed to {context.observed_seq} of {context.head_seq}",
            style="dim",
        )
    )


def _show_log(memory: Memory, thread: str, resource: str | None, *, as_json: bool) -> None:
    from rich.text import Text

    from api.cli.output import console, emit_json

    generations = memory.reflections(thread, resource=resource, limit=200).items
    base = next((one for one in generations if one["state"] == "active"), None)
    after = base["through_position"] if base else 0
    chunks = [one for one in _chunks(memory, thread, resource, "active") if one["position"] > after]
    if as_json:
        emit_json({"reflection": base, "chunks": chunks})
        return
    out = console()
    if base:
        title = f"── generation {base['generation']} · positions 1 to {after} · {base['tokens']:,} tokens"
        out.print(Text(title, style="bold magenta"))
        out.print(Text(base["text"]))
    for chunk in chunks:
        title = f"── position {chunk['position']} · messages {chunk['from_seq']} to {chunk['to_seq']}"
        extra = f" · {chunk['kind']}{' · stale' if chunk['stale'] else ''} · {chunk['tokens']:,} tokens"
        out.print(Text(title + extra, style="bold green"))
        out.print(Text(chunk["text"]))
    if not base and not chunks:
        out.print("no notes are visible yet")


def _show_reflections(memory: Memory, thread: str, resource: str | None, limit: int, *, as_json: bool) -> None:
    from rich.text import Text

    from api.cli.output import console, emit_json

    page = memory.reflections(thread, resource=resource, limit=limit)
    found = [memory.reflection(thread, one["generation"], resource=resource) for one in page.items]
    if as_json:
        emit_json({"items": found, "next_cursor": page.next_cursor})
        return
    out = console()
    for one in reversed(found):
        title = f"── generation {one['generation']} · {one['state']} · {one['input_tokens']:,} tokens became"
        out.print(Text(f"{title} {one['tokens']:,} · against {one['against'] or 'nothing'}", style="bold magenta"))
        for source in one["new_sources"]:
            place = f"messages {source['from_seq']} to {source['to_seq']} of {source['thread']}"
            out.print(Text(f"   {place}, in {source['chunks']} chunks", style="dim"))
        for line in one["diff"]:
            mark, style = DIFF_STYLES[line["op"]]
            out.print(Text(f"{mark} {line['text']}", style=style))
    if not found:
        out.print("the log was never condensed: it has not reached its threshold")
    if page.next_cursor:
        out.print(Text("… older generations left out: --limit", style="dim"))


def _show_messages(memory: Memory, thread: str, resource: str | None, limit: int, *, as_json: bool) -> None:
    from rich.text import Text

    from api.cli.output import console, emit_json
    from om_core.demo.score import message_text
    from om_core.services.views import message_view

    head = memory.get_thread(thread, resource=resource).head_seq
    rows = memory.messages(thread, resource=resource, before_seq=head + 1, limit=limit)
    if as_json:
        emit_json({"items": [message_view(row) for row in rows], "next_cursor": None})
        return
    out = console()
    if rows and rows[0].seq > 1:
        out.print(Text(MORE.format(rows[0].seq - 1), style="dim"))
    for row in rows:
        title = f"── {row.seq} · {row.role.value} · {row.tokens:,} tokens · {row.created_at:%Y-%m-%d %H:%M:%S%z}"
        out.print(Text(title, style=f"bold {STYLES[row.role.value]}"))
        out.print(Text(message_text(row.message)))


def _show_chunks(memory: Memory, thread: str, resource: str | None, *, as_json: bool) -> None:
    from api.cli.output import emit_json, print_table

    chunks = _chunks(memory, thread, resource, "all")
    if as_json:
        emit_json({"items": chunks, "next_cursor": None})
        return
    rows = [
        (
            chunk["id"],
            chunk["state"],
            chunk["kind"] + (" (stale)" if chunk["stale"] else ""),
            chunk["position"],
            f"{chunk['from_seq']}-{chunk['to_seq']}",
            chunk["message_tokens"],
            chunk["tokens"],
            chunk["model"],
        )
        for chunk in chunks
    ]
    headers = ("id", "state", "kind", "position", "messages", "message tokens", "tokens", "model")
    print_table(headers, rows, right=("id", "position", "message tokens", "tokens"))


def _chunks(memory: Memory, thread: str, resource: str | None, state: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    cursor: str | None = None
    while True:
        page = memory.observations(thread, resource=resource, state=state, cursor=cursor, limit=200)
        found += page.items
        cursor = page.next_cursor
        if cursor is None:
            return found
