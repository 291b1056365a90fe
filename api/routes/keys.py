"""Keys of this API: made once, shown once, listed and revoked. For keys of a whole tenant only."""

from __future__ import annotations

from typing import Annotated

from fastapi import Body
from fastapi.responses import JSONResponse

from api.deps import MemoryDep
from api.routes.replies import page_json, v1_router
from api.schemas import answers, examples
from api.schemas.fields import CursorQuery, KeyPath, LimitQuery
from api.schemas.requests import KeyBody
from om_core.domain.reach import Reach
from om_core.services import keys

router = v1_router("keys")


@router.get("/keys", response_model=answers.ListOf[answers.Key])
def list_keys(memory: MemoryDep, cursor: CursorQuery = None, limit: LimitQuery = 50) -> JSONResponse:
    """Keys, newest first, also revoked and expired ones."""
    now = memory.services.clock.now()
    page = keys.list_keys(memory.services, memory.tenant, cursor=cursor, limit=limit)
    return page_json(page, lambda row: keys.key_view(row, now))


@router.post("/keys", response_model=answers.NewKey)
def create_key(body: Annotated[KeyBody, Body(openapi_examples=examples.KEY)], memory: MemoryDep) -> JSONResponse:
    """Make a key. The answer is the only place where it is ever shown."""
    reach = Reach(resource=body.resource_id, thread=body.thread, read_only=body.read_only)
    made = keys.create_key(memory.services, memory.tenant, name=body.name, days=body.days, reach=reach)
    view = keys.key_view(made.row, memory.services.clock.now())
    return JSONResponse({**view, "key": made.secret}, headers={"Cache-Control": "no-store"})


@router.delete("/keys/{key_id}", response_model=answers.Key)
def revoke_key(key_id: KeyPath, memory: MemoryDep) -> JSONResponse:
    """Make a key useless from now on, also this one; it stays listed."""
    row = keys.revoke_key(memory.services, memory.tenant, key_id)
    return JSONResponse(keys.key_view(row, memory.services.clock.now()))
