"""Webhooks: who is told of events, and what became of it."""

from __future__ import annotations

from typing import Annotated

from fastapi import Body, Path
from fastapi.responses import JSONResponse

from api.deps import MemoryDep
from api.routes.replies import page_json, v1_router
from api.schemas import answers, examples
from api.schemas.fields import MAX_SEQ, CursorQuery, LimitQuery
from api.schemas.requests import WebhookBody
from om_core.services import webhooks

router = v1_router("webhooks")
WebhookPath = Annotated[int, Path(description="Id of the webhook.", ge=1, le=MAX_SEQ, examples=[1])]


@router.post("/webhooks", response_model=answers.CreatedWebhook)
def create_webhook(
    body: Annotated[WebhookBody, Body(openapi_examples=examples.WEBHOOK)], memory: MemoryDep
) -> JSONResponse:
    """Have events sent to a public address from now on. The secret that signs them is shown here and never again."""
    row = webhooks.create_webhook(
        memory.services, memory.tenant, url=body.url, types=tuple(body.types), resource=body.resource_id
    )
    return JSONResponse({**webhooks.webhook_view(row), "secret": row.secret})


@router.get("/webhooks", response_model=answers.ListOf[answers.Webhook])
def list_webhooks(memory: MemoryDep, cursor: CursorQuery = None, limit: LimitQuery = 50) -> JSONResponse:
    """Webhooks, newest first."""
    page = webhooks.list_webhooks(memory.services, memory.tenant, cursor=cursor, limit=limit)
    return page_json(page, webhooks.webhook_view)


@router.get("/webhooks/{webhook_id}/deliveries", response_model=answers.ListOf[answers.Delivery])
def list_deliveries(
    webhook_id: WebhookPath, memory: MemoryDep, cursor: CursorQuery = None, limit: LimitQuery = 50
) -> JSONResponse:
    """Attempts to send, newest first; the newest 1,000 are kept."""
    page = webhooks.list_deliveries(memory.services, memory.tenant, webhook_id, cursor=cursor, limit=limit)
    return page_json(page, webhooks.delivery_view)


@router.delete("/webhooks/{webhook_id}", response_model=answers.Deleted)
def delete_webhook(webhook_id: WebhookPath, memory: MemoryDep) -> JSONResponse:
    """Send nothing more."""
    webhooks.delete_webhook(memory.services, memory.tenant, webhook_id)
    return JSONResponse({"deleted": True})
