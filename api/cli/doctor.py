"""`om doctor`: what works, what does not, and how to fix it."""

from __future__ import annotations

import typer

from api.cli.options import AsJson

STYLES = {"ok": "green", "warn": "yellow", "fail": "bold red"}


def doctor(as_json: AsJson = False) -> None:
    """Check database, schema, roles, Redis, workers, model keys, clock and stuck jobs; exit code 1 if one fails."""
    from api.cli.checks import run_checks
    from api.cli.output import console, emit_json
    from om_core.config import load_settings

    findings = run_checks(load_settings())
    failed = any(finding.state == "fail" for finding in findings)
    if as_json:
        items = [
            {"check": finding.name, "state": finding.state, "detail": finding.detail, "fix": finding.fix}
            for finding in findings
        ]
        emit_json({"items": items, "ok": not failed})
    else:
        from rich.text import Text

        out = console()
        for finding in findings:
            out.print(
                Text.assemble((f"{finding.state:<5}", STYLES[finding.state]), f" {finding.name:<9} {finding.detail}")
            )
            if finding.fix:
                out.print(Text(f"                fix: {finding.fix}"))
    if failed:
        raise typer.Exit(1)
