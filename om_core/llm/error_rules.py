"""Tables for the classifier: classes, statuses and texts of failed model calls, and what each asks of the caller."""

from __future__ import annotations

from typing import Final, TypeAlias

from om_core.domain.errors import GiveUpError, OmError, RetryLaterError, SetupError, UnusableOutputError

_CONTEXT: Final = (
    "context length", "context_length_exceeded", "context window", "maximum context", "context size",
    "prompt is too long", "input is too long", "too many tokens", "exceeds the maximum number of tokens",
    "input token count", "maximum number of tokens", "request too large", "request_too_large",
    "string_above_max_length", "reduce the length",
)  # fmt: skip
_KEY: Final = (
    "api_key client option must be set", "api key not valid", "api_key_invalid", "invalid api key", "incorrect api key",
    "invalid x-api-key", "missing credentials", "missing api key",
    "missing gemini api key", "missing anthropic api key", "no api key", "api key is missing",
    "api key not found", "api key is required", "default credentials were not found", "unable to locate credentials",
    "could not resolve authentication method", "api key expired",
)  # fmt: skip
_PACKAGE: Final = ("no module named", "pip install")
_MODEL: Final = (
    "llm provider not provided", "model_not_found", "unknown model", "no such model", "invalid model",
    "model not found", "is not a valid model", "unmapped llm provider",
)  # fmt: skip
_ACCOUNT: Final = ("insufficient_quota", "credit balance is too low", "insufficient balance", "billing_hard_limit")
_PARAMETER: Final = (
    "unsupported_parameter", "unsupported parameter", "unsupported value", "unknown parameter",
    "unrecognized request argument", "extra inputs are not permitted", "does not support parameters",
)  # fmt: skip
_POLICY: Final = (
    "content_policy", "content policy", "content management policy", "content_filter", "safety system",
    "violates our usage policies", "prohibited_content", "responsible ai",
)  # fmt: skip

REFUSED: Final = ("connection error.", "connection refused", "connect call failed", "name resolution")

Rule: TypeAlias = tuple[tuple[str, ...], type[OmError], str]
"""Any of these parts of a lower-case text; what to raise; how to say it."""

_ACCOUNT_RULE: Final[Rule] = (_ACCOUNT, SetupError, "the provider account has no credit")
TEXTS: Final[tuple[Rule, ...]] = (
    (_PACKAGE, SetupError, "a package that this provider needs is not installed"),
    (_KEY, SetupError, "the key is missing or wrong"),
    _ACCOUNT_RULE,
    (_MODEL, SetupError, "the model is not known"),
    (_PARAMETER, SetupError, "an option is not supported by the model"),
    (_CONTEXT, GiveUpError, "the input is longer than the model's window"),
    (_POLICY, GiveUpError, "the provider's content policy refused the input"),
)
LIMIT_TEXTS: Final[tuple[Rule, ...]] = (
    _ACCOUNT_RULE,
    (("request too large for",), GiveUpError, "the input is larger than the account's limit per minute"),
)
"""For status 429, whose texts speak of tokens and windows too."""

CLASSES: Final[dict[str, tuple[type[OmError], str]]] = {
    "ContextWindowExceededError": (GiveUpError, "the input is longer than the model's window"),
    "ContentPolicyViolationError": (GiveUpError, "the provider's content policy refused the input"),
    "ImageFetchError": (GiveUpError, "an attachment cannot be read"),
    "RejectedRequestError": (GiveUpError, "the request was rejected"),
    "GuardrailRaisedException": (GiveUpError, "a guardrail refused the input"),
    "BlockedPiiEntityError": (GiveUpError, "a guardrail refused the input"),
    "SensitiveDataRouteException": (GiveUpError, "a guardrail refused the input"),
    "ModifyResponseException": (GiveUpError, "a guardrail refused the input"),
    "JSONSchemaValidationError": (UnusableOutputError, "the answer does not have the form that was asked for"),
    "PermissionDeniedError": (SetupError, "the key may not use this model"),
    "PaymentRequiredError": (SetupError, "the provider account has no credit"),
    "ModelNotMappedError": (SetupError, "the model is not known"),
    "LiteLLMUnknownProvider": (SetupError, "the provider is not known"),
    "UnsupportedParamsError": (SetupError, "an option is not supported by the model"),
    "UnsupportedEndpointError": (SetupError, "the model cannot be called this way"),
    "EndpointNotSupportedByModelError": (SetupError, "the model cannot be called this way"),
    "BudgetExceededError": (RetryLaterError, "LiteLLM's own budget is used up"),
    "APIResponseValidationError": (RetryLaterError, "the provider's answer is damaged"),
    "InvalidURL": (SetupError, "the address of the model server is wrong"),
    "UnsupportedProtocol": (SetupError, "the address of the model server is wrong"),
    "Timeout": (RetryLaterError, "no answer in time"),
    "APITimeoutError": (RetryLaterError, "no answer in time"),
    "TimeoutException": (RetryLaterError, "no answer in time"),
}
"""Classes whose name says it all, of LiteLLM, the OpenAI SDK and httpx."""

STATUSES: Final[dict[int, tuple[type[OmError], str]]] = {
    400: (GiveUpError, "the provider refuses the input"),
    401: (SetupError, "the key is missing or wrong"),
    402: (SetupError, "the provider account has no credit"),
    403: (SetupError, "the key may not use this model"),
    404: (SetupError, "the model or the address does not exist"),
    405: (SetupError, "the address is not that of a model server"),
    408: (RetryLaterError, "no answer in time"),
    409: (RetryLaterError, "the provider asks to try again"),
    413: (GiveUpError, "the input is too large"),
    422: (GiveUpError, "the provider refuses the input"),
    425: (RetryLaterError, "the provider asks to try again"),
    429: (RetryLaterError, "rate limited by the provider"),
    504: (RetryLaterError, "no answer in time"),
}

NETWORK: Final = frozenset({"APIConnectionError", "TransportError", "ClientError", "ConnectionError", "OSError"})
API: Final = frozenset({"APIError", "OpenAIError", "HTTPError"})
