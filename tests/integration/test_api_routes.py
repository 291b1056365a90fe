"""What each route does when everything is right. Every answer is compared with the OpenAPI document by the client."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest

from om_core.domain.job import QUEUE_OF, JobKind
from om_core.ports import NewJob
from om_core.services.run_jobs import JobRunner
from om_core.store.engine import PostgresStore
from tests.integration.api_server import ApiClient, api_of, say
from tests.support.fixtures import SMALL, build

if TYPE_CHECKING:
    from collections.abc import Iterator

    from om_core.services.deps import Services
    from tests.support.servers import Servers

TALK = (
    "We agreed on 3 May 2026 that Maria calls the Berlin office about the {n} boxes, and that they cost {n} euros. " * 2
)


@pytest.fixture(scope="module")
def shared(servers: Servers) -> Iterator[Services]:
    """Services over one database for this module; tests keep apart by their thread ids."""
    with servers.new_database() as url:
        store = PostgresStore(url, pool_size=8)
        yield build(store, SMALL)
        store.close()


@pytest.fixture(scope="module")
def client(shared: Services) -> Iterator[ApiClient]:
    with api_of(shared) as found:
        yield found


@pytest.fixture
def thread(request: pytest.FixtureRequest) -> str:
    """A thread id of this test's own."""
    return f"t-{abs(hash(request.node.name))}"


def run_jobs(services: Services) -> None:
    """Do every due job, and those that become due by it."""
    runner = JobRunner(services)
    try:
        while any(runner.run(queue) for queue in ("observation", "buffering", "reflection")):
            pass
    finally:
        runner.close()


def fill(client: ApiClient, services: Services, thread: str, *, rounds: int = 5) -> None:
    """Several rounds of talk, each observed before the next one, so that there are several chunks."""
    for part in range(rounds):
        say(client, thread, *[f"{n}: " + TALK.format(n=n) for n in range(6 * part, 6 * part + 6)])
        run_jobs(services)


def test_putting_a_thread_creates_it_then_changes_it_and_says_which(client: ApiClient, thread: str) -> None:
    body = {"resource_id": "user-1", "title": "Bread", "metadata": {"a": 1, "b": 2}, "timezone": "Europe/Paris"}
    created = client.ok("PUT", f"/v1/threads/{thread}", json=body)
    changed = client.ok(
        "PUT", f"/v1/threads/{thread}", json={"resource_id": "user-1", "title": None, "metadata": {"b": None, "c": 3}}
    )

    assert (created["created"], changed["created"]) == (True, False)
    assert created["title"] == "Bread"
    assert changed["title"] is None
    assert changed["metadata"] == {"a": 1, "c": 3}
    assert changed["timezone"] == "Europe/Paris"
    assert client.ok("GET", f"/v1/threads/{thread}")["version"] == changed["version"] > created["version"]


def test_a_stale_version_is_refused_and_a_current_one_is_taken(client: ApiClient, thread: str) -> None:
    version = client.ok("PUT", f"/v1/threads/{thread}", json={"resource_id": "user-1"})["version"]
    path, body = f"/v1/threads/{thread}", {"resource_id": "user-1", "title": "x", "version": version}

    assert client.put(path, json=body).status_code == 200
    stale = client.put(path, json=body)
    assert (stale.status_code, stale.json()["code"]) == (409, "conflict")


def test_threads_are_listed_by_resource_page_by_page_each_once(client: ApiClient) -> None:
    names = [f"page-{n}" for n in range(5)]
    for name in names:
        client.ok("PUT", f"/v1/threads/{name}", json={"resource_id": "pages"})

    seen: list[str] = []
    query: dict[str, Any] = {"resource_id": "pages", "limit": 2}
    while True:
        page = client.ok("GET", "/v1/threads", params=query)
        seen += [item["id"] for item in page["items"]]
        if page["next_cursor"] is None:
            break
        query["cursor"] = page["next_cursor"]
    assert seen == names[::-1]


def test_a_step_answers_with_ids_seqs_tokens_jobs_and_status(client: ApiClient, thread: str) -> None:
    answer = say(client, thread, "My favourite colour is blue.", "Noted.")

    assert [(ref["seq"], ref["created"]) for ref in answer["messages"]] == [(1, True), (2, True)]
    assert all(ref["tokens"] > 0 and ref["id"] for ref in answer["messages"])
    assert answer["created"] is True
    assert (answer["duplicates"], answer["deleted"], answer["ignored"], answer["jobs"]) == ([], [], [], [])
    assert answer["status"]["threadId"] == thread
    assert "context" not in answer
    assert "diverged_at_seq" not in answer


def test_a_step_that_makes_work_due_names_the_jobs(client: ApiClient, thread: str) -> None:
    answer = say(client, thread, *[f"{n}: " + TALK.format(n=n) for n in range(10)])

    assert [job["kind"] for job in answer["jobs"]] == ["observe"]
    assert client.ok("GET", f"/v1/jobs/{answer['jobs'][0]['id']}")["thread"] == thread


@pytest.mark.conforms("10.4")
def test_a_step_with_context_gets_the_prompt_in_the_same_answer(client: ApiClient, thread: str) -> None:
    answer = say(client, thread, "What is 2 + 2?", context={"format": "openai"})

    assert answer["context"]["messages"] == [{"role": "user", "content": "What is 2 + 2?"}]
    assert answer["context"]["head_seq"] == 1


@pytest.mark.parametrize(
    ("format", "message"),
    [
        ("om", {"role": "user", "parts": [{"type": "text", "text": "Hello there"}]}),
        ("openai", {"role": "user", "content": "Hello there"}),
        ("anthropic", {"role": "user", "content": [{"type": "text", "text": "Hello there"}]}),
    ],
)
def test_each_message_format_is_stored_as_the_same_message(
    client: ApiClient, format: str, message: dict[str, Any]
) -> None:
    body = {"resource_id": "user-1", "format": format, "messages": [message]}
    client.ok("POST", f"/v1/threads/format-{format}/messages", json=body)

    [stored] = client.ok("GET", f"/v1/threads/format-{format}/messages")["items"]
    assert [part["text"] for part in stored["parts"]] == ["Hello there"]
    assert (stored["role"], stored["seq"]) == ("user", 1)


def test_without_a_format_messages_with_parts_are_canonical(client: ApiClient, thread: str) -> None:
    body = {"resource_id": "user-1", "messages": [{"role": "user", "parts": [{"type": "text", "text": "Hi"}]}]}

    assert client.ok("POST", f"/v1/threads/{thread}/messages", json=body)["messages"][0]["seq"] == 1


@pytest.mark.report("C01")
def test_a_repeated_idempotency_key_stores_nothing_twice(client: ApiClient, thread: str) -> None:
    def post(text: str, key: str) -> Any:
        body = {"resource_id": "user-1", "format": "openai", "messages": [{"role": "user", "content": text}]}
        return client.post(f"/v1/threads/{thread}/messages", json=body, headers={"Idempotency-Key": key})

    first, again, other = post("one", "k-1").json(), post("one", "k-1").json(), post("one", "k-2").json()

    assert first["messages"][0]["id"] == again["messages"][0]["id"]
    assert [first["messages"][0]["created"], again["messages"][0]["created"]] == [True, False]
    assert again["duplicates"] == [first["messages"][0]["id"]]
    assert other["messages"][0]["seq"] == 2
    assert post("two", "k-1").status_code == 409


@pytest.mark.conforms("1.1")
@pytest.mark.report("B16")
@pytest.mark.parametrize("by", ["body", "header", "both"])
def test_mode_off_reads_nothing_writes_nothing_and_starts_nothing(client: ApiClient, by: str) -> None:
    body: dict[str, Any] = {"resource_id": "user-1", "messages": [{"role": "user", "content": "secret"}], "context": {}}
    headers = {} if by == "body" else {"X-OM-Mode": "off"}
    body |= {} if by == "header" else {"memory": "off"} if by == "body" else {"memory": "on"}

    answer = client.ok("POST", f"/v1/threads/off-{by}/messages", json=body, headers=headers)

    assert (answer["messages"], answer["jobs"], answer["status"]) == ([], [], None)
    assert answer["context"]["messages"] == []
    assert client.get(f"/v1/threads/off-{by}").status_code == 404


@pytest.mark.conforms("1.1")
def test_mode_read_only_stores_nothing_and_shows_the_context(client: ApiClient, thread: str) -> None:
    say(client, thread, "Stored before.")

    answer = say(client, thread, "Not to be stored.", memory="read_only", context={"format": "openai"})

    assert answer["messages"] == []
    assert [message["content"] for message in answer["context"]["messages"]] == ["Stored before."]
    assert client.ok("GET", f"/v1/threads/{thread}")["head_seq"] == 1


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_context_in_mode_off_is_empty_even_for_an_unknown_thread(client: ApiClient, method: str) -> None:
    found = client.ok(method, "/v1/threads/never-seen/context", headers={"X-OM-Mode": "off"})

    assert (found["system"], found["messages"], found["tokens"]["total"]) == ([], [], 0)


def test_messages_are_listed_in_order_forwards_and_backwards_each_once(client: ApiClient, thread: str) -> None:
    say(client, thread, *[f"number {n}" for n in range(1, 8)])
    path = f"/v1/threads/{thread}/messages"

    def walk(**query: Any) -> list[list[int]]:
        pages = []
        while True:
            page = client.ok("GET", path, params=query)
            pages.append([item["seq"] for item in page["items"]])
            if page["next_cursor"] is None:
                return pages
            query["cursor"] = page["next_cursor"]

    assert walk(limit=3) == [[1, 2, 3], [4, 5, 6], [7]]
    assert walk(limit=3, after_seq=1) == [[2, 3, 4], [5, 6, 7]]
    assert walk(limit=3, before_seq=7) == [[4, 5, 6], [1, 2, 3]]
    assert walk(limit=3, after_seq=2, before_seq=7) == [[3, 4, 5], [6]]


def test_two_resources_with_one_thread_id_are_two_threads_and_one_must_be_named(client: ApiClient) -> None:
    say(client, "same", "I am Ann.", resource="ann")
    say(client, "same", "I am Bob.", resource="bob")

    for path in ("", "/status", "/messages", "/context", "/observations", "/reflections"):
        refused = client.get(f"/v1/threads/same{path}")
        assert (refused.status_code, refused.json()["code"]) == (409, "ambiguous_thread"), path
        assert client.get(f"/v1/threads/same{path}", params={"resource_id": "ann"}).status_code == 200, path
    for path in ("messages", "context", "observe", "reflect", "activate", "flush"):
        body: dict[str, Any] = {"messages": []} if path == "messages" else {"wait_s": 0} if path == "flush" else {}
        refused = client.post(f"/v1/threads/same/{path}", json=body)
        assert (refused.status_code, refused.json()["code"]) == (409, "ambiguous_thread"), path
        assert client.post(f"/v1/threads/same/{path}", json={**body, "resource_id": "bob"}).status_code == 200, path
    texts = [
        client.ok("GET", "/v1/threads/same/messages", params={"resource_id": name})["items"][0]["parts"][0]["text"]
        for name in ("ann", "bob")
    ]
    assert texts == ["I am Ann.", "I am Bob."]


@pytest.mark.conforms("10.4")
def test_getting_a_context_changes_nothing_and_posting_activates_what_is_due(
    client: ApiClient, shared: Services, thread: str
) -> None:
    fill(client, shared, thread)

    def seen() -> tuple[Any, ...]:
        with shared.store.reading("default") as tx:
            snapshot = tx.memories.find("user-1", thread)
            assert snapshot is not None
            return snapshot.thread, snapshot.memory, tx.chunks.buffered(snapshot.thread.id)

    before = seen()
    first, second = (client.ok("GET", f"/v1/threads/{thread}/context") for _ in range(2))
    assert seen() == before
    assert first == second
    assert first["activated"] is None

    active = client.ok("POST", f"/v1/threads/{thread}/context", json={"format": "openai"})
    assert active["activated"]["chunks"] >= 1
    assert active["observed_seq"] > first["observed_seq"]
    assert seen() != before
    assert (
        client.ok("GET", f"/v1/threads/{thread}/context", params={"format": "openai"})["messages"] == active["messages"]
    )


@pytest.mark.report("C06")
def test_ephemeral_messages_stand_in_the_volatile_tail_and_are_not_stored(client: ApiClient, thread: str) -> None:
    say(client, thread, "Hello.")
    body = {"format": "openai", "ephemeral": [{"role": "user", "content": "The screen shows a cart."}]}

    found = client.ok("POST", f"/v1/threads/{thread}/context", json=body)

    assert any("The screen shows a cart." in block["text"] for block in found["volatile"])
    assert found["stable_messages"] == 1
    assert client.ok("GET", f"/v1/threads/{thread}")["head_seq"] == 1


def test_observations_lists_chunks_by_state(client: ApiClient, shared: Services, thread: str) -> None:
    fill(client, shared, thread)
    path = f"/v1/threads/{thread}/observations"
    waiting = client.ok("GET", path, params={"state": "buffered"})["items"]
    assert waiting
    assert client.ok("GET", path)["items"] == []

    client.ok("POST", f"/v1/threads/{thread}/activate", json={})

    active = client.ok("GET", path)["items"]
    assert [chunk["id"] for chunk in active] == [chunk["id"] for chunk in waiting]
    assert active[0]["from_seq"] == 1
    assert active[0]["from_message_id"]
    everything = client.ok("GET", path, params={"state": "all", "limit": 1})
    assert [chunk["id"] for chunk in everything["items"]] == [active[0]["id"]]
    assert (everything["next_cursor"] is None) == (len(active) == 1)


def test_reflections_are_listed_with_their_text(client: ApiClient, shared: Services, thread: str) -> None:
    fill(client, shared, thread)
    client.ok("POST", f"/v1/threads/{thread}/activate")
    client.ok("POST", f"/v1/threads/{thread}/reflect", json={"guidance": "Keep the prices."})
    run_jobs(shared)

    [newest, *_] = client.ok("GET", f"/v1/threads/{thread}/reflections")["items"]
    assert newest["text"]
    assert newest["through_position"] >= 1


@pytest.mark.conforms("11.7")
def test_observe_without_waiting_answers_with_the_job_and_with_nothing_pending_says_why(
    client: ApiClient, shared: Services, thread: str
) -> None:
    say(client, thread, "A short message.", "A short reply.")

    asked = client.ok("POST", f"/v1/threads/{thread}/observe")
    assert asked["state"] == "available"
    assert (asked["result"]["id"], asked["result"]["kind"]) == (asked["job"], "observe")

    run_jobs(shared)
    again = client.ok("POST", f"/v1/threads/{thread}/observe", json={"wait_s": 5})
    assert (again["job"], again["reason"]) == (None, "nothing is pending")


def test_jobs_are_listed_cancelled_once_and_filtered(client: ApiClient, thread: str) -> None:
    say(client, thread, "A short message.", "A short reply.")
    job = client.ok("POST", f"/v1/threads/{thread}/observe")["job"]

    found = client.ok("GET", "/v1/jobs", params={"thread": thread, "state": "available", "kind": "observe"})
    assert [item["id"] for item in found["items"]] == [job]
    assert client.ok("POST", f"/v1/jobs/{job}/cancel")["state"] == "cancelled"
    assert client.post(f"/v1/jobs/{job}/cancel").status_code == 409
    assert client.ok("GET", "/v1/jobs", params={"thread": thread, "state": "available"})["items"] == []


def test_discarded_jobs_are_redriven_one_by_one_and_all_together(
    client: ApiClient, shared: Services, thread: str
) -> None:
    ids = [discard(shared, client, f"{thread}-{n}") for n in range(3)]

    assert client.ok("POST", f"/v1/jobs/{ids[0]}/retry")["state"] == "available"
    assert client.post(f"/v1/jobs/{ids[0]}/retry").status_code == 409
    redriven = client.ok("POST", "/v1/jobs/retry", params={"state": "discarded"})["items"]
    assert {item["id"] for item in redriven} >= set(ids[1:])
    assert {client.ok("GET", f"/v1/jobs/{job}")["state"] for job in ids} == {"available"}


def discard(services: Services, client: ApiClient, thread: str) -> int:
    """A job of this thread that was given up."""
    say(client, thread, "Hello.")
    with services.store.transaction("default") as tx:
        snapshot = tx.memories.find("user-1", thread)
        assert snapshot is not None
        new = NewJob(
            kind=JobKind.OBSERVE,
            queue=QUEUE_OF[JobKind.OBSERVE],
            target=f"thread:{snapshot.thread.id}",
            thread=thread,
            memory_id=snapshot.memory.id,
            thread_id=snapshot.thread.id,
            reason="test",
            policy=services.policies.as_json(services.policies.of(snapshot.memory)),
        )
        return tx.jobs.insert_discarded(new, {"code": "unusable_output", "message": "three refusals"})


def test_one_connection_of_the_api_serves_unusual_ids(client: ApiClient) -> None:
    name = "Zoë: a+b c%d?e#f&g=h 日本"
    path = f"/v1/threads/{quote(name, safe='')}"

    client.ok("PUT", path, json={"resource_id": "user|1"})

    assert client.ok("GET", path, params={"resource_id": "user|1"})["id"] == name
