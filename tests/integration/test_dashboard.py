"""The dashboard over HTTP: who gets in, what forms refuse, and that text of a conversation stays text."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import TYPE_CHECKING

import httpx
import pytest

from api.dashboard import session as sessions
from om_core.memory import Memory
from om_core.services.keys import create_key
from tests.integration.api_server import api_of
from tests.support.jobs import work_off

if TYPE_CHECKING:
    from collections.abc import Iterator

    from om_core.services.deps import Services

HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)> {{ 7 * 7 }}"
PAGES = ("", "/now", "/context", "/log", "/reflections", "/messages", "/messages?part=1")


@pytest.fixture
def browser(services: Services) -> Iterator[httpx.Client]:
    """A client with cookies, signed in as tenant `default`."""
    with api_of(services, auth="keys") as api, httpx.Client(base_url=api.base_url) as client:
        secret = create_key(services, "default", name="test").secret
        answer = client.post("/login", data={"key": secret, "next": "/jobs"})
        assert (answer.status_code, answer.headers["location"]) == (303, "/jobs")
        yield client


def fill(services: Services, text: str = "hello") -> Memory:
    memory = Memory(services)
    memory.append("t", [{"role": "user", "content": text}], resource="r")
    return memory


def csrf_of(client: httpx.Client) -> str:
    found = re.search('name="csrf" value="([0-9a-f]+)"', client.get("/threads/t?resource_id=r").text)
    assert found is not None
    return found[1]


def test_without_a_session_every_page_leads_to_the_login(services: Services, browser: httpx.Client) -> None:
    fill(services)
    browser.cookies.clear()
    for path in [
        "/",
        "/jobs",
        "/workers",
        "/usage",
        "/invariants",
        "/threads/t/live",
        *(f"/threads/t{page}" for page in PAGES),
    ]:
        answer = browser.get(path)
        assert answer.status_code == 303, path
        assert answer.headers["location"].startswith("/login?next=%2F"), path
    assert browser.post("/jobs/1/cancel").status_code == 303


@pytest.mark.parametrize("change", ["signature", "later", "other key", "no number", "empty"])
def test_a_forged_cookie_opens_nothing(services: Services, browser: httpx.Client, change: str) -> None:
    other = create_key(services, "other", name="other").row.id
    cookie = browser.cookies[sessions.COOKIE]
    key_id, ends, signature = cookie.split(".")
    forged = {
        "signature": f"{key_id}.{ends}.{'0' * 64}",
        "later": f"{key_id}.{int(ends) + 1}.{signature}",
        "other key": f"{other}.{ends}.{signature}",
        "no number": f"x.{ends}.{signature}",
        "empty": "",
    }[change]
    browser.cookies.clear()
    browser.cookies.set(sessions.COOKIE, forged)
    assert browser.get("/").status_code == 303


def test_a_session_ends_by_itself(services: Services) -> None:
    secret, now = create_key(services, "default", name="test").secret, services.clock.now()
    cookie = sessions.sign_in(services.store, secret, now)
    assert cookie is not None
    lasts = timedelta(hours=sessions.HOURS)
    assert sessions.resume(services.store, cookie, now + lasts - timedelta(minutes=1)) is not None
    assert sessions.resume(services.store, cookie, now + lasts + timedelta(minutes=1)) is None


@pytest.mark.parametrize("where", ["//evil.example", "https://evil.example", "/\\evil.example", "evil", "/\r\nx: y"])
def test_the_login_leads_nowhere_else(services: Services, browser: httpx.Client, where: str) -> None:
    secret = create_key(services, "default", name="test").secret
    answer = browser.post("/login", data={"key": secret, "next": where})
    assert (answer.status_code, answer.headers["location"]) == (303, "/")


def test_a_form_of_another_site_changes_nothing(services: Services, browser: httpx.Client) -> None:
    memory = fill(services)
    path = "/threads/t/do/observe?resource_id=r"
    for data, headers in (
        ({}, {}),
        ({"csrf": "0" * 64}, {}),
        ({"csrf": csrf_of(browser)}, {"Sec-Fetch-Site": "cross-site"}),
    ):
        assert browser.post(path, data=data, headers=headers).status_code == 403
    assert memory.jobs().items == ()

    answer = browser.post(path, data={"csrf": csrf_of(browser)})
    assert (answer.status_code, answer.headers["location"]) == (303, "/threads/t?resource_id=r")
    assert [job["kind"] for job in memory.jobs().items] == ["observe"]


def test_what_people_wrote_is_shown_as_text(services: Services, browser: httpx.Client) -> None:
    memory = fill(services, HOSTILE)
    memory.put_thread("t", resource="r", title=HOSTILE)
    for page in PAGES:
        path = f"/threads/t{page}{'&' if '?' in page else '?'}resource_id=r"
        answer = browser.get(path)
        assert answer.status_code == 200, path
        assert "<script>alert" not in answer.text
        assert "<img src=x" not in answer.text
        assert "default-src 'self'" in answer.headers["content-security-policy"]
    assert "&lt;script&gt;alert(1)" in browser.get("/threads/t/messages?resource_id=r").text
    assert "{{ 7 * 7 }}" in browser.get("/").text


def test_nothing_is_loaded_from_elsewhere_and_nothing_runs_inline(services: Services, browser: httpx.Client) -> None:
    fill(services)
    for path in ("/", "/jobs", "/workers", "/invariants", "/login", "/threads/t?resource_id=r", "/static/om.css"):
        text = browser.get(path).text
        assert re.findall(r'(?:src|href|url\()="?https?://(?!(?:127\.0\.0\.1|localhost):)', text) == [], path
        assert re.findall(r"<script(?! src=)|<style|\sstyle=|\son[a-z]+=", text) == [], path


def test_what_is_not_there_is_a_page_that_says_so(browser: httpx.Client) -> None:
    answer = browser.get("/threads/unknown?resource_id=r")
    assert answer.status_code == 404
    assert answer.headers["content-type"].startswith("text/html")
    assert "unknown" in answer.text
    assert browser.post("/jobs/77/retry", data={"csrf": "0"}).status_code == 403


def test_a_search_takes_wildcards_as_text(services: Services, browser: httpx.Client) -> None:
    memory = fill(services)
    memory.append("100% sure", [{"role": "user", "content": "x"}], resource="r")
    found = browser.get("/", params={"q": "100%"}).text
    assert "100% sure" in found
    assert ">t</a>" not in found
    assert "No thread has" in browser.get("/", params={"q": "_"}).text


def test_usage_is_shown_and_given_as_a_table(services: Services, browser: httpx.Client) -> None:
    assert "No model was called yet" in browser.get("/usage").text
    memory = fill(services, "The blue boxes go to Berlin. " * 400)
    memory.observe("t", resource="r")
    work_off(services)
    shown = browser.get("/usage").text
    assert "offline/extractive" in shown
    table = browser.get("/usage.csv")
    assert table.headers["content-type"].startswith("text/csv")
    assert table.text.splitlines()[0] == "day,kind,model,calls,input_tokens,output_tokens,cost_usd"
    assert "offline/extractive" in table.text
