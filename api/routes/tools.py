"""The tools that an agent is offered."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import Query
from fastapi.responses import JSONResponse

from api.deps import MemoryDep
from api.routes.replies import page_json, v1_router
from api.schemas import answers
from om_core.ports import Page

router = v1_router("tools")


@router.get("/tools", response_model=answers.ListOf[answers.Tool])
def list_tools(
    memory: MemoryDep,
    format: Annotated[Literal["openai", "anthropic"], Query(description="Form of the schemas.")] = "openai",
) -> JSONResponse:
    """Schemas of the tools under this configuration, to be passed on to the model."""
    return page_json(Page(tuple(memory.tools(format))))
