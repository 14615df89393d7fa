"""What a store keeps, and who asks for it: frozen values over the nouns of `domain`. No I/O and no framework."""

from warren.records.answers import Page, Taken
from warren.records.audit import FIRST_HASH, AuditEntry, AuditQuery, AuditRow, canonical_entry, chain_hash
from warren.records.executions import Execution
from warren.records.principals import ApiKey, Caller, Owner, Principal, Scope
from warren.records.renders import Render, RenderStatus
from warren.records.sandboxes import Callbacks, Holding, Sandbox, SandboxQuery
from warren.records.skills import Skill, SkillQuery
from warren.records.stored_files import STORED_FILE_BYTES, StoredFile

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
    "Holding",
    "Owner",
    "Page",
    "Principal",
    "Render",
    "RenderStatus",
    "Sandbox",
    "SandboxQuery",
    "Scope",
    "Skill",
    "SkillQuery",
    "StoredFile",
    "Taken",
    "canonical_entry",
    "chain_hash",
]
