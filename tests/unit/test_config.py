"""Settings: environment over om.toml over defaults, with their sources, errors and warnings (API 2)."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from om_core.config import Settings, describe, load_settings, unknown_variables, variable_of
from om_core.config.settings import rules
from om_core.domain.errors import SetupError
from om_core.domain.policy import DEFAULT_MODEL, MemoryPolicy


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """An empty current folder and an environment without settings."""
    for name in [name for name in os.environ if name.upper().startswith("OM_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(folder, text, name="om.toml"):
    (folder / name).write_text(text, encoding="utf-8")


def revealed(name):
    return getattr(load_settings(), name).reveal()


def test_without_environment_and_file_everything_is_at_its_default():
    settings = load_settings()
    assert settings == Settings()
    assert settings.policy() == MemoryPolicy()
    assert {row.source for row in describe(settings)} == {"default"}


READ = [
    # setting, text, value
    ("model", "openai/gpt-5-mini", "openai/gpt-5-mini"),
    ("model_api_base", "http://localhost:8000/v1", "http://localhost:8000/v1"),
    ("auth", "OFF", "off"),
    ("lease_s", "0.5", 0.5),
    ("sweep_s", "10", 10.0),
    ("worker_concurrency", "8", 8),
    ("tenant", "acme corp", "acme corp"),
    ("log_level", "DEBUG", "debug"),
    ("log_format", "json", "json"),
    ("test_data", "some/where", Path("some/where")),
    ("home", "elsewhere", Path("elsewhere")),
    ("api_host", "0.0.0.0", "0.0.0.0"),
    ("api_port", "9090", 9090),
    ("flower_port", "5556", 5556),
    ("pool_size", "4", 4),
]


@pytest.mark.conforms("1.8")
@pytest.mark.parametrize(("name", "text", "value"), READ)
def test_a_setting_is_read_from_its_variable_or_its_key(folder, monkeypatch, name, text, value):
    write(folder, f'{name} = "{text}"')
    from_file = load_settings()
    monkeypatch.setenv(variable_of(name), text)
    write(folder, "")
    from_environment = load_settings()
    assert getattr(from_file, name) == getattr(from_environment, name) == value
    assert (from_file.sources[name], from_environment.sources[name]) == ("om.toml", "environment")


def test_the_environment_wins_over_the_file(folder, monkeypatch):
    write(folder, "lease_s = 30\nsweep_s = 5")
    monkeypatch.setenv("OM_LEASE_S", "90")
    settings = load_settings()
    assert (settings.lease_s, settings.sweep_s) == (90.0, 5.0)
    assert settings.sources == {"lease_s": "environment", "sweep_s": "om.toml"}


def test_an_empty_variable_counts_as_not_set(folder, monkeypatch):
    write(folder, "lease_s = 30")
    for name in ("OM_LEASE_S", "OM_DATABASE_URL", "OM_CONFIG", "OM_OPTIONS__SCOPE"):
        monkeypatch.setenv(name, "")
    settings = load_settings()
    assert settings.lease_s == 30.0
    assert settings.sources == {"lease_s": "om.toml"}


def test_the_file_may_be_named_by_a_variable_or_stand_in_a_given_folder(folder, monkeypatch):
    (folder / "inner").mkdir()
    write(folder / "inner", "api_port = 1000")
    write(folder, "api_port = 2000", "other.toml")
    assert load_settings(folder / "inner").api_port == 1000
    monkeypatch.setenv("OM_CONFIG", "other.toml")
    assert load_settings().api_port == 2000


class TestUrls:
    @pytest.mark.parametrize("scheme", ["postgres", "postgresql", "postgresql+psycopg2", "PostgreSQL"])
    @pytest.mark.parametrize("name", ["database_url", "database_admin_url"])
    def test_every_postgres_spelling_means_psycopg2(self, monkeypatch, name, scheme):
        monkeypatch.setenv(variable_of(name), f" {scheme}://om:p%40ss@db:5432/om ")
        assert revealed(name) == "postgresql+psycopg2://om:p%40ss@db:5432/om"

    @pytest.mark.parametrize("url", ["mysql://om:hidden@db/om", "postgresql+asyncpg://om:hidden@db/om", "om:hidden@db"])
    def test_another_database_or_driver_is_refused_without_its_password(self, monkeypatch, url):
        monkeypatch.setenv("OM_DATABASE_URL", url)
        with pytest.raises(SetupError, match=r"^OM_DATABASE_URL = .* is not allowed: a PostgreSQL URL") as caught:
            load_settings()
        assert "hidden" not in f"{caught.value}{caught.value.__cause__}"

    @pytest.mark.parametrize(
        "url", ["redis://h:6379/0", "rediss://:p@h/1", "sentinel://a:1;sentinel://b:1", "unix:///s"]
    )
    def test_a_redis_url_is_kept(self, monkeypatch, url):
        monkeypatch.setenv("OM_REDIS_URL", url)
        assert revealed("redis_url") == url

    def test_a_broker_that_is_not_redis_is_refused(self, folder):
        write(folder, 'redis_url = "amqp://guest:hidden@h"')
        with pytest.raises(
            SetupError, match=r"^om\.toml: redis_url = 'amqp://guest:\*\*\*@h' is not allowed: a Redis URL"
        ):
            load_settings()


@pytest.mark.parametrize(("name", "value", "allowed"), [
    ("lease_s", "0", "seconds from 0.1"),
    ("lease_s", "abc", "seconds from 0.1"),
    ("lease_s", "nan", "seconds from 0.1"),
    ("sweep_s", "1e9", "seconds from 0.1"),
    ("worker_concurrency", "0", "from 1 to 4096"),
    ("worker_concurrency", "2.5", "from 1 to 4096"),
    ("pool_size", "1001", "from 1 to 1000"),
    ("api_port", "0", "a port from 1 to 65535"),
    ("flower_port", "70000", "a port from 1 to 65535"),
    ("auth", "none", "keys, or off"),
    ("log_level", "loud", "debug, info"),
    ("log_format", "xml", "json or console"),
    ("tenant", "a/b", "without /"),
    ("model", "two words", "a model name"),
    ("model_api_base", "localhost", "an http or https URL"),
    ("api_host", "a b", "an address or host name"),
])  # fmt: skip
def test_a_wrong_value_names_its_place_itself_and_what_is_allowed(folder, monkeypatch, name, value, allowed):
    write(folder, f'{name} = "{value}"')
    with pytest.raises(SetupError) as in_file:
        load_settings()
    monkeypatch.setenv(variable_of(name), value)
    with pytest.raises(SetupError) as in_environment:
        load_settings()
    for error, place in ((in_file, f"om.toml: {name}"), (in_environment, variable_of(name))):
        assert str(error.value).startswith(f"{place} = {value!r} is not allowed: ")
        assert allowed in str(error.value)
        assert str(error.value).endswith("Correct it, or remove it for the default.")


def test_a_port_that_kubernetes_sets_for_a_service_is_explained(monkeypatch):
    monkeypatch.setenv("OM_API_PORT", "tcp://10.0.0.1:8080")
    with pytest.raises(SetupError, match=r"OM_API_PORT .*enableServiceLinks: false"):
        load_settings()


def test_a_wrong_login_is_refused_without_being_shown(monkeypatch):
    monkeypatch.setenv("OM_FLOWER_BASIC_AUTH", "hidden")
    with pytest.raises(SetupError, match=r"OM_FLOWER_BASIC_AUTH = '\*\*\*' is not allowed: user:password") as caught:
        load_settings()
    assert "hidden" not in str(caught.value)


class TestFile:
    def test_an_unknown_key_is_refused_with_the_nearest_one(self, folder):
        write(folder, "lease = 5")
        with pytest.raises(
            SetupError, match=r"^om\.toml: lease = 5 is not allowed: unknown key; .*nearest known key is lease_s"
        ):
            load_settings()

    def test_an_unknown_key_that_sounds_secret_is_not_shown(self, folder):
        write(folder, 'openai_api_key = "sk-hidden"')
        with pytest.raises(SetupError, match="openai_api_key") as caught:
            load_settings()
        assert "sk-hidden" not in str(caught.value)

    def test_an_unknown_option_is_refused_with_the_nearest_one(self, folder):
        write(folder, "[options.observation]\nmesage_tokens = 5")
        with pytest.raises(
            SetupError, match=r"^om\.toml: options\.observation\.mesage_tokens = 5 .*observation\.message_tokens"
        ):
            load_settings()

    @pytest.mark.parametrize(("text", "message"), [
        ("options = 3", r"om\.toml: options = 3 .*a table \[options\]"),
        ("lease_s = = 3", r"om\.toml is no valid TOML: .*line 1"),
        ("[options]\nscope = 'global'", r"om\.toml: options\.scope = 'global' is not allowed .*'thread', 'resource'"),
        ("[options.observation]\nmessage_tokens = 0", r"om\.toml: options\.observation\.message_tokens = 0 .*from 1 to"),
        ("[options.observation]\nmessage_tokens = 2", r"om\.toml: options\.observation\.buffer_tokens = 0\.2 .*rounds to 0"),
    ])  # fmt: skip
    def test_a_wrong_file_is_refused_by_place(self, folder, text, message):
        write(folder, text)
        with pytest.raises(SetupError, match=message):
            load_settings()

    def test_a_named_file_that_is_missing_is_refused(self, monkeypatch):
        monkeypatch.setenv("OM_CONFIG", "missing.toml")
        with pytest.raises(SetupError, match=r"OM_CONFIG = 'missing\.toml' cannot be read"):
            load_settings()

    def test_an_error_names_the_file_that_was_read(self, folder, monkeypatch):
        write(folder, "lease_s = 0", "other.toml")
        monkeypatch.setenv("OM_CONFIG", "other.toml")
        with pytest.raises(SetupError, match=r"^other\.toml: lease_s = 0 "):
            load_settings()


class TestOptions:
    def test_variables_and_the_file_make_one_tree(self, folder, monkeypatch):
        write(
            folder,
            "[options]\nscope = 'resource'\n[options.observation]\nmessageTokens = 20000\nbuffer_tokens = 0.1\ncontinuationHints = {currentTask = false}",
        )
        monkeypatch.setenv("OM_OPTIONS__OBSERVATION__BUFFER_TOKENS", "0.5")
        monkeypatch.setenv("OM_OPTIONS__OBSERVATION__CONTINUATION_HINTS__SUGGESTED_RESPONSE", "false")
        settings = load_settings()
        observation = settings.policy().observation
        assert settings.policy().scope == "resource"
        assert (observation.message_tokens, observation.buffer_tokens) == (20_000, 10_000)
        assert (observation.current_task, observation.suggested_response) == (False, False)
        sources = {row.name: row.source for row in describe(settings) if row.source != "default"}
        assert sources == {
            "options.scope": "om.toml",
            "options.observation.message_tokens": "om.toml",
            "options.observation.buffer_tokens": "environment",
            "options.observation.continuation_hints": "environment",
        }

    @pytest.mark.parametrize(("option", "text", "value"), [
        ("OBSERVATION__MESSAGE_TOKENS", "20000", 20_000),
        ("OBSERVATION__BUFFER_TOKENS", "off", False),
        ("OBSERVATION__BUFFER_TOKENS", "False", False),
        ("OBSERVATION__INSTRUCTION", "123", "123"),
        ("OBSERVATION__INSTRUCTION", "off", "off"),
        ("OBSERVATION__THREAD_TITLE", "1", True),
        ("OBSERVATION__ACTIVATE_AFTER_IDLE", "5m", "5m"),
        ("OBSERVATION__ACTIVATE_AFTER_IDLE", "500", 500),
        ("OBSERVATION__ACTIVATE_AFTER_IDLE", "auto", "auto"),
        ("OBSERVATION__OBSERVE_ATTACHMENTS", '["image/*"]', ["image/*"]),
        ("OBSERVATION__MODEL", "off/on", "off/on"),
        ("OBSERVATION__MODEL", '{"up_to": {"1000": "a/b"}}', {"up_to": {"1000": "a/b"}}),
        ("OBSERVATION__MODEL_SETTINGS__TEMPERATURE", "0.1", {"temperature": 0.1}),
    ])  # fmt: skip
    def test_a_text_is_read_by_the_kind_of_its_option(self, monkeypatch, option, text, value):
        monkeypatch.setenv(f"OM_OPTIONS__{option}", text)
        name = option.lower().split("__")[1]
        assert load_settings().options["observation"][name] == value

    @pytest.mark.parametrize(("variable", "text", "message"), [
        ("OM_OPTIONS__OBSERVATION__MESAGE_TOKENS", "5", "nearest known name is observation.message_tokens"),
        ("OM_OPTIONS__OBSERVATION", "5", "observation is a table"),
        ("OM_OPTIONS__SCOPE__X", "5", "unknown option"),
        ("OM_OPTIONS__SCOPE", "all", "'thread', 'resource'"),
        ("OM_OPTIONS__OBSERVATION__MESSAGE_TOKENS", "many", "from 1 to"),
        ("OM_OPTIONS__OBSERVATION__THREAD_TITLE", "maybe", "True or False"),
        ("OM_OPTIONS__OBSERVATION__MODEL", '{"up_to": {"0": "a/b"}}', "whole number from 1"),
        ("om_options__job__max_failures", "0", "from 1 to 1000"),
    ])  # fmt: skip
    def test_a_wrong_variable_is_named_as_it_is_written(self, monkeypatch, variable, text, message):
        monkeypatch.setenv(variable, text)
        with pytest.raises(SetupError) as caught:
            load_settings()
        assert str(caught.value).startswith(f"{variable} = ")
        assert message in str(caught.value)

    def test_a_variable_for_the_whole_and_one_for_a_part_contradict_each_other(self, monkeypatch):
        monkeypatch.setenv("OM_OPTIONS__RETRIEVAL", "true")
        monkeypatch.setenv("OM_OPTIONS__RETRIEVAL__VECTOR", "true")
        with pytest.raises(SetupError, match=r"OM_OPTIONS__RETRIEVAL__VECTOR .*also set as a whole"):
            load_settings()

    def test_the_model_setting_serves_phases_that_name_none(self, folder, monkeypatch):
        monkeypatch.setenv("OM_MODEL", "a/b")
        assert load_settings().policy().reflection.model.name == "a/b"
        assert load_settings().policy(model="c/d").reflection.model.name == "c/d"
        write(folder, "[options.observation]\nmodel = 'e/f'\n[options.reflection]\nmodel = 'default'")
        policy = load_settings().policy()
        assert (policy.observation.model.name, policy.reflection.model.name) == ("e/f", "a/b")

    def test_the_word_default_is_the_default_model(self, monkeypatch):
        monkeypatch.setenv("OM_MODEL", "default")
        assert load_settings().policy().observation.model.name == DEFAULT_MODEL

    def test_a_policy_takes_the_overrides_of_a_thread(self):
        assert (
            load_settings().policy(overrides={"observation": {"message_tokens": 9_000}}).observation.message_tokens
            == 9_000
        )


class TestDescribe:
    def test_no_secret_is_shown_anywhere(self, folder, monkeypatch):
        monkeypatch.setenv("OM_DATABASE_URL", "postgresql://om:hidden1@db/om?sslpassword=hidden2")
        monkeypatch.setenv("OM_REDIS_URL", "redis://:hidden3@cache/0")
        monkeypatch.setenv("OM_FLOWER_BASIC_AUTH", "ops:hidden4")
        write(folder, "[options.observation]\nprovider_options = {openai = {api_key = 'hidden5', user = 'shown'}}")
        settings = load_settings()
        rows = {row.name: row.value_masked for row in describe(settings)}
        assert rows["database_url"] == "postgresql+psycopg2://om:***@db/om?sslpassword=***"
        assert rows["redis_url"] == "redis://:***@cache/0"
        assert rows["flower_basic_auth"] == "***"
        assert "shown" in rows["options.observation.provider_options"]
        assert "hidden" not in f"{rows}{settings!r}{settings.database_url}"
        assert revealed("flower_basic_auth") == "ops:hidden4"

    def test_every_setting_has_one_row_and_the_model_its_effective_value(self):
        names = [row.name for row in describe(load_settings())]
        assert len(names) == len(set(names))
        assert set(rules()) < set(names)
        assert {row.name: row.value_masked for row in describe(load_settings())}["model"] == DEFAULT_MODEL


def test_an_unknown_variable_is_warned_of_with_the_nearest_known_one(monkeypatch):
    monkeypatch.setenv("OM_LEASES", "5")
    monkeypatch.setenv("OM_OBSERVATION__MESSAGE_TOKENS", "5")
    monkeypatch.setenv("OM_XYZZY", "5")
    monkeypatch.setenv("OM_LEASE_S", "5")
    monkeypatch.setenv("OM_CONFIG", "")
    monkeypatch.setenv("OM_OPTIONS__SCOPE", "thread")
    assert unknown_variables() == [
        "OM_LEASES is set, but no setting has this name; did you mean OM_LEASE_S?",
        "OM_OBSERVATION__MESSAGE_TOKENS is set, but no setting has this name; options of the tree are written OM_OPTIONS__OBSERVATION__MESSAGE_TOKENS.",
        "OM_XYZZY is set, but no setting has this name.",
    ]


def test_importing_the_settings_loads_no_pydantic():
    program = "import sys, om_core.config; sys.exit(any(name.startswith('pydantic') for name in sys.modules))"
    root = Path(__file__).resolve().parents[2]
    assert subprocess.run([sys.executable, "-c", program], cwd=root, check=False).returncode == 0
