"""Records of a store and the principals that ask for them: frozen values over `domain`. No I/O, no framework."""

from warren.domain.records.artifacts import STORED_FILE_BYTES, Render, RenderStatus, Skill, StoredFile
from warren.domain.records.audit import FIRST_HASH, AuditEntry, AuditRow, canonical_entry, chain_hash
from warren.domain.records.principals import ApiKey, Caller, Owner, Principal, Scope
from warren.domain.records.queries import AuditQuery, Page, RateDecision, SandboxQuery, SkillQuery
from warren.domain.records.sandboxes import Callbacks, Execution, ResourceUse, Sandbox

__all__ = [
    "FIRST_HASH",
    "STORED_FILE_BYTES",
    "ApiKey",
    "AuditEntry",
    "AuditQuery",
    "AuditRow",
    "Callbacks",
    "Caller",
    "Execution",
    "Owner",
    "Page",
    "Principal",
    "RateDecision",
    "Render",
    "RenderStatus",
    "ResourceUse",
    "Sandbox",
    "SandboxQuery",
    "Scope",
    "Skill",
    "SkillQuery",
    "StoredFile",
    "canonical_entry",
    "chain_hash",
]
