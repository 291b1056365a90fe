"""A tour of the dashboard in a real browser, with a worker beside the API (API 3, `/`)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from om_core.memory import Memory
from om_core.services.keys import create_key
from om_core.services.local import LocalDispatcher, LocalWorker
from tests.integration.api_server import ApiClient, api_of, say
from tests.integration.test_backlog import parked
from tests.support.browser import chromium, picture
from tests.support.fixtures import services_with, store
from tests.support.jobs import work_off

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from playwright.sync_api import Browser, Page

    from om_core.config import Settings
    from om_core.services.deps import Services

__all__ = ["services_with", "store"]

TALK = "On 3 May 2026 Maria asked the Berlin office to send {n} blue boxes, which cost {n} euros each. "
THREAD = "/threads/trip?resource_id=user-1"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as opened:
        yield opened


@pytest.fixture
def client(services_with: Callable[..., Services]) -> Iterator[ApiClient]:
    dispatcher = LocalDispatcher()
    services = services_with(None, dispatcher=dispatcher)
    worker = LocalWorker(services, dispatcher, period_s=0.2)
    worker.start()
    with api_of(services) as opened:
        yield opened
    worker.stop()


@pytest.fixture
def page(browser: Browser, client: ApiClient) -> Iterator[Page]:
    """A page that fails the test on any error of its script and any answer from elsewhere."""
    context = browser.new_context(base_url=str(client.base_url), viewport={"width": 1200, "height": 900})
    opened = context.new_page()
    faults: list[str] = []
    opened.on("pageerror", lambda error: faults.append(str(error)))
    opened.on("console", lambda message: faults.append(message.text) if message.type == "error" else None)
    opened.on("request", lambda asked: None if asked.url.startswith(str(client.base_url)) else faults.append(asked.url))
    yield opened
    context.close()
    assert faults == []


def talk(client: ApiClient, first: int, count: int) -> None:
    say(client, "trip", *[f"{n}: " + 3 * TALK.format(n=n) for n in range(first, first + count)])


def test_an_activation_arrives_on_the_open_page(page: Page, client: ApiClient) -> None:
    say(client, "trip", "Plan my trip to Lisbon.", "Gladly.")
    client.ok("PUT", "/v1/threads/trip", json={"resource_id": "user-1", "title": "Trip to Lisbon"})
    page.goto("/")
    page.get_by_role("searchbox").fill("LISBON")
    page.get_by_role("button", name="Search").click()
    page.get_by_role("link", name="Trip to Lisbon").click()
    expect(page.get_by_role("heading", name="Trip to Lisbon")).to_be_visible()
    expect(page.get_by_text("live", exact=True)).to_be_visible()
    assert page.locator(".data-om-activation").count() == 0

    talk(client, 0, 40)
    expect(page.locator(".data-om-buffering-end, .data-om-observation-end").first).to_be_visible(timeout=30_000)
    client.ok("POST", "/v1/threads/trip/activate")

    expect(page.locator(".data-om-activation").first).to_be_visible(timeout=15_000)
    page.screenshot(path=picture("thread-live"))
    tokens = client.ok("GET", "/v1/threads/trip/status")["windows"]["active"]["observations"]["tokens"]
    expect(page.get_by_label(re.compile(f"^Notes: {tokens:,} of"))).to_be_visible()


def test_a_note_leads_to_its_messages_with_one_click(page: Page, client: ApiClient) -> None:
    talk(client, 0, 40)
    client.ok("POST", "/v1/threads/trip/flush", json={"wait_s": 30})
    page.goto(THREAD)
    page.get_by_role("link", name="Log").click()
    first = page.locator("details.sources").first

    first.locator("summary").click()

    expect(first.get_by_text(TALK.format(n=0).strip(), exact=False)).to_be_visible()
    page.screenshot(path=picture("log-sources"))
    page.get_by_role("link", name="Context").click()
    expect(page.get_by_label(re.compile("percent of the prompt can stay cached"))).to_be_visible()
    page.screenshot(path=picture("context"))


def test_a_reflection_shows_what_it_changed_and_an_earlier_one_is_restored(page: Page, client: ApiClient) -> None:
    for first in (0, 60):
        talk(client, first, 60)
        client.ok("POST", "/v1/threads/trip/flush", json={"wait_s": 30})
        client.ok("POST", "/v1/threads/trip/reflect", json={"wait_s": 30})
        client.ok("POST", "/v1/threads/trip/activate")
    newest = client.ok("GET", "/v1/threads/trip/reflections")["items"][0]["generation"]
    assert newest >= 2
    page.goto(THREAD)
    page.get_by_role("link", name="Reflections").click()
    expect(page.get_by_role("heading", name=re.compile(f"Generation {newest} active"))).to_be_visible()
    expect(page.locator(".diff .added").first).to_be_visible()
    page.screenshot(path=picture("reflections"))

    page.get_by_role("button", name=f"Restore generation {newest - 1}").click()

    expect(page.get_by_role("heading", name=re.compile(f"Generation {newest - 1} active"))).to_be_visible()


def test_a_parked_job_is_redriven_with_a_button(browser: Browser, settings: Settings) -> None:
    with parked(settings) as (memory, _, poisoned), api_of(memory.services) as client:
        context = browser.new_context(base_url=str(client.base_url))
        page = context.new_page()
        page.goto("/jobs?state=discarded")
        expect(page.get_by_text(re.compile("refus")).first).to_be_visible()
        page.screenshot(path=picture("jobs-discarded"))

        page.get_by_role("button", name="Redrive", exact=True).first.click()

        expect(page.get_by_role("cell", name="available").first).to_be_visible()
        poisoned[0] = False
        work_off(memory.services)
        page.goto("/jobs?state=discarded")
        expect(page.get_by_text("No such job.")).to_be_visible()
        context.close()


def test_the_keyboard_alone_reaches_a_thread_and_a_phone_shows_it(browser: Browser, client: ApiClient) -> None:
    talk(client, 0, 4)
    context = browser.new_context(
        base_url=str(client.base_url), viewport={"width": 390, "height": 800}, color_scheme="dark"
    )
    page = context.new_page()
    page.goto("/")
    for _ in range(20):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.textContent") == "trip":
            break
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="trip")).to_be_visible()
    for path in (THREAD, "/", "/jobs", "/workers", "/usage", "/invariants", THREAD.replace("?", "/log?")):
        page.goto(path)
        assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"), f"{path} is too wide"
    page.goto(THREAD)
    page.screenshot(path=picture("phone-dark"))
    context.close()


def test_signing_in_with_a_key_opens_its_tenant_until_it_is_revoked(
    browser: Browser, services_with: Callable[..., Services]
) -> None:
    services = services_with()
    Memory(services, "mine").append("trip", [{"role": "user", "content": "mine"}], resource="user-1")
    Memory(services, "theirs").append("secret", [{"role": "user", "content": "theirs"}], resource="user-1")
    made = create_key(services, "mine", name="me")
    with api_of(services, auth="keys") as client:
        context = browser.new_context(base_url=str(client.base_url))
        page = context.new_page()
        page.goto(THREAD)
        expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
        page.screenshot(path=picture("login"))
        page.get_by_label("API key").fill("om_live_wrong")
        page.get_by_role("button", name="Sign in").click()
        expect(page.get_by_role("alert")).to_contain_text("not known")

        page.get_by_label("API key").fill(made.secret)
        page.get_by_role("button", name="Sign in").click()

        expect(page.get_by_role("heading", name="trip")).to_be_visible()  # where it was going to
        page.goto("/")
        expect(page.get_by_role("link", name="secret")).to_have_count(0)
        [cookie] = context.cookies()
        assert (cookie["httpOnly"], cookie["sameSite"]) == (True, "Strict")
        assert made.secret not in cookie["value"]
        with services.store.transaction("mine") as tx:
            tx.keys.revoke(made.row.id)
        page.goto("/")
        expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
        context.close()
