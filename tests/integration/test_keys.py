"""API keys: hashed, of one tenant, expiring, revocable (API 3)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import sqlalchemy as sa

from om_core.domain.errors import InvalidInputError, NotFoundError
from om_core.services.keys import create_key, digest, key_view, list_keys, revoke_key
from tests.support.fixtures import raw_session

if TYPE_CHECKING:
    from om_core.services.deps import Services
    from om_core.store.engine import PostgresStore


def found(services: Services, secret: str) -> str | None:
    row = services.store.system.key(digest(secret))
    return None if row is None else row.tenant_id


def test_a_key_is_found_as_its_tenants_and_by_nothing_else(services: Services) -> None:
    one, two = (create_key(services, tenant, name="app") for tenant in ("one", "two"))

    assert found(services, one.secret) == "one"
    assert found(services, two.secret) == "two"
    assert found(services, one.secret + "x") is None
    assert found(services, one.row.prefix) is None


def test_the_key_itself_is_stored_nowhere(services: Services, store: PostgresStore) -> None:
    made = create_key(services, "one", name="app")
    secret = made.secret.removeprefix(made.row.prefix)

    with store.engine.connect() as connection:
        rows = [str(row) for row in connection.execute(sa.text("SELECT api_keys::text FROM api_keys"))]
    assert rows
    assert not [row for row in rows if secret in row]
    assert made.secret.startswith("om_live_")


def test_a_revoked_key_is_useless_at_once_and_stays_listed(services: Services) -> None:
    made = create_key(services, "one", name="app")

    revoke_key(services, "one", made.row.id)

    assert found(services, made.secret) is None
    [row] = list_keys(services, "one").items
    assert key_view(row, services.clock.now())["state"] == "revoked"


def test_an_expired_key_is_useless(services: Services) -> None:
    made = create_key(services, "default", name="app", days=1)
    assert found(services, made.secret) == "default"

    with raw_session(services.store) as session:
        session.hot("UPDATE api_keys SET expires_at = clock_timestamp() - interval '1 s' RETURNING 1")

    assert found(services, made.secret) is None
    [row] = list_keys(services, "default").items
    assert key_view(row, services.clock.now())["state"] == "expired"


def test_a_tenant_neither_lists_nor_revokes_the_keys_of_another(services: Services) -> None:
    made = create_key(services, "one", name="app")

    assert list_keys(services, "two").items == ()
    with pytest.raises(NotFoundError, match=f"no key {made.row.id}"):
        revoke_key(services, "two", made.row.id)
    assert found(services, made.secret) == "one"


@pytest.mark.parametrize(("name", "days", "path"), [("", None, "name"), ("x" * 101, None, "name"), ("a", 0, "days")])
def test_what_is_wrong_with_a_new_key_is_named(services: Services, name: str, days: float | None, path: str) -> None:
    with pytest.raises(InvalidInputError) as refused:
        create_key(services, "one", name=name, days=days)
    assert refused.value.path == path
