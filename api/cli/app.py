"""The command tree. A command's module imports only what its signature needs; the work is imported when it runs."""

from __future__ import annotations

import typer

from api.cli.config import config
from api.cli.demo import demo
from api.cli.doctor import doctor
from api.cli.jobs import jobs
from api.cli.keys import keys
from api.cli.processes import api, beat, flower, migrate, up, worker
from api.cli.reading import status, threads
from api.cli.removing import forget, rewind
from api.cli.replay import replay
from api.cli.show import show
from api.cli.usage import usage
from api.cli.watch import watch
from api.cli.work import activate, flush, observe, reflect

app = typer.Typer(
    name="om",
    help="Observational Memory: long memory for LLM agents. Settings: OM_* or om.toml; see `om config`.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)

START = "Start"
LOOK = "Look"
WORK = "Work by hand"
OPERATE = "Operate"

app.command("demo", rich_help_panel=START)(demo)
app.command("up", rich_help_panel=START)(up)
app.command("replay", rich_help_panel=START)(replay)

app.command("threads", rich_help_panel=LOOK)(threads)
app.command("status", rich_help_panel=LOOK)(status)
app.command("show", rich_help_panel=LOOK)(show)
app.command("watch", rich_help_panel=LOOK)(watch)
app.command("usage", rich_help_panel=LOOK)(usage)

app.command("observe", rich_help_panel=WORK)(observe)
app.command("reflect", rich_help_panel=WORK)(reflect)
app.command("activate", rich_help_panel=WORK)(activate)
app.command("flush", rich_help_panel=WORK)(flush)
app.command("rewind", rich_help_panel=WORK)(rewind)
app.command("forget", rich_help_panel=WORK)(forget)
app.add_typer(jobs, name="jobs", rich_help_panel=WORK)

app.command("doctor", rich_help_panel=OPERATE)(doctor)
app.add_typer(keys, name="keys", rich_help_panel=OPERATE)
app.command("config", rich_help_panel=OPERATE)(config)
app.command("migrate", rich_help_panel=OPERATE)(migrate)
app.command("worker", rich_help_panel=OPERATE)(worker)
app.command("beat", rich_help_panel=OPERATE)(beat)
app.command("api", rich_help_panel=OPERATE)(api)
app.command("flower", rich_help_panel=OPERATE)(flower)
