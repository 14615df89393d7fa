"""Native API, schemas: the audit record."""

from __future__ import annotations

from pydantic import Field

from warren.gateway.dialects.native.schemas import Paging, SessionKey


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
