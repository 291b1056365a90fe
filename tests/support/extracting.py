"""A stage for tests of extractors: memory over a scripted model, real jobs, and what there is to see of values."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from om_core.llm.registry import ModelRegistry
from om_core.memory import Memory
from om_core.services.run_jobs import JobRunner
from om_core.testing.scripted_replies import answer_reply
from om_core.testing.scripted_server import Reply, ScriptedModelServer
from tests.support import extractors
from tests.support.fixtures import COUNTER, SMALL

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from om_core import Extractor
    from om_core.domain.message import JsonObject
    from om_core.services.deps import Services

KEY = "sk-proj-aB3dE5gH7jK9mN1pQ2rS4tU6vW8xY0zA"
TALK = "TRACE-{n} " + "the blue box goes to the Berlin office on Friday " * 6


class Stage:
    """Memory with these extractors over a scripted model; `sections` and `objects` are what it answers beside notes."""

    def __init__(self, server: ScriptedModelServer, services_with: Callable[..., Services]) -> None:
        self.server = server
        self._services_with = services_with
        self.sections = ""
        self.objects: list[Any] = []
        self.junk = False
        """Whether the Observer's answers are of no use."""
        self.memory: Memory

    def open(self, *extract: Extractor, **options: Any) -> Memory:
        model = ModelRegistry(count_tokens=COUNTER.count_text, api_base=self.server.base_url, api_key="none")
        tree = {**SMALL, "model": "openai/scripted", "job": {"max_failures": 2, "backoff_base": 1, "backoff_cap": 1}}
        observation = {**SMALL["observation"], "extract": list(extract)}
        observation |= options.pop("observation", {})
        self.memory = Memory(self._services_with({**tree, "observation": observation, **options}, model=model))
        return self.memory

    def script(self, request: JsonObject) -> Reply:
        """What the server answers."""
        if self.is_extraction(request):
            answer = self.objects.pop(0) if self.objects else {}
            return answer if isinstance(answer, Reply) else Reply(text=json.dumps(answer))
        return Reply(text="I'm sorry, I can't." if self.junk else f"{answer_reply(request)}\n{self.sections}")

    @staticmethod
    def is_extraction(request: JsonObject) -> bool:
        return "JSON Schema" in str(request["messages"][0]["content"])

    def prompts(self, *, extraction: bool = False) -> list[tuple[str, str]]:
        """Instructions and material of each request."""
        texts = [[str(message["content"]) for message in call.request["messages"]] for call in self.server.calls]
        kinds = [self.is_extraction(call.request) for call in self.server.calls]
        return [(text[0], text[1]) for text, kind in zip(texts, kinds, strict=True) if kind is extraction]

    def talk(self, count: int = 6, *, start: int = 0, thread: str = "t") -> None:
        for n in range(start, start + count):
            role = "assistant" if n % 2 else "user"
            self.memory.append(thread, [{"role": role, "content": TALK.format(n=n)}], resource="r")

    def run(self) -> list[str]:
        """Run what is due until nothing is; the outcomes."""
        runner = JobRunner(self.memory.services)
        outcomes: list[str] = []
        try:
            while any(self.memory.jobs(state=state).items for state in ("available", "retryable")):
                for queue in ("observation", "buffering", "reflection"):
                    while (outcome := runner.run(queue)) is not None:
                        outcomes.append(outcome)
                        assert len(outcomes) < 100, "the same work comes again for ever"
        finally:
            runner.close()
        return outcomes

    def turn(self, *, start: int = 0) -> list[str]:
        """One chunk's worth of talk, observed."""
        self.talk(start=start)
        return self.run()

    def status(self, thread: str = "t") -> JsonObject:
        return self.memory.status(thread, resource="r")

    def chunks(self) -> list[JsonObject]:
        return list(self.memory.observations("t", resource="r", state="all").items)

    def events(self, kind: str) -> list[JsonObject]:
        return [event.payload for event in self.memory.events("t", resource="r") if event.type == f"data-om-{kind}"]

    def tail(self) -> dict[str | None, str]:
        """Extracted values in the volatile tail."""
        context = self.memory.context("t", resource="r").context
        return {block.name: block.text for block in context.volatile if block.kind == "extracted"}


@pytest.fixture
def stage(services_with: Callable[..., Services]) -> Iterator[Stage]:
    holder: list[Stage] = []
    with ScriptedModelServer(lambda request, number: holder[0].script(request)) as server:
        holder.append(Stage(server, services_with))
        yield holder[0]
    extractors.seen.clear()


def section(slug: str, text: str) -> str:
    return f"<{slug}>\n{text}\n</{slug}>"
