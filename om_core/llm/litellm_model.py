"""Model calls through LiteLLM: one attempt each, bounded in time, every failure classified (DESIGN 5 and 7)."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

from om_core.domain.errors import RetryLaterError, SetupError
from om_core.llm.catalog import facts_of
from om_core.llm.errors import classify
from om_core.llm.keys import missing_key
from om_core.llm.library import litellm_module
from om_core.llm.loop import LoopThread, shared_loop
from om_core.llm.names import split_name
from om_core.llm.options import call_arguments, prompt_messages
from om_core.ports import ModelReply

if TYPE_CHECKING:
    from collections.abc import Mapping
    from threading import Event

    from om_core.domain.errors import OmError
    from om_core.llm.catalog import ModelPrice
    from om_core.ports import ModelRequest

CONNECT_TIMEOUT_S: Final = 5.0
NO_KEY: Final = "none"
"""Sent to a server of one's own when no key is set: SDKs refuse to send nothing."""


class LiteLlmModel:
    """A `LanguageModel` for every provider that LiteLLM knows. Safe to share between threads.

    Args:
        api_base: address of an OpenAI-compatible server, as in `http://127.0.0.1:8000/v1`; for all calls.
        api_key: key for all calls; default the provider's environment variable.
        connect_timeout_s: most seconds to reach the server, where the provider's client tells connecting apart.
        read_timeout_s: most seconds without a byte; default the call's whole time, because an answer that is not
            streamed arrives at its end only.
        prices: US dollars per token of models that LiteLLM has no price for, by the name that requests use.
        loop: where calls wait; default the loop of this process.
    """

    def __init__(
        self,
        *,
        api_base: str | None = None,
        api_key: str | None = None,
        connect_timeout_s: float = CONNECT_TIMEOUT_S,
        read_timeout_s: float | None = None,
        prices: Mapping[str, ModelPrice] | None = None,
        loop: LoopThread | None = None,
    ) -> None:
        self._api_base = api_base
        self._api_key = api_key
        self._connect_timeout_s = connect_timeout_s
        self._read_timeout_s = read_timeout_s
        self._prices = dict(prices or {})
        self._loop = loop or shared_loop()

    def warm_up(self) -> None:
        """Import LiteLLM now, so that the first call does not spend its time on it."""
        litellm_module()

    def window_tokens(self, model: str) -> int | None:
        """The model's input window in tokens, or None when it is not known. No network, no import of LiteLLM."""
        return facts_of(model).window_tokens

    def price_of(self, model: str) -> ModelPrice | None:
        """US dollars per token: the configured price, else the list price; None when there is neither."""
        return self._prices.get(model) or facts_of(model).price

    def complete(self, request: ModelRequest, *, timeout_s: float, cancelled: Event | None = None) -> ModelReply:
        """Answer within `timeout_s`, whatever the server does; stop early when `cancelled` is set.

        An answer without choices or without content is an empty text; what that means is the parser's decision.

        Raises:
            RetryLaterError: an outage, a limit, a time-out, or `cancelled`.
            GiveUpError: this input cannot be processed by this model (too long, refused by policy).
            SetupError: a missing or wrong key, an unknown model, an option that cannot be passed.
        """
        deadline = time.monotonic() + timeout_s
        arguments = self._arguments(request)
        try:
            library = litellm_module()
            left = deadline - time.monotonic()
            arguments["timeout"] = self._timeout(left)
            response = self._loop.run(lambda: library.acompletion(**arguments), timeout_s=left, cancelled=cancelled)
        except TimeoutError as error:
            raise RetryLaterError(f"{request.model}: no answer within {timeout_s:g} s.") from error
        except Exception as error:  # whatever a provider's client raises: the classifier turns it into a policy
            raise self._explained(classify(error, model=request.model), request.model) from error
        return self._reply(response, request, library)

    def _arguments(self, request: ModelRequest) -> dict[str, Any]:
        provider, name = split_name(request.model)
        options = call_arguments(
            request.settings,
            request.provider_options,
            phase=request.phase,
            provider=provider,
            most=facts_of(request.model).output_tokens,
            failures=request.failures,
        )
        arguments = {
            **options,
            "model": f"{provider}/{name}",
            "messages": prompt_messages(request.prompt, provider),
            "stream": False,
            "num_retries": 0,  # the jobs table is the one retry authority
            "max_retries": 0,
            "drop_params": True,
        }
        if self._api_base:
            arguments["api_base"] = self._api_base
        if self._api_key:
            arguments["api_key"] = self._api_key
        elif self._api_base and provider == "openai" and missing_key(request.model) is not None:
            arguments["api_key"] = NO_KEY
        return arguments

    def _explained(self, error: OmError, model: str) -> OmError:
        """A set-up error also names the variable that is not set, if one is missing."""
        if not isinstance(error, SetupError) or self._api_key:
            return error
        variable = missing_key(model, api_base=self._api_base)
        if variable is None:
            return error
        hint = f"The environment variable {variable} is not set."
        explained = SetupError(f"{error} {hint}")
        explained.log_text = f"{error.log_text or error} {hint}"
        return explained

    def _timeout(self, left_s: float) -> Any:
        import httpx

        read = left_s if self._read_timeout_s is None else min(left_s, self._read_timeout_s)
        return httpx.Timeout(max(read, 0.001), connect=max(min(self._connect_timeout_s, left_s), 0.001))

    def _reply(self, response: Any, request: ModelRequest, library: Any) -> ModelReply:
        choices = getattr(response, "choices", None) or []
        message = getattr(choices[0], "message", None) if choices else None
        usage = getattr(response, "usage", None)
        details = getattr(usage, "prompt_tokens_details", None)
        counts = {
            "input_tokens": _count(usage, "prompt_tokens"),
            "output_tokens": _count(usage, "completion_tokens"),
            "cached_tokens": _count(details, "cached_tokens"),
        }
        return ModelReply(
            text=_text(getattr(message, "content", None)),
            model=request.model,
            cost_usd=self._cost(response, request.model, counts, library),
            finish_reason=getattr(choices[0], "finish_reason", None) if choices else None,
            **counts,
        )

    def _cost(self, response: Any, model: str, counts: dict[str, int], library: Any) -> float | None:
        price = self.price_of(model)
        if model not in self._prices:
            try:
                provider, name = split_name(model)
                cost = library.completion_cost(completion_response=response, model=f"{provider}/{name}")
            except Exception:  # LiteLLM raises whatever comes for a model without a price; the answer itself is good
                cost = None
            if cost:  # some adapters say 0 when the provider did not report a cost
                return float(cost)
        return None if price is None else price.cost_usd(**counts)


def _count(owner: Any, name: str) -> int:
    value = getattr(owner, name, None)
    return value if isinstance(value, int) and value > 0 else 0


def _text(content: Any) -> str:
    """Text of a reply's content, which may be None or, from some servers, a list of blocks."""
    if isinstance(content, list):
        return "".join(block.get("text") or "" for block in content if isinstance(block, dict))
    return content if isinstance(content, str) else ""
