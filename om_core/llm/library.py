"""Importing LiteLLM: late, without a look at the network, and without its banners."""

from __future__ import annotations

import contextlib
import os
import sys
import warnings
from typing import Any, Final

ENVIRONMENT: Final = {
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",  # prices from the package, not from a URL at import
    "LITELLM_OFFLINE_MODE": "true",  # nor tokenizers from the network
}
"""Read by LiteLLM when it is imported; what the operator set stays."""

NO_DOWNLOADS: Final = ("MAX_IMAGE_URL_DOWNLOAD_SIZE_MB", "0")
"""A URL in a conversation is never fetched from here, whatever the environment says (DESIGN 7)."""


READ_ONLY: Final = r"Items? .* on TypedDict class .* qualifier"
"""A warning of pydantic about LiteLLM's own types, given whenever another adapter is loaded. Where warnings are errors
it would leave LiteLLM half imported and calls failing."""

DEPRECATED: Final = r"Accessing the 'model_(computed_)?fields' attribute on the instance is deprecated"
"""Given for every streamed chunk; where warnings are errors it would break the stream."""


def litellm_module() -> Any:
    """LiteLLM, imported on first use (3 s, 200 MB) and made quiet."""
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    os.environ[NO_DOWNLOADS[0]] = NO_DOWNLOADS[1]
    warnings.filterwarnings("ignore", message=READ_ONLY, category=UserWarning)
    warnings.filterwarnings("ignore", message=DEPRECATED, category=DeprecationWarning)
    import litellm

    litellm.suppress_debug_info = True
    return litellm


async def close_clients() -> None:
    """Close the clients that LiteLLM keeps for the running loop: their connections would outlive it."""
    library = sys.modules.get("litellm")
    if library is None:
        return
    cache = library.in_memory_llm_clients_cache
    ending = cache.update_cache_key_with_event_loop("")
    for key in [key for key in cache.cache_dict if key.endswith(ending)]:
        client = cache.cache_dict.pop(key)
        close = getattr(client, "aclose", None) or getattr(client, "close", None)
        if close is not None:
            with contextlib.suppress(Exception):  # one that cannot be closed must not keep the others open
                await close()
