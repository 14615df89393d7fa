"""What a store keeps, and who asks for it: frozen values over the nouns of `domain`. No I/O and no framework."""

from warren.domain.records.answers import Page, RateDecision
from warren.domain.records.audit import FIRST_HASH, AuditEntry, AuditQuery, AuditRow, canonical_entry, chain_hash
from warren.domain.records.executions import Execution
from warren.domain.records.principals import ApiKey, Caller, Owner, Principal, Scope
from warren.domain.records.renders import Render, RenderStatus
from warren.domain.records.sandboxes import Callbacks, ResourceUse, Sandbox, SandboxQuery
from warren.domain.records.skills import Skill, SkillQuery
from warren.domain.records.stored_files import STORED_FILE_BYTES, StoredFile

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
