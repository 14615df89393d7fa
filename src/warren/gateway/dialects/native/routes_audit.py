"""The native API: the audit record."""

from __future__ import annotations

from typing import TYPE_CHECKING

from warren.domain.records import Scope
from warren.gateway.api.operations import Answer, Routes, json_reply
from warren.gateway.dialects.native import schemas_audit as schemas
from warren.gateway.dialects.native import translate, translate_requests
from warren.gateway.dialects.native.schemas_answers import AuditShown, ListOf

if TYPE_CHECKING:
    from warren.gateway.api.operations import Call, Reply


routes = Routes("Audit")


@routes.add(
    "GET /audit",
    Scope.READ,
    description="Admins see all of it, others what they did themselves. Each row holds the hash of the one "
    "before; `warren audit verify` checks the whole chain.",
    query=schemas.ListAudit,
    answers=(Answer("A part of the record.", ListOf[AuditShown]),),
)
async def list_audit(call: Call) -> Reply:
    """Read the audit record, newest first."""
    query = translate_requests.parse_audit_query(call.query(schemas.ListAudit))
    page = await call.service.audit.list(call.caller, query)
    return json_reply(translate.render_page(page, translate.render_audit))
