"""Two tenants, two resources and two threads each, every route, every kind of key: no byte of others in any answer.

The requests are made from the application's routes and from the examples of its OpenAPI document, so a new route is in
from its first day.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import httpx
import pytest

from api.app import create_app
from api.dashboard import session as sessions
from api.rights import RIGHTS, Right
from om_core.domain.reach import EVERYTHING, Reach
from om_core.memory import Memory
from om_core.services.keys import create_key, revoke_key
from om_core.store.engine import PostgresStore
from tests.integration.api_server import serving
from tests.support.fixtures import SMALL, build, raw_session
from tests.support.jobs import work_off
from tests.support.routes import routes_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from om_core.services.deps import Services
    from tests.support.servers import Servers

TENANTS, RESOURCES, THREADS = ("one", "two"), ("res-a", "res-b"), ("t-1", "t-2")
REACHES: Final = {
    "full": EVERYTHING,
    "resource": Reach(resource="res-a"),
    "thread": Reach(resource="res-a", thread="t-1"),
    "read_only": Reach(read_only=True),
}
DEAD: Final = ("expired", "revoked", "none")
STREAMS: Final = re.compile("/events|/live")
GATEWAYS: Final = ("/v1/chat/completions", "/v1/messages")
ERASE: Final = ("DELETE", "/v1/resources/{resource}")
MARKER: Final = re.compile("zq[a-z0-9]+qz")


def marker(tenant: str, resource: str, thread: str = "all") -> str:
    return f"zq{tenant}{resource}{thread}qz".replace("-", "")


@dataclass(frozen=True)
class Key:
    """A key of a tenant, with what it may see."""

    tenant: str
    kind: str
    secret: str
    cookie: str
    csrf: str = ""

    @property
    def reach(self) -> Reach:
        return REACHES[self.kind]

    def may_see(self) -> set[str]:
        """Markers of what is within reach; a resource's own document is shown in all of its threads."""
        found = set()
        for resource, thread in itertools.product(RESOURCES, THREADS):
            if self.reach.covers(resource, thread):
                found |= {marker(self.tenant, resource, thread), marker(self.tenant, resource)}
        return found


@dataclass(frozen=True)
class Target:
    """What a request names, where the route has a place for it."""

    thread: str
    resource: str | None
    job: int
    key: int


@dataclass
class World:
    """The application, filled."""

    client: httpx.Client
    document: dict[str, Any]
    routes: list[tuple[str, str]]
    keys: list[Key]
    dead: list[Key]
    jobs: dict[int, tuple[str, str, str]]
    """Job id -> tenant, resource, thread."""
    key_ids: dict[int, str]
    """Key id -> tenant; keys that no request presents."""


@pytest.fixture(scope="module")
def world(servers: Servers) -> Iterator[World]:
    with pytest.MonkeyPatch.context() as patch, servers.new_database() as url:
        for variable in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY"):
            patch.delenv(variable, raising=False)  # gateways stop where they would ask a model
        store = PostgresStore(url, pool_size=8)
        services = build(store, SMALL)
        app = create_app(services, auth="keys")
        with serving(app) as client, httpx.Client(base_url=client.base_url, timeout=30) as plain:
            jobs: dict[int, tuple[str, str, str]] = {}
            for tenant in TENANTS:
                jobs |= fill(Memory(services, tenant))
            keys = [make_key(services, tenant, kind) for tenant in TENANTS for kind in REACHES]
            dead = [make_dead(services, tenant, kind) for tenant in TENANTS for kind in DEAD]
            spare = {create_key(services, tenant, name="spare").row.id: tenant for tenant in TENANTS for _ in range(2)}
            yield World(plain, client.document, routes_of(app), keys, dead, jobs, spare)
        store.close()


def fill(memory: Memory) -> dict[int, tuple[str, str, str]]:
    """Threads with notes, documents, events and live jobs, each text with the marker of its owner."""
    for resource, thread in itertools.product(RESOURCES, THREADS):
        mark = marker(memory.tenant, resource, thread)
        memory.put_thread(thread, resource=resource, title=f"Title {mark}", metadata={"mark": mark})
        say(memory, resource, thread, "green")
        memory.set_working_memory(f"Name: {mark}", thread=thread, resource=resource)
        memory.set_working_memory(f"City: {marker(memory.tenant, resource)}", resource=resource)
    work_off(memory.services)
    jobs = {}
    for resource, thread in itertools.product(RESOURCES, THREADS):
        memory.activate(thread, resource=resource)
        for job in say(memory, resource, thread, "blue").jobs:
            jobs[job.id] = (memory.tenant, resource, thread)
    assert len(jobs) == 4
    return jobs


def say(memory: Memory, resource: str, thread: str, colour: str) -> Any:
    mark = marker(memory.tenant, resource, thread)
    texts = [f"On day {n} my colleague {mark} painted wall {n} {colour}. " * 4 for n in range(9)]
    return memory.append(thread, [{"role": "user", "content": text} for text in texts], resource=resource)


def make_key(services: Services, tenant: str, kind: str) -> Key:
    made = create_key(services, tenant, name=kind, reach=REACHES.get(kind, EVERYTHING))
    now = services.clock.now()
    cookie = sessions.sign_in(services.store, made.secret, now) or ""
    session = sessions.resume(services.store, cookie, now)
    assert session is not None
    return Key(tenant, kind, made.secret, cookie, session.csrf)


def make_dead(services: Services, tenant: str, kind: str) -> Key:
    made = make_key(services, tenant, "full")
    key_id = int(made.cookie.partition(".")[0])
    if kind == "revoked":
        revoke_key(services, tenant, key_id)
    if kind == "expired":
        with raw_session(services.store, tenant) as session:
            gone = "UPDATE api_keys SET expires_at = clock_timestamp() - interval '1 s' WHERE id = %s RETURNING 1"
            assert session.hot(gone, (key_id,))
    blank = kind == "none"
    return Key(tenant, kind, "" if blank else made.secret, "" if blank else made.cookie, made.csrf)


def operation(world: World, method: str, path: str) -> dict[str, Any]:
    found: dict[str, Any] = world.document["paths"].get(path, {}).get(method.lower(), {})
    return found


def targets(world: World, method: str, path: str) -> list[Target]:
    """Every combination of what the route has places for."""
    names = {item["name"] for item in operation(world, method, path).get("parameters", [])}
    body = properties(world, operation(world, method, path))
    pages = not path.startswith("/v1")
    gateway = path in GATEWAYS
    threads = THREADS if gateway or "{thread}" in path or {"thread"} & (names | body) else THREADS[:1]
    wide = gateway or "{resource}" in path or {"resource_id"} & (names | body) or (pages and "{thread}" in path)
    resources: tuple[str | None, ...] = RESOURCES[:1]
    if wide:
        must = "{resource}" in path or pages or gateway or method == "PUT"
        resources = RESOURCES if must else (None, *RESOURCES)
    jobs = list(world.jobs) if "{job_id}" in path else [0]
    keys = list(world.key_ids) if "{key_id}" in path else [0]
    return list(itertools.starmap(Target, itertools.product(threads, resources, jobs, keys)))


def properties(world: World, found: dict[str, Any]) -> set[str]:
    """Fields of the body."""
    schema = found.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
    references = re.findall("#/components/schemas/([^'\"]+)", str(schema))
    return {name for ref in references for name in world.document["components"]["schemas"][ref].get("properties", {})}


def request_for(world: World, method: str, path: str, target: Target, key: Key, *, where: str) -> dict[str, Any]:
    """Arguments of one request. `where` says whether the resource is named in the query or in the body."""
    found = operation(world, method, path)
    parameters = {item["name"]: item for item in found.get("parameters", [])}
    query: dict[str, Any] = {}
    options: dict[str, Any] = {}
    if "requestBody" in found:
        body = example_body(found)
        fields = properties(world, found)
        if "resource_id" in fields:
            body.pop("resource_id", None)
            if where == "body":
                body["resource_id"] = target.resource
        if isinstance(body.get("memory"), dict) and "thread" in body["memory"]:  # of the gateways
            body["memory"] = {"thread": target.thread, "resource": target.resource}
        options["json"] = {**body, "wait_s": 0} if "wait_s" in fields else body
    for name, item in parameters.items():
        if item["in"] == "query" and item.get("required"):
            query[name] = item["schema"]["examples"][0] if "examples" in item["schema"] else item["example"]
    if "resource_id" in parameters and where == "query" and target.resource is not None:
        query["resource_id"] = target.resource
    if "thread" in parameters and "{thread}" not in path:
        query["thread"] = target.thread
    if STREAMS.search(path):
        options["headers"] = {"Last-Event-ID": "0-0"}
    if not path.startswith("/v1"):
        query |= {"resource_id": target.resource} if "{thread}" in path else {}
        if method == "POST":
            options["data"] = {"csrf": key.csrf}
    return {**options, "params": query, "url": filled(path, target, parameters)}


def example_body(found: dict[str, Any]) -> dict[str, Any]:
    content = found["requestBody"]["content"]["application/json"]
    example = content["example"] if "example" in content else next(iter(content["examples"].values()))["value"]
    return dict(example)


def filled(path: str, target: Target, parameters: dict[str, Any]) -> str:
    known = {
        "thread": target.thread,
        "resource": target.resource,
        "job_id": target.job,
        "key_id": target.key,
        "action": "cancel" if path.startswith("/jobs") else "activate",
    }
    for name in re.findall(r"\{(\w+)\}", path):
        value = known[name] if name in known else parameters[name]["schema"]["examples"][0]
        path = path.replace(f"{{{name}}}", str(value))
    return path


def send(client: httpx.Client, method: str, key: Key, arguments: dict[str, Any]) -> tuple[int, str]:
    """Status, and everything that came: of a stream, what comes at once."""
    headers = arguments.pop("headers", {})
    pages = not arguments["url"].startswith("/v1")
    if key.secret:
        headers |= {"Cookie": f"{sessions.COOKIE}={key.cookie}"} if pages else {"Authorization": f"Bearer {key.secret}"}
    if not STREAMS.search(arguments["url"]):
        response = client.request(method, headers=headers, **arguments)
        return response.status_code, f"{response.headers}{response.text}"
    parts: list[str] = []
    with client.stream(method, headers=headers, timeout=httpx.Timeout(30, read=0.3), **arguments) as response:
        try:
            for text in response.iter_text():
                parts.append(text)
                if len(parts) == 2:
                    break
        except httpx.ReadTimeout:
            pass
    return response.status_code, "".join(parts)


def expected(path: str, right: Right, key: Key, target: Target, world: World) -> set[int]:
    """The statuses that a live key may get."""
    pages = not path.startswith("/v1")
    done = {303} if pages else {200}
    if pages and key.reach.narrowed:
        return {303}  # to the login
    if key.reach.read_only and right in {Right.WRITE, Right.ADMIN}:
        return {403}
    if key.reach.narrowed and right is Right.ADMIN:
        return {403}
    beyond = not _within(path, key, target, world)
    if beyond:
        return {200, 404} if "{" not in path else {404}
    if right is Right.READ and not key.reach.narrowed and target.resource is None:
        return {200, 409}  # both resources have a thread with this id
    if "{generation}" in path and right is Right.READ:
        return {404}  # no log was condensed in this world
    if path in GATEWAYS:
        return {503}  # no model's key is set
    return {200} if right is Right.READ else {*done, 200, 404, 409}


def _within(path: str, key: Key, target: Target, world: World) -> bool:
    if "{job_id}" in path:
        tenant, resource, thread = world.jobs[target.job]
        return tenant == key.tenant and key.reach.covers(resource, thread)
    if "{key_id}" in path:
        return world.key_ids[target.key] == key.tenant
    if "{resource}" in path:
        return key.reach.covers_resource(target.resource or "")
    return key.reach.covers(target.resource, target.thread)


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_no_byte_of_others_is_in_any_answer(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    counted: Counter[str] = Counter()
    wrong: list[str] = []
    # What deletes comes last: everything else is asked about what is there.
    gone: set[str] = set()
    for method, path in sorted(world.routes, key=lambda route: (route[0] == "DELETE", route == ERASE)):
        right = RIGHTS[f"{method} {path}"]
        if right is Right.NONE or path == "/logout":
            continue
        for key, target, where in combinations(world, method, path):
            arguments = request_for(world, method, path, target, key, where=where)
            shown = f"{key.tenant} {key.kind}: {method} {arguments['url']} {arguments['params']} {where}"
            status, text = send(world.client, method, key, arguments)
            alive = key in world.keys
            wanted = expected(path, right, key, target, world) if alive else {401} if "/v1" in path else {303}
            counted[f"{key.kind} {status}"] += 1
            if (method, path) == ERASE and status == 200 and target.resource == RESOURCES[0]:
                gone.add(key.tenant)
            if alive and key.reach.narrowed and key.tenant in gone:
                wanted = {*wanted, 401}  # with the resource went the keys that were narrowed to it
            foreign = set(MARKER.findall(text)) - (key.may_see() if alive else set())
            if foreign or status not in wanted:
                wrong.append(f"{shown}: {status}, wanted {sorted(wanted)}; foreign: {sorted(foreign)}: {text[-300:]}")
    with capsys.disabled():
        print(f"\ntenant matrix: {sum(counted.values())} requests, {len(wrong)} wrong; {dict(sorted(counted.items()))}")
    assert not wrong, "\n".join(wrong[:20])
    assert sum(counted.values()) > 1_000
    assert counted["full 200"] > 100
    assert counted["thread 404"] > 20


def combinations(world: World, method: str, path: str) -> Iterator[tuple[Key, Target, str]]:
    found = targets(world, method, path)
    for key in world.dead:
        yield key, found[0], "query"
    body = "resource_id" in properties(world, operation(world, method, path))
    for key, target in itertools.product(world.keys, found):
        yield key, target, "body" if body else "query"
        if body and target.resource is not None and "PUT" not in method:
            yield key, target, "query"
