"""Our tables against LiteLLM itself: every exception class, keys, windows."""

from __future__ import annotations

import inspect
import os

import httpx
import pytest

from om_core.domain.errors import GiveUpError, OmError, RetryLaterError, SetupError, UnusableOutputError
from om_core.llm.catalog import facts_of
from om_core.llm.errors import classify
from om_core.llm.keys import KEY_VARIABLES
from om_core.llm.library import litellm_module
from om_core.llm.names import to_litellm

RESPONSE = httpx.Response(400, request=httpx.Request("POST", "http://127.0.0.1"))

EXPECTED = {
    "APIConnectionError": RetryLaterError,
    "APIError": RetryLaterError,
    "APIResponseValidationError": RetryLaterError,
    "AuthenticationError": SetupError,
    "BadGatewayError": RetryLaterError,
    "BadRequestError": GiveUpError,
    "BlockedPiiEntityError": GiveUpError,
    "BudgetExceededError": RetryLaterError,
    "CallerCredentialAuthenticationError": SetupError,
    "CallerCredentialRateLimitError": RetryLaterError,
    "ContentPolicyViolationError": GiveUpError,
    "ContextWindowExceededError": GiveUpError,
    "EndpointNotSupportedByModelError": SetupError,
    "GuardrailRaisedException": GiveUpError,
    "ImageFetchError": GiveUpError,
    "InternalServerError": RetryLaterError,
    "InvalidRequestError": GiveUpError,
    "JSONSchemaValidationError": UnusableOutputError,
    "LiteLLMUnknownProvider": SetupError,
    "MalformedRequestFieldError": GiveUpError,
    "MidStreamFallbackError": RetryLaterError,
    "MockException": RetryLaterError,
    "ModelNotMappedError": SetupError,
    "ModifyResponseException": GiveUpError,
    "NotFoundError": SetupError,
    "OpenAIError": RetryLaterError,
    "PaymentRequiredError": SetupError,
    "PermissionDeniedError": SetupError,
    "RateLimitError": RetryLaterError,
    "RejectedRequestError": GiveUpError,
    "SensitiveDataRouteException": GiveUpError,
    "ServiceUnavailableError": RetryLaterError,
    "Timeout": RetryLaterError,
    "UnprocessableEntityError": GiveUpError,
    "UnsupportedEndpointError": SetupError,
    "UnsupportedParamsError": SetupError,
    "VectorStoreSearchError": GiveUpError,
}

VALUES = {
    "message": "it failed",
    "model": "some-model",
    "llm_provider": "openai",
    "response": RESPONSE,
    "request": RESPONSE.request,
    "request_data": {},
    "status_code": 503,
    "body": None,
    "raw_response": "x",
    "schema": "{}",
    "current_cost": 2.0,
    "max_budget": 1.0,
    "entity_type": "EMAIL",
    "guardrail_name": "g",
    "failures": [],
}


def exception_classes():
    module = litellm_module().exceptions
    found = inspect.getmembers(module, lambda item: inspect.isclass(item) and issubclass(item, Exception))
    return {name: item for name, item in found if item.__module__ == module.__name__}


def build(name, kind):
    """An instance with the arguments that its signature asks for."""
    if kind.__init__ is Exception.__init__:
        return kind("it failed")
    parameters = inspect.signature(kind).parameters.values()
    needed = [p for p in parameters if p.default is p.empty and p.kind in {p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY}]
    if not needed:
        needed = [p for p in parameters if p.name in {"message", "model", "llm_provider"}]
    arguments = {p.name: VALUES.get(p.name, "x") for p in needed}
    if name in {"MalformedRequestFieldError", "UnsupportedEndpointError"}:
        arguments = {key: VALUES[key] for key in ("message", "model", "llm_provider")}
    return kind(**arguments)


@pytest.mark.report("K03")
def test_every_exception_class_of_litellm_is_classified_as_the_table_says():
    classes = exception_classes()
    verdicts = {name: type(classify(build(name, kind), model="m")) for name, kind in classes.items()}
    assert verdicts == {name: EXPECTED.get(name, "not in the table") for name in classes}


@pytest.mark.parametrize("name", ["RateLimitError", "ContextWindowExceededError", "InternalServerError"])
def test_litellms_own_mock_of_a_failure_is_classified(name):
    library = litellm_module()
    with pytest.raises(Exception) as caught:
        library.completion(
            model="openai/x", messages=[{"role": "user", "content": "x"}], mock_response=f"litellm.{name}"
        )
    assert isinstance(classify(caught.value), OmError)
    assert type(classify(caught.value)) is EXPECTED[name]


MODELS = {
    "anthropic": "claude-sonnet-4-5", "cohere": "command-r", "openrouter": "openai/gpt-4o", "huggingface": "a/b",
    "azure": None, "azure_ai": None, "vercel_ai_gateway": None, "cohere_chat": None, "zai": None, "moonshot": None,
    "dashscope": None,
}  # fmt: skip
"""Names that LiteLLM's question about keys needs; None where it does not know the provider or asks for more."""


@pytest.mark.parametrize("provider", sorted(name for name in KEY_VARIABLES if MODELS.get(name, "some-model")))
def test_the_variables_of_the_key_table_are_those_litellm_asks_for(provider, monkeypatch):
    for name in list(os.environ):
        if name.endswith(("_KEY", "_TOKEN")):
            monkeypatch.delenv(name)
    answer = litellm_module().validate_environment(f"{provider}/{MODELS.get(provider, 'some-model')}")
    assert KEY_VARIABLES[provider][0] in answer["missing_keys"]


@pytest.mark.parametrize(
    "model",
    [
        "google/gemini-2.5-flash",
        "vertex/gemini-2.5-flash",
        "openai/gpt-5-mini",
        "gpt-4o",
        "claude-sonnet-4-5",
        "azure/gpt-4o",
        "mistralai/mistral-large-latest",
        "deepseek/deepseek-chat",
        "together/meta-llama/Llama-3.3-70B-Instruct-Turbo",
        "ollama/llama3",
    ],
)
def test_windows_and_prices_are_those_litellm_would_say(model):
    info, facts = litellm_module().get_model_info(to_litellm(model)), facts_of(model)
    assert facts.window_tokens == info["max_input_tokens"]
    assert facts.price is not None
    assert (facts.price.input, facts.price.output) == (info["input_cost_per_token"], info["output_cost_per_token"])
