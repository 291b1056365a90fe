"""The model a process works with, where it may listen without keys, and how secrets print (API 2)."""

import pytest

from om_core.config import ModelChoice, Secret, SecretUrl, Settings, check_auth_binding, choose_model, mask_url
from om_core.domain.errors import SetupError
from om_core.domain.policy import DEFAULT_MODEL, OFFLINE_MODEL


def none_missing(model):
    return None


def all_missing(model):
    return f"{model.partition('/')[0].upper()}_API_KEY"


@pytest.mark.parametrize("embedded", [True, False])
@pytest.mark.parametrize(("settings", "name"), [
    (Settings(), DEFAULT_MODEL),
    (Settings(model="a/b"), "a/b"),
])  # fmt: skip
def test_with_its_key_the_model_is_used_without_a_notice(settings, embedded, name):
    assert choose_model(settings, embedded, none_missing) == ModelChoice(name)


def test_embedded_and_no_model_chosen_works_offline_with_a_notice_when_the_key_is_missing():
    choice = choose_model(Settings(), embedded=True, missing_key=all_missing)
    assert choice.name == OFFLINE_MODEL
    assert "GOOGLE_API_KEY is not set" in str(choice.notice)
    assert "OM_MODEL" in str(choice.notice)


CHOSEN = [
    Settings(model="a/b"),
    Settings(options={"model": "a/b"}),
    Settings(options={"observation": {"model": "a/b"}}),
    Settings(options={"reflection": {"model": "a/b"}}),
    Settings(options={"model": {"up_to": {1000: "a/b"}}}),
]


@pytest.mark.parametrize("settings", CHOSEN)
@pytest.mark.parametrize("embedded", [True, False])
def test_a_chosen_model_without_its_key_is_an_error_that_names_the_variable(settings, embedded):
    with pytest.raises(SetupError, match=r"model a/b needs A_API_KEY, which is not set\. Set A_API_KEY, .*OM_MODEL"):
        choose_model(settings, embedded, all_missing)


def test_external_servers_and_no_key_are_an_error_even_when_no_model_was_chosen():
    with pytest.raises(SetupError, match="needs GOOGLE_API_KEY"):
        choose_model(Settings(), embedded=False, missing_key=all_missing)


def test_the_key_of_every_model_in_use_is_asked_for():
    asked: list = []
    options = {
        "observation": {"model": ["a/one", "b/two"]},
        "reflection": {"model": {"up_to": {10: "c/small", 20: "d/large"}}},
    }
    choose_model(Settings(options=options), embedded=False, missing_key=asked.append)
    assert asked == ["a/one", "b/two", "c/small", "d/large"]


def test_the_offline_model_needs_no_key():
    assert choose_model(Settings(model=OFFLINE_MODEL), embedded=False, missing_key=all_missing) == ModelChoice(
        OFFLINE_MODEL
    )


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1", "[::1]", "localhost", "LOCALHOST"])
def test_authentication_may_be_off_on_loopback(host):
    check_auth_binding("off", host)


@pytest.mark.parametrize(
    "host", ["0.0.0.0", "::", "", "10.0.0.5", "192.168.1.1", "example.org", "localhost.example.org"]
)
def test_authentication_off_is_refused_on_any_other_address(host):
    check_auth_binding("keys", host)
    with pytest.raises(SetupError, match=r"OM_AUTH=off is allowed on loopback addresses only.*OM_AUTH=keys"):
        check_auth_binding("off", host)


@pytest.mark.parametrize(("url", "shown"), [
    ("postgresql://om:pw@db:5432/om", "postgresql://om:***@db:5432/om"),
    ("postgresql://om:p@ss/w:rd@db/om", "postgresql://om:***@db/om"),
    ("postgresql://om@db/om", "postgresql://om@db/om"),
    ("postgresql:///om?host=/tmp&password=pw&x=1", "postgresql:///om?host=/tmp&password=***&x=1"),
    ("redis://:pw@h:6379/0", "redis://:***@h:6379/0"),
    ("redis://h:6379/0", "redis://h:6379/0"),
    ("host=db password=pw", "***"),
    ("sentinel://:pw@a:1;sentinel://:pw@b:1", "sentinel://:***@a:1;sentinel://:***@b:1"),
])  # fmt: skip
def test_a_url_prints_without_its_password(url, shown):
    assert mask_url(url) == str(SecretUrl(url)) == shown
    assert repr(SecretUrl(url)) == f"SecretUrl({shown!r})"


def test_a_secret_prints_as_a_mask_and_compares_by_value():
    assert f"{Secret('x')} {Secret('x')!r}" == "*** Secret('***')"
    assert Secret("x") == Secret("x") != Secret("y")
    assert len({Secret("x"), Secret("x")}) == 1
