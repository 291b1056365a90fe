"""Calling providers through LiteLLM, with their errors as they gave them.

A client's fields are never LiteLLM's: only those of the provider's own interface become arguments, everything else
travels as `extra_body`, so that no request can redirect a call, read a key or switch on a callback.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from starlette.concurrency import run_in_threadpool

from om_core.domain.errors import SetupError
from om_core.llm.errors import classify
from om_core.llm.keys import missing_key
from om_core.llm.library import litellm_module
from om_core.llm.names import is_offline, split_name

if TYPE_CHECKING:
    from collections.abc import Iterator

    from om_core.domain.message import JsonObject

TIMEOUT_S: Final = 600.0
"""For one call; providers' clients have limits of their own."""
BAD_GATEWAY: Final = 502
MAX_TOKENS: Final = 4_096
"""Of an answer where the client names no limit, which Anthropic's form asks for."""
NO_KEY: Final = "none"
_TOO_LONG: Final = re.compile("context_length_exceeded|prompt is too long|maximum context length", re.IGNORECASE)
_OURS: Final = frozenset({"model", "messages", "stream"})
_ANTHROPIC: Final = frozenset(
    {
        "max_tokens", "metadata", "stop_sequences", "system", "temperature", "thinking", "tool_choice", "tools",
        "top_k", "top_p", "container", "context_management", "mcp_servers", "output_config", "output_format",
        "service_tier", "speed", "inference_geo",
    }
)  # fmt: skip


@dataclass(slots=True)
class UpstreamError(Exception):
    """A provider's refusal: its status, its body if it was JSON, and whether the prompt was too long."""

    status: int
    body: JsonObject | None
    text: str
    retry_after: str | None = None
    too_long: bool = False


@dataclass(frozen=True, slots=True)
class Upstream:
    """The providers. `api_base` is the OpenAI-compatible server that `openai/NAME` means, if it is not OpenAI's own."""

    api_base: str | None = None

    async def chat(self, body: JsonObject) -> Any:
        """A chat completion: a dictionary, or with `stream` an async iterator of LiteLLM's chunks.

        Raises:
            UpstreamError: the provider refused, or could not be reached.
            SetupError: there is no such model, or its key is missing.
        """
        library = await run_in_threadpool(litellm_module)
        where = self._where(str(body["model"]))
        # OpenAI's own form needs no translation; LiteLLM drops some of its fields. This one it has to know.
        fields = frozenset({"stream_options"}) if where["model"].startswith("openai/") else chat_fields()
        known = {name: value for name, value in body.items() if name in fields}
        extra = {name: value for name, value in body.items() if name not in {*known, *_OURS}}
        try:
            return await library.acompletion(
                messages=body["messages"],
                stream=bool(body.get("stream")),
                **known,
                **({"extra_body": extra} if extra else {}),
                **where,
            )
        except Exception as error:  # whatever a provider's client raises is passed on
            raise failure(error) from error

    async def messages(self, body: JsonObject) -> Any:
        """An Anthropic message of another provider's model, translated by LiteLLM: a dictionary, or with `stream` an
        async iterator of bytes. Raises as `chat`.
        """
        library = await run_in_threadpool(litellm_module)
        library.use_chat_completions_url_for_anthropic_messages = True  # not every server has `/responses`
        known = {name: value for name, value in body.items() if name in _ANTHROPIC}
        try:
            return await library.anthropic.messages.acreate(
                messages=body["messages"],
                stream=bool(body.get("stream")),
                **{"max_tokens": MAX_TOKENS, **known},
                **self._where(str(body["model"]), default="anthropic"),
            )
        except Exception as error:  # as above
            raise failure(error) from error

    def _where(self, model: str, default: str = "openai") -> JsonObject:
        """Model, server, key and limits of a call."""
        name = name_of(model, default)
        arguments: JsonObject = {
            "model": name,
            "num_retries": 0,  # the client retries, as it does with the provider itself
            "max_retries": 0,
            "timeout": TIMEOUT_S,
        }
        if self.api_base and name.startswith("openai/"):
            arguments["api_base"] = self.api_base
            if missing_key(name) is not None:
                arguments["api_key"] = NO_KEY
        elif (variable := missing_key(name)) is not None:
            raise SetupError(f"the model {model[:100]!r} needs {variable}, which is not set where the API runs")
        return arguments

    async def models(self) -> list[str]:
        """Names that can be asked for: those of the server, or of the providers whose keys are set."""
        library = await run_in_threadpool(litellm_module)
        found = await run_in_threadpool(library.get_valid_models)
        return sorted(set(found))


def name_of(model: str, default: str) -> str:
    """LiteLLM's name of a client's model; a bare one that tells no provider belongs to `default`.

    Raises:
        SetupError: it is no name, or the built-in model, which takes notes and holds no conversations.
    """
    if is_offline(model):
        raise SetupError(f"{model[:100]!r} takes notes; it does not hold conversations")
    try:
        provider, name = split_name(model)
    except SetupError:
        provider, name = split_name(f"{default}/{model}")
    return f"{provider}/{name}"


@cache
def chat_fields() -> frozenset[str]:
    """Fields of OpenAI's interface that LiteLLM takes as arguments."""
    import inspect

    from openai.types.chat.completion_create_params import CompletionCreateParamsBase

    taken = set(inspect.signature(litellm_module().acompletion).parameters)
    return frozenset((set(CompletionCreateParamsBase.__annotations__) & taken) - _OURS)


def failure(error: BaseException) -> Exception:
    """A provider's error with its own status and body, whatever LiteLLM wrapped around it."""
    if isinstance(error, SetupError):
        return error
    chain = list(_chain(error))
    retry_after = _retry_after(chain)
    too_long = any("ContextWindowExceeded" in type(one).__name__ for one in chain)
    for one in chain:
        status, body = _status(one), _body(one)
        if status is not None and body is not None:
            too_long = too_long or is_too_long(json.dumps(body))
            return UpstreamError(status, body, "", retry_after=retry_after, too_long=too_long)
    found = next(filter(None, map(_status, chain)), BAD_GATEWAY)
    return UpstreamError(found, None, str(classify(error)), retry_after=retry_after, too_long=too_long)


def is_too_long(text: str) -> bool:
    """Whether a provider's error says that the prompt does not fit its window."""
    return _TOO_LONG.search(text) is not None


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """Causes, the innermost first."""
    found: list[BaseException] = []
    while error is not None and len(found) < 20:
        found.append(error)
        error = error.__cause__ or error.__context__
    yield from reversed(found)


def _status(error: BaseException) -> int | None:
    value = getattr(error, "status_code", None) or getattr(getattr(error, "response", None), "status_code", None)
    return value if isinstance(value, int) and 400 <= value <= 599 else None


def _body(error: BaseException) -> JsonObject | None:
    for text in (getattr(getattr(error, "response", None), "text", None), getattr(error, "text", None), str(error)):
        try:
            found = json.loads(text) if isinstance(text, str) else None
        except ValueError:
            continue
        if isinstance(found, dict) and "error" in found:
            return found
    return None


def _retry_after(chain: list[BaseException]) -> str | None:
    for one in chain:
        headers = getattr(getattr(one, "response", None), "headers", None)
        if headers is not None and (value := headers.get("retry-after")):
            return str(value)
    return None
