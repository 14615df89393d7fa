"""The settings of who comes in with tokens, and of what a tenant may have."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, SecretStr

from warren.domain.values import KIB
from warren.settings.kinds import Group, Names, Size


class JwtSettings(Group):
    """Sign-in with JSON Web Tokens: on as soon as there is a secret, a public key or a key set."""

    secret: SecretStr | None = Field(
        default=None, description="Secret that HS256, HS384 or HS512 tokens are signed with; as long as the hash."
    )
    public_key_file: str = Field(default="", description="PEM file of the issuer's public keys.")
    jwks: str = Field(
        default="", description="Key set of the issuer: an `https://` address, or a file, which is read again."
    )
    algorithms: Names = Field(default=(), description="Algorithms to take; when empty, all that fit the keys.")
    issuer: Names = Field(default=(), description="Values of `iss` that are believed; needed unless `secret` is all.")
    audience: Names = Field(default=(), description="Values of `aud` that mean us; needed unless `secret` is all.")
    leeway_s: float = Field(
        default=30, ge=0, le=300, description="Seconds by which the issuer's clock and ours may differ."
    )
    max_age_s: float = Field(
        default=86_400, gt=0, description="Seconds after which a token is too old, expired or not."
    )
    max_bytes: Size = Field(default=8 * KIB, ge=256, le=24 * KIB, description="Longest token.")
    subject_claim: str = Field(default="sub", min_length=1, description="Claim that names the bearer.")
    subject_prefix: str = Field(
        default="jwt:",
        max_length=64,
        description="Put before that name, so that no API key's subject is equal; empty, equal names are one owner.",
    )
    tenant_claim: str = Field(
        default="tenant", description="Claim that names the tenant; with dots also within objects. Empty: none does."
    )
    tenant: str = Field(default="", description="Tenant of tokens that name none; when empty, they are refused.")
    tenants: Names = Field(default=(), description="Tenants that tokens may name; when empty, any.")
    scope_claim: str = Field(default="scope", description="Claim of the scopes: words in a string, or a list.")
    read_scopes: Names = Field(default=("warren:read",), description="Words there that give the scope `read`.")
    run_scopes: Names = Field(default=("warren:run",), description="Words there that give the scope `run`.")
    admin_scopes: Names = Field(default=("warren:admin",), description="Words there that give the scope `admin`.")
    default_scope: Literal["none", "read", "run"] = Field(
        default="run", description="Scope of tokens with none of these words; `none` refuses them."
    )
    jwks_refresh_s: float = Field(default=300, ge=1, description="Seconds after which the key set is fetched again.")
    jwks_cooldown_s: float = Field(
        default=10, ge=0.1, description="Seconds between two fetches at least, however many unknown keys tokens name."
    )
    jwks_stale_s: float = Field(
        default=86_400, ge=0, description="Seconds for which the last key set is used when it cannot be fetched."
    )


class TenantSettings(Group):
    """What all principals of one tenant may have at once; 0 is no limit, as is none where `[tenant]` has none too."""

    sandboxes: int | None = Field(default=None, ge=0, description="Sandboxes of one tenant, stopped ones too.")
    active: int | None = Field(default=None, ge=0, description="Running sandboxes of one tenant.")
    memory_bytes: Size | None = Field(default=None, ge=0, description="Memory of its running sandboxes, added.")
    disk_bytes: Size | None = Field(default=None, ge=0, description="Workspace sizes of its sandboxes, added.")
    gpus: int | None = Field(default=None, ge=0, description="GPUs of its running sandboxes, added.")
    allow_gpus: bool | None = Field(
        default=None, description="Whether its sandboxes may have GPUs; they may where nothing is said."
    )
    executions: int | None = Field(default=None, ge=0, description="Executions of one tenant at once.")
    requests_per_minute: int | None = Field(default=None, ge=0, description="Requests of one tenant in a minute.")
    creates_per_minute: int | None = Field(default=None, ge=0, description="Sandboxes it makes in a minute.")
    max_memory_bytes: Size | None = Field(default=None, ge=0, description="Most memory of one of its sandboxes.")
    max_cpus: float | None = Field(default=None, ge=0, description="Most processors of one of its sandboxes.")
    max_pids: int | None = Field(default=None, ge=0, description="Most processes of one of its sandboxes.")
    max_disk_bytes: Size | None = Field(default=None, ge=0, description="Largest workspace of one of its sandboxes.")
    egress: Literal["none", "packages", "open"] | None = Field(
        default=None, description="The most that one of its sandboxes may reach; `open` where nothing is said."
    )
    egress_hosts: Names | None = Field(
        default=None,
        description="Hosts, globs, addresses and networks that its sandboxes may reach besides; what is not public "
        "has to be listed here.",
    )
