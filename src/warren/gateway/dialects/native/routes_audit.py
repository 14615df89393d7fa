"""The native API: the audit record."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

from warren.domain.records import AuditQuery, Scope
from warren.gateway.api.operations import Answer, Routes, json_reply
from warren.gateway.dialects.native import translate
from warren.gateway.dialects.native.schemas import Paging, SessionKey
from warren.gateway.dialects.native.schemas_answers import AuditShown, ListOf

if TYPE_CHECKING:
    from warren.gateway.api.operations import Call, Reply


class ListAudit(Paging):
    """Which rows of the audit record to list, newest first."""

    limit: int = Field(default=100, ge=1, le=1000, description="How many at most.")
    tenant: SessionKey | None = Field(default=None, description="Only of this tenant.")
    subject: SessionKey | None = Field(default=None, description="Only of this subject.")
    action: SessionKey | None = Field(default=None, description="Only this action, such as `sandbox.create`.")
    sandbox_id: SessionKey | None = Field(default=None, description="Only about this sandbox.")
    execution_id: SessionKey | None = Field(default=None, description="Only about this execution.")
    request_id: SessionKey | None = Field(default=None, description="Only of this request.")
    since: float | None = Field(default=None, ge=0, le=1e12, description="Not before, in seconds since 1970.")
    until: float | None = Field(default=None, ge=0, le=1e12, description="Before, in seconds since 1970.")


routes = Routes("Audit")


@routes.add(
    "GET /audit",
    Scope.READ,
    description="Admins see all of it, others what they did themselves. Each row holds the hash of the one "
    "before; `warren audit verify` checks the whole chain.",
    query=ListAudit,
    answers=(Answer("A part of the record.", ListOf[AuditShown]),),
)
async def list_audit(call: Call) -> Reply:
    """Read the audit record, newest first."""
    query = call.query(ListAudit).model_dump()
    page = await call.service.audit.list(call.caller, AuditQuery(**query))
    return json_reply(translate.render_page(page, translate.render_audit))
