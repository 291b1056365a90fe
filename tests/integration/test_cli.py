"""The commands on real servers, as processes: reading, replay, doctor; what they print and how they end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from om_core.config import Settings
from om_core.memory import Memory
from om_core.store.engine import PostgresStore
from tests.support.om_command import OM, Ran, run_om
from tests.support.processes import environment
from tests.support.servers import Servers
from tests.support.services import conversation, settings_services

Om = Callable[..., Ran]


@pytest.fixture
def om(settings: Settings, tmp_path: Path) -> Om:
    """Run `om` with the test's settings."""
    return partial(run_om, environment=environment(settings), folder=tmp_path)


@pytest.fixture
def talked(settings: Settings) -> Iterator[Memory]:
    """A thread with ten messages, of which nothing is observed: there is no worker."""
    with settings_services(settings) as services:
        memory = Memory(services)
        memory.append("trip", conversation(10), resource="ana")
        yield memory


@contextmanager
def database(settings: Settings) -> Iterator[PostgresStore]:
    assert settings.database_url is not None
    store = PostgresStore(settings.database_url.reveal(), pool_size=1)
    try:
        yield store
    finally:
        store.close()


def sql(settings: Settings, *statements: str) -> None:
    """Run statements as the owner of the database."""
    with database(settings) as store, store.engine.connect() as connection:
        for statement in statements:
            connection.exec_driver_sql(statement)


def checks(ran: Ran, name: str) -> list[dict[str, str]]:
    return [item for item in ran.json["items"] if item["check"] == name]


@pytest.mark.usefixtures("talked")
@pytest.mark.parametrize(
    "arguments",
    [
        ("threads",),
        ("threads", "--resource", "ana", "--limit", "1"),
        ("status", "trip"),
        ("status", "trip", "--resource", "ana"),
        ("show", "trip"),
        ("show", "trip", "--context"),
        ("show", "trip", "--log"),
        ("show", "trip", "--messages"),
        ("show", "trip", "--chunks"),
        ("show", "trip", "--reflections"),
        ("jobs",),
        ("jobs", "--state", "available", "--kind", "observe", "--thread", "trip"),
        ("doctor",),
        ("config",),
    ],
    ids=" ".join,
)
def test_a_reading_command_prints_for_people_and_one_document_for_programs(om: Om, arguments: tuple[str, ...]) -> None:
    people, program = om(*arguments), om(*arguments, "--json")

    assert (people.code, program.code) == (0, 0), people.err + program.err
    assert people.out.strip()
    assert isinstance(program.json, dict)
    assert program.err == ""


@pytest.mark.usefixtures("talked")
@pytest.mark.parametrize(
    ("arguments", "code", "word"),
    [
        (("status", "nowhere"), 1, "no thread 'nowhere'"),
        (("status", "trip", "--resource", "bob"), 1, "of resource 'bob'"),
        (("status", "trip", "--tenant", "other"), 1, "no thread 'trip'"),
        (("show", "nowhere"), 1, "no thread"),
        (("show", "nowhere", "--log"), 1, "no thread"),
        (("watch", "nowhere"), 1, "no thread"),
        (("jobs", "retry", "999"), 1, "no job 999"),
        (("jobs", "retry", "1"), 1, "only discarded"),
        (("jobs", "cancel", "999"), 1, "no job 999"),
        (("threads", "--cursor", "nonsense"), 2, "cursor"),
        (("observe", "nowhere"), 1, "no thread"),
    ],
)
def test_a_failure_is_one_line_and_an_exit_code(om: Om, arguments: tuple[str, ...], code: int, word: str) -> None:
    ran = om(*arguments)

    assert (ran.code, ran.out) == (code, "")
    assert ran.err.startswith("error: ")
    assert word in ran.err
    assert len(ran.err.splitlines()) == 1


@pytest.mark.usefixtures("talked")
def test_threads_and_status_tell_what_is_stored(om: Om) -> None:
    [thread] = om("threads", "--json").json["items"]
    status = om("status", "trip", "--json").json

    assert (thread["id"], thread["resource_id"], thread["head_seq"]) == ("trip", "ana", 10)
    assert status["pending_tokens"] == thread["pending_tokens"] > 0
    assert "no worker was seen" in status["why_idle"]["workers"]
    assert om("threads", "--tenant", "other", "--json").json["items"] == []


@pytest.mark.usefixtures("talked")
def test_show_prints_the_context_as_the_agent_gets_it(om: Om) -> None:
    text, found = om("show", "trip").out, om("show", "trip", "--json").json

    assert [f"TRACE-{n} " in text for n in range(1, 11)] == [True] * 10
    assert "seq 1" in text
    assert len(found["messages"]) >= 10
    assert found["head_seq"] == 10


@pytest.mark.usefixtures("talked")
def test_show_messages_prints_the_newest_and_says_what_it_left_out(om: Om) -> None:
    ran = om("show", "trip", "--messages", "--limit", "2")

    assert "TRACE-10 " in ran.out
    assert "TRACE-8 " not in ran.out
    assert "8 more" in ran.out
    assert [row["seq"] for row in om("show", "trip", "--messages", "--limit", "2", "--json").json["items"]] == [9, 10]


@pytest.mark.usefixtures("talked")
def test_watch_prints_lines_where_there_is_no_terminal_and_ends_in_time(om: Om) -> None:
    ran = om("watch", "trip", "--for", "0.1")

    assert ran.code == 0
    assert "messages " in ran.out
    assert "/2,000" in ran.out


@pytest.mark.usefixtures("talked")
def test_watch_on_a_terminal_draws_bars_until_ctrl_c(settings: Settings, tmp_path: Path) -> None:
    ours, theirs = os.openpty()
    process = subprocess.Popen(
        [*OM, "watch", "trip"],
        env=environment(settings, TERM="xterm", COLUMNS="120"),
        cwd=tmp_path,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    os.close(theirs)
    shown = read_until(ours, "2,000 tokens")
    process.send_signal(signal.SIGINT)

    shown += read_until(ours, None)
    os.close(ours)
    assert process.wait(timeout=30) == 130
    assert "░" in shown
    assert "Traceback" not in shown


def read_until(terminal: int, word: str | None) -> str:
    """What a terminal shows until a word comes, or until its last writer is gone."""
    shown = b""
    while word is None or word.encode() not in shown:
        try:
            part = os.read(terminal, 4096)
        except OSError:  # how Linux reports the end of a terminal
            break
        if not part:
            break
        shown += part
    return shown.decode(errors="replace")


def test_cancelling_a_job_and_asking_again(om: Om, talked: Memory) -> None:
    [job] = om("jobs", "--json").json["items"]

    assert om("jobs", "cancel", str(job["id"]), "--json").json["state"] == "cancelled"
    assert om("jobs", "--state", "cancelled", "--json").json["items"][0]["id"] == job["id"]
    asked = om("observe", "trip", "--wait", "0", "--json")
    assert (asked.code, asked.json["reason"]) == (0, "due")


@pytest.mark.report("K05")
@pytest.mark.usefixtures("talked")
def test_asking_for_work_that_nobody_does_ends_with_1(om: Om) -> None:
    ran = om("observe", "trip", "--wait", "0.2")

    assert ran.code == 1
    assert "has not ended within 0.2 s" in ran.err


def test_discarded_jobs_run_again(om: Om, settings: Settings, talked: Memory) -> None:
    sql(settings, "UPDATE jobs SET state = 'discarded', finished_at = now()")
    [job] = om("jobs", "--state", "discarded", "--json").json["items"]

    assert [one["id"] for one in om("jobs", "retry", "--state", "discarded", "--json").json["items"]] == [job["id"]]
    assert om("jobs", "--json").json["items"][0]["state"] == "available"


def test_reading_loads_no_model_library_no_queue_and_no_web_framework(settings: Settings, tmp_path: Path) -> None:
    script = (
        "import sys; from api.cli.run import run; run(['threads']); print('\\n'.join(sys.modules), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        env=environment(settings),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )

    loaded = {name.partition(".")[0] for name in done.stderr.splitlines()}
    assert "psycopg2" in loaded
    assert loaded & {"celery", "kombu", "litellm", "fastapi", "uvicorn", "tiktoken", "alembic"} == set()


def test_migrate_prints_the_version_before_and_after(servers: Servers, tmp_path: Path) -> None:
    name = f"t_migrate_{abs(hash(tmp_path))}"
    servers.run(f"CREATE DATABASE {name}")
    variables = environment(Settings(), OM_DATABASE_ADMIN_URL=servers.database_url(name))
    om = partial(run_om, environment=variables, folder=tmp_path)
    try:
        first, second = om("migrate"), om("migrate")
    finally:
        servers.run(f"DROP DATABASE {name} WITH (FORCE)")

    assert (first.code, second.code) == (0, 0), first.err
    assert "none -> 0001" in first.out
    assert "0001, up to date" in second.out


@pytest.mark.conforms("11.18a")
@pytest.mark.report("M07")
def test_a_database_without_schema_says_which_command_makes_it(servers: Servers, tmp_path: Path) -> None:
    variables = environment(Settings(), OM_DATABASE_URL=servers.database_url("postgres"))
    ran = run_om("threads", environment=variables, folder=tmp_path)

    assert ran.code == 2
    assert "om migrate" in ran.err


# The doctor


def test_the_doctor_finds_nothing_wrong_with_good_servers(om: Om) -> None:
    ran = om("doctor", "--json")

    assert ran.code == 0, ran.out
    assert ran.json["ok"]
    states = {item["check"]: item["state"] for item in ran.json["items"]}
    assert states["workers"] == "warn"
    assert {states[name] for name in ("database", "schema", "clock", "jobs", "redis", "model")} == {"ok"}


@pytest.mark.parametrize(
    ("statement", "word"),
    [
        ("ALTER TABLE messages NO FORCE ROW LEVEL SECURITY", "not enabled and forced on messages"),
        ("ALTER TABLE threads DISABLE ROW LEVEL SECURITY", "not enabled and forced on threads"),
        ("ALTER TABLE memories DISABLE ROW LEVEL SECURITY", "a tenant sees the rows of another"),
        ("CREATE POLICY leak ON memories TO om_app USING (true)", "a tenant can write rows of another"),
        ("DROP POLICY tenant ON chunks", "chunks has no policy"),
        ("ALTER TABLE jobs OWNER TO om_app", "om_app owns the table jobs"),
        ("GRANT SELECT ON messages TO om_system", "om_system can read content"),
        ("REVOKE INSERT ON memories FROM om_app", "the login cannot work as om_app"),
    ],
)
def test_the_doctor_fails_where_tenants_are_not_kept_apart(
    om: Om, settings: Settings, statement: str, word: str
) -> None:
    sql(settings, statement)

    ran = om("doctor", "--json")

    assert ran.code == 1
    assert any(word in item["detail"] and item["fix"] for item in checks(ran, "roles")), ran.out


@pytest.mark.usefixtures("talked")
def test_the_doctor_sees_rows_that_are_visible_without_a_tenant(om: Om, settings: Settings) -> None:
    sql(settings, "CREATE POLICY leak ON messages TO om_app USING (true)")

    assert any(
        "without a tenant, rows of messages" in item["detail"] for item in checks(om("doctor", "--json"), "roles")
    )


@pytest.mark.parametrize("power", ["SUPERUSER", "BYPASSRLS"])
def test_the_doctor_fails_when_the_role_may_pass_row_level_security(om: Om, servers: Servers, power: str) -> None:
    servers.run(f"ALTER ROLE om_app {power}")
    try:
        ran = om("doctor", "--json")
    finally:
        servers.run(f"ALTER ROLE om_app NO{power}")

    assert ran.code == 1
    assert any(power in item["detail"] for item in checks(ran, "roles"))


def test_the_doctor_leaves_nothing_behind(om: Om, settings: Settings) -> None:
    om("doctor")

    with database(settings) as store, store.engine.connect() as connection:
        assert connection.exec_driver_sql("SELECT count(*) FROM memories").scalar() == 0


@pytest.mark.report("J08")
@pytest.mark.usefixtures("talked")
def test_the_doctor_names_due_jobs_that_nobody_takes(om: Om, settings: Settings) -> None:
    sql(settings, "UPDATE jobs SET run_at = now() - interval '5 minutes'")

    ran = om("doctor", "--json")

    assert ran.code == 1
    [finding] = checks(ran, "jobs")
    assert "1 jobs on buffering" in finding["detail"]
    assert "om worker --queues buffering" in finding["fix"]


@pytest.mark.parametrize(
    ("variables", "check", "word"),
    [
        ({"OM_REDIS_URL": "redis://127.0.0.1:1/0"}, "redis", "OM_REDIS_URL"),
        ({"OM_REDIS_URL": ""}, "redis", "OM_REDIS_URL"),
        ({"OM_DATABASE_URL": "postgresql://a:hunter2@127.0.0.1:1/x"}, "database", "OM_DATABASE_URL"),
        ({"OM_MODEL": "openai/gpt-5-mini", "OPENAI_API_KEY": ""}, "model", "OPENAI_API_KEY"),
    ],
    ids=["redis away", "no redis", "database away", "no key"],
)
def test_the_doctor_says_what_is_missing_and_how_to_fix_it(
    settings: Settings, tmp_path: Path, variables: dict[str, str], check: str, word: str
) -> None:
    ran = run_om("doctor", "--json", environment={**environment(settings), **variables}, folder=tmp_path)

    assert ran.code == 1
    [finding] = checks(ran, check)
    assert finding["state"] == "fail"
    assert word in finding["detail"] + finding["fix"]
    assert finding["fix"]
    assert "hunter2" not in ran.out


def test_the_doctor_warns_of_misspelt_settings(settings: Settings, tmp_path: Path) -> None:
    ran = run_om("doctor", "--json", environment=environment(settings, OM_LEASSE_S="3"), folder=tmp_path)

    assert checks(ran, "settings")[0]["state"] == "warn"


def test_a_closed_pipe_in_the_middle_of_a_list_is_no_error(settings: Settings, talked: Memory, tmp_path: Path) -> None:
    talked.append("long", [{"role": "user", "content": "word " * 100_000}], resource="ana")
    process = subprocess.Popen(
        [*OM, "show", "long"],
        env=environment(settings),
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.read(10)
    process.stdout.close()

    assert (process.wait(timeout=60), process.stderr.read()) == (0, b"")
    process.stderr.close()


def test_a_replay_without_a_worker_stores_everything_and_says_so(om: Om, tmp_path: Path) -> None:
    (tmp_path / "chat.json").write_text(json.dumps(conversation(4)))

    ran = om("replay", "chat.json", "--thread", "chat", "--json")

    assert ran.code == 0, ran.err
    assert "no worker was seen" in ran.err
    [thread] = ran.json["items"][0]["threads"]
    assert (thread["thread"], thread["messages"], thread["uncovered_messages"]) == ("chat", 4, 0)
