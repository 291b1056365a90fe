"""Secrets neither reach a model that writes memory nor stand in what it wrote (DESIGN 7)."""

from __future__ import annotations

import base64
import time
from datetime import date

import pytest

from om_core.domain.message import Image, Role, ToolResult
from om_core.llm.offline import extract_short
from om_core.ports import ObserverMaterial
from om_core.prompts.parse import parse_observer, parse_reflector
from om_core.prompts.redact import MARK, redact, redact_json, redact_material, redact_messages
from tests.unit.prompt_samples import call, result, stored, user

HEX = "9fceb02d0ae598e95dc970b74767f19372d61af8"
LONG = "aB3dE5gH7jK9mN1pQ2rS4tU6vW8xY0zA"
JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9P"
BODY = "\n".join([LONG * 2] * 4)
PEM = f"-----BEGIN RSA PRIVATE KEY-----\n{BODY}\nQUJD\n-----END RSA PRIVATE KEY-----"

SECRETS = {
    "a project key": (f"sk-proj-{LONG}", f"sk-proj-{LONG}"),
    "a key in a variable": (f"OPENAI=sk-{HEX}", HEX),
    "a lower-case key": (f"the key is sk-{HEX}.", f"sk-{HEX}"),
    "a live key": (f"sk_live_{LONG}", f"sk_live_{LONG}"),
    "a cloud access key": ("id AKIA" + "ABCDEFGH12345678", "ABCDEFGH12345678"),
    "a code host's token": (f"ghp_{LONG} and gho_{LONG}", LONG),
    "a fine-grained token": (f"github_pat_11AA_{LONG}", LONG),
    "a chat token": ("xoxb-123456789012-abcDEF", "abcDEF"),
    "a bot token": ("api/bot1234567890:AAHd-" + LONG[:30], LONG[:30]),
    "a map key": (f"AIza{LONG}xyz", LONG),
    "a signed token": (f"cookie {JWT}", "eyJzdWIi"),
    "our own key": (f"om_live_ab12cd34_{LONG}", LONG),
    "a private key": (f"here:\n{PEM}\nthanks", LONG),
    "a private key cut off": (PEM[:120], LONG),
    "a private key in JSON": (PEM.replace("\n", "\\n"), LONG),
    "a bearer header": (f"Authorization: Bearer {HEX}", HEX),
    "a bearer token in prose": (f"send bearer {HEX}", HEX),
    "a basic header": ('"Authorization": "Basic dXNlcjpwYXNzd29yZA=="', "dXNlcjpw"),
    "a password in a URL": ("postgres://app:hunter2@db:5432/om", "hunter2"),
    "an assignment": ("password=hunter2", "hunter2"),
    "an assignment of words": ("export DB_PASSWORD=correcthorse", "correcthorse"),
    "an assignment in prose": ("My password: hunter2!", "hunter2"),
    "an assignment in a file": (f'api_key = "{LONG}"', LONG),
    "an assignment in JSON": ('{"apiKey": "abcdefgh"}', "abcdefgh"),
    "an assignment in JSON in JSON": ('{\\"password\\": \\"hunter2\\"}', "hunter2"),
    "a token": (f"token={LONG}", LONG),
    "a query": (f"https://x.example/a?access_token={LONG}&page=2", LONG),
    "an option": ("login --password hunter2 -v", "hunter2"),
}


@pytest.mark.parametrize("name", SECRETS)
def test_a_secret_is_replaced(name):
    text, secret = SECRETS[name]

    assert secret in text
    assert secret not in redact(text)
    assert MARK in redact(text)
    assert redact(redact(text)) == redact(text)


KEPT = (
    "The API key is missing.",
    "password: required",
    "Password reset was requested; the token expired.",
    "The secret: she moved to Lyon.",
    f"commit {HEX}",
    "id 0b0e5a9e-7d5c-4f6e-9c39-1d3a6d6a4b11",
    f"sha256:{HEX}{HEX[:24]}",
    "max_tokens=4096, tokens: 500, token=2000",
    "token: the smallest unit of text",
    "api_key=os.environ['OPENAI_API_KEY']",
    "password = getpass()",
    "token = response.json()['token']",
    "self.token = self.session.token",
    "API_KEY=${API_KEY} PASSWORD=<your password> SECRET=$(cat x)",
    'password = "your-password-here"',
    "https://example.com:8080/path@2",
    "git@github.com:acme/app.git and ssh://git@example.com/x",
    "Bearer authentication and basic understanding",
    "a task-1234567890abcdefghijklmnop and risk-1234567890abcdefghijklmnop",
    "sk-fading-circle",
    "at 12:30:45 on 2023-05-08T13:56:00Z",
    "passwords: users forget them",
    "-----BEGIN CERTIFICATE-----",
    "-----BEGIN PUBLIC KEY-----",
    "Date: May 8, 2023\n* 🔴 (13:57) User: the password of the router is on the fridge.",
    base64.b64encode(bytes(range(256)) * 8).decode(),
)


@pytest.mark.parametrize("text", KEPT)
def test_what_is_no_secret_stays_as_it_is(text):
    assert redact(text) == text


def test_a_secret_keeps_its_name_and_the_text_around_it():
    assert redact(f"set api_key={LONG} in .env") == f"set api_key={MARK} in .env"
    assert redact("postgres://app:hunter2@db/om") == f"postgres://app:{MARK}@db/om"
    assert redact(f"here:\n{PEM}\nthanks") == f"here:\n{MARK}\nthanks"


def test_payloads_are_redacted_by_the_name_of_an_entry():
    given = {"env": {"DB_PASSWORD": "hunter"}, "api_key": "abc", "access_token": LONG, "next_page_token": "word"}

    assert redact_json(given) == {
        "env": {"DB_PASSWORD": MARK}, "api_key": MARK, "access_token": MARK, "next_page_token": "word"
    }  # fmt: skip


def test_a_clean_payload_is_returned_itself():
    given = {"path": "/a/b", "lines": [1, 2.5, None, True, {"x": "y"}]}

    assert redact_json(given) is given


def test_pictures_are_not_touched():
    message = stored(1, Role.USER, Image(data=f"{LONG}sk-{HEX}", mime_type="image/png"))

    assert redact_messages([message]) == (message,)


def test_no_part_of_an_observer_s_material_holds_a_secret():
    material = ObserverMaterial(
        messages=(
            user(1, f"My key is sk-{HEX}."),
            call(2, "login", {"password": "hunter2", "note": f"Bearer {HEX}"}, "c"),
            result(3, "c", {"token": LONG}),
            stored(4, Role.TOOL, ToolResult(call_id="c", result=LONG[:9], model_result=f"ghp_{LONG}")),
        ),
        prior_notes=f"* key sk-{HEX}",
        current_task=f"try sk-{HEX}",
        thread_title=f"sk-{HEX}",
        timezone="UTC",
    )

    text = repr(redact_material(material))

    assert HEX not in text
    assert "hunter2" not in text
    assert LONG not in text


def test_notes_hints_and_titles_hold_no_secret():
    answer = (
        f"<observations>\n* 🔴 (13:56) User gave the key sk-{HEX}\n</observations>\n"
        f"<current-task>\nUse password=hunter2 on db\n</current-task>\n"
        f"<suggested-response>\nSend Bearer {HEX}\n</suggested-response>\n"
        f"<thread-title>\nKey sk-{HEX}\n</thread-title>\n<place>\nghp_{LONG}\n</place>"
    )

    output = parse_observer(answer, default_day=date(2023, 5, 8), extra_tags=("place",))

    assert output.notes == f"Date: May 8, 2023\n* 🔴 (13:56) User gave the key {MARK}"
    assert output.current_task == f"Use password={MARK} on db"
    assert output.suggested_response == f"Send Bearer {MARK}"
    assert output.thread_title == f"Key {MARK}"
    assert output.extra == {"place": MARK}


def test_a_reflection_holds_no_secret():
    assert HEX not in parse_reflector(f"<observations>\n* key sk-{HEX}\n</observations>").notes


def test_the_reason_of_an_unusable_answer_quotes_no_secret():
    reason = parse_observer(f"Well, the key sk-{HEX} is all I saw").reason

    assert reason is not None
    assert HEX not in reason


def test_an_extract_holds_no_secret():
    extract = extract_short([user(1, f"Please deploy with the key sk-{HEX} today.")], 200)

    assert HEX not in extract
    assert "deploy" in extract


HOSTILE = {
    "prefixes": "sk-" * 330_000,
    "begun keys": "-----BEGIN PRIVATE KEY-----\n" * 36_000,
    "begun signatures": "eyJaaaaaaaa." * 83_000,
    "assignments": "password=" * 110_000,
    "spaced assignments": "token : " * 125_000,
    "quotes": 'password="' * 100_000,
    "schemes": "://a:" * 200_000,
    "colons": ":" * 1_000_000,
    "bearers": "bearer " * 140_000,
    "letters": "a" * 1_000_000,
    "digits": "1" * 1_000_000,
    "blanks": " " * 1_000_000,
    "options": " --token " * 110_000,
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_text_is_redacted_in_linear_time(name):
    started = time.process_time()
    redact(HOSTILE[name])

    assert time.process_time() - started < 2
