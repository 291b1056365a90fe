"""`om config`: what is in effect, and where it came from."""

from __future__ import annotations

from api.cli.options import AsJson


def config(as_json: AsJson = False) -> None:
    """Print every setting and option with its effective value and source; secrets are masked."""
    from api.cli.output import emit_json, note, print_table
    from om_core.config import describe, load_settings, unknown_variables, variable_of

    settings = load_settings()
    rows = describe(settings)
    warnings = unknown_variables()
    if as_json:
        items = [{"name": row.name, "value": row.value_masked, "source": row.source} for row in rows]
        emit_json({"items": items, "warnings": warnings})
        return
    lines = [
        (
            row.name,
            row.value_masked or "-",
            row.source,
            "" if row.name.startswith("options.") else variable_of(row.name),
        )
        for row in rows
    ]
    print_table(("setting", "value", "source", "variable"), lines)
    for warning in warnings:
        note(f"warning: {warning}")
