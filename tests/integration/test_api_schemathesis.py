"""Random requests made from the OpenAPI document: none breaks the service, and each answer is as the document says.

`OM_SCHEMATHESIS_EXAMPLES` sets how many requests each operation gets; a long round:
`OM_SCHEMATHESIS_EXAMPLES=200 make test T=tests/integration/test_api_schemathesis.py`
"""

from __future__ import annotations

import os
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis.checks import CHECKS, load_all_checks

from om_core.store.engine import PostgresStore
from tests.integration.api_server import ApiClient, api_of, say
from tests.support.fixtures import SMALL, build
from tests.support.jobs import work_off

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.servers import Servers

EXAMPLES: Final = int(os.environ.get("OM_SCHEMATHESIS_EXAMPLES", "4"))
KNOWN: Final = {"thread": "t", "resource": "user-1", "job_id": 1, "key_id": 1}
WAITING: Final = ("/observe", "/reflect", "/flush", "/summarize")
LEFT_OUT: Final = {
    "/v1/events": "a stream has no end",
    "/v1/threads/{thread}/events": "a stream has no end",
    "/v1/chat/completions": "needs a model; its form is the provider's",
    "/v1/messages": "needs a model; its form is the provider's",
}
load_all_checks()
CHECKED: Final = [
    CHECKS.get_one(name)
    for name in (
        "not_a_server_error",
        "status_code_conformance",
        "content_type_conformance",
        "response_headers_conformance",
        "response_schema_conformance",
        "negative_data_rejection",
    )
]


@pytest.fixture(scope="module")
def client(servers: Servers) -> Iterator[ApiClient]:
    """An API with one thread that has notes and a job."""
    with servers.new_database() as url:
        store = PostgresStore(url, pool_size=8)
        services = build(store, SMALL)
        with api_of(services) as found:
            say(found, "t", *(f"The cat of neighbour {n} sat on the red wall for an hour. " * 8 for n in range(6)))
            work_off(services)
            yield found
        store.close()


@pytest.mark.slow
@pytest.mark.timeout(3_600)
def test_random_requests_are_answered_as_the_document_says(
    client: ApiClient, capsys: pytest.CaptureFixture[str]
) -> None:
    schema = schemathesis.openapi.from_dict(without_security(client.document))
    schema.config.update(base_url=str(client.base_url))
    counted: Counter[int] = Counter()
    failures: list[str] = []
    found: Any = schema.get_all_operations()
    # What deletes comes last: the rest is asked about what is there.
    operations = sorted((one.ok() for one in found), key=lambda one: one.method.upper() == "DELETE")
    for operation in operations:
        if operation.path not in LEFT_OUT:
            try:
                _try(operation, counted)
            except (Exception, BaseExceptionGroup) as error:  # every failure is shown, with its operation
                failures.append(f"{operation.method.upper()} {operation.path}: {error}")
    with capsys.disabled():
        print(
            f"\nschemathesis: {counted.total()} requests to {len(operations)} operations; {dict(sorted(counted.items()))}"
        )
    assert not failures, "\n\n".join(failures)
    assert set(LEFT_OUT) <= {operation.path for operation in operations}
    assert counted[200] > len(operations) / 4
    assert counted[422] > len(operations) / 4


def without_security(document: dict[str, Any]) -> dict[str, Any]:
    """The document without its keys: here none is asked for, so a request without one is no wrong request."""
    paths = {
        path: {method: {k: v for k, v in operation.items() if k != "security"} for method, operation in item.items()}
        for path, item in document["paths"].items()
    }
    return {**document, "paths": paths}


def _try(operation: Any, counted: Counter[int]) -> None:
    mixed = st.one_of(*(operation.as_strategy(generation_mode=mode) for mode in schemathesis.GenerationMode))

    @given(case=mixed, known=st.booleans())
    @settings(max_examples=EXAMPLES, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    def ask(case: Any, known: bool) -> None:
        if known:  # random ids find nothing
            case.path_parameters = {**(case.path_parameters or {}), **_known(case.path_parameters)}
        if operation.path.endswith(WAITING):  # nobody works here
            case.body = {**case.body, "wait_s": 0} if isinstance(case.body, dict) else {"wait_s": 0}
        response = case.call(timeout=30)
        counted[response.status_code] += 1
        case.validate_response(response, checks=CHECKED)

    ask()


def _known(parameters: Any) -> dict[str, Any]:
    return {name: value for name, value in KNOWN.items() if name in (parameters or {})}
