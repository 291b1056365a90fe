"""Routes each model call by its name: `offline/...` is answered in this process, the rest goes through LiteLLM."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from om_core.llm.keys import missing_key
from om_core.llm.litellm_model import LiteLlmModel
from om_core.llm.names import is_offline

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from threading import Event

    from om_core.llm.catalog import ModelPrice
    from om_core.ports import LanguageModel, ModelReply, ModelRequest


class ModelRegistry:
    """The `LanguageModel` that services are given.

    Args:
        count_tokens: tokens of a text, for the offline model.
        remote: adapter for every other model; default LiteLLM without an address of its own.
        api_base: address of an OpenAI-compatible server (`OM_MODEL_API_BASE`); ignored when `remote` is given.
        api_key: key for it; ignored when `remote` is given.
        prices: of models without a list price, as for `LiteLlmModel`; ignored when `remote` is given.
    """

    def __init__(
        self,
        *,
        count_tokens: Callable[[str], int],
        remote: LiteLlmModel | None = None,
        api_base: str | None = None,
        api_key: str | None = None,
        prices: Mapping[str, ModelPrice] | None = None,
    ) -> None:
        self._count_tokens = count_tokens
        self._has_own_key = bool(api_base or api_key)
        self._remote = remote or LiteLlmModel(api_base=api_base, api_key=api_key, prices=prices)

    @cached_property
    def _offline(self) -> LanguageModel:
        from om_core.llm.offline import OfflineModel

        return OfflineModel(count_tokens=self._count_tokens)

    def complete(self, request: ModelRequest, *, timeout_s: float, cancelled: Event | None = None) -> ModelReply:
        """Answer by the adapter of `request.model`; raises as `LanguageModel.complete`."""
        return self._adapter(request.model).complete(request, timeout_s=timeout_s, cancelled=cancelled)

    def window_tokens(self, model: str) -> int | None:
        """The model's input window in tokens, or None when it is not known. No network."""
        return self._adapter(model).window_tokens(model)

    def price_of(self, model: str) -> ModelPrice | None:
        """US dollars per token, or None without a price; the offline model costs nothing and has none either."""
        return None if is_offline(model) else self._remote.price_of(model)

    def missing_key(self, model: str) -> str | None:
        """The environment variable that has to be set before `model` can be called; None when nothing is missing.

        Raises:
            SetupError: `model` is no model name.
        """
        return None if self._has_own_key else missing_key(model)

    def warm_up(self, model: str) -> None:
        """Load what the first call of `model` needs: LiteLLM takes seconds to import."""
        if not is_offline(model):
            self._remote.warm_up()

    def _adapter(self, model: str) -> LanguageModel:
        return self._offline if is_offline(model) else self._remote
