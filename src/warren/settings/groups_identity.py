"""Settings of token authentication, and of tenants."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, SecretStr

from warren.domain.values import KIB
from warren.settings.kinds import Group, Names, Size


class JwtSettings(Group):
    """Authentication with JSON Web Tokens: on with a secret, a public key or a key set."""

    secret: SecretStr | None = Field(
        default=None, description="Secret that HS256, HS384 or HS512 tokens are signed with; as long as the hash."
    )
    public_key_file: str = Field(default="", description="PEM file of the issuer's public keys.")
    jwks: str = Field(
        default="", description="Key set of the issuer: an `https://` address, or a file, which is reloaded."
    )
    algorithms: Names = Field(default=(), description="Accepted algorithms; when empty, all that fit the keys.")
    issuer: Names = Field(default=(), description="Trusted values of `iss`; required unless `secret` is the only key.")
    audience: Names = Field(
        default=(), description="Values of `aud` that name this service; required unless `secret` is the only key."
    )
    leeway_s: float = Field(
        default=30, ge=0, le=300, description="Tolerated difference of the issuer's clock, in seconds."
    )
    max_age_s: float = Field(
        default=86_400, gt=0, description="Seconds after which a token is too old, expired or not."
    )
    max_bytes: Size = Field(default=8 * KIB, ge=256, le=24 * KIB, description="Longest token.")
    subject_claim: str = Field(default="sub", min_length=1, description="Claim of the subject.")
    subject_prefix: str = Field(
        default="jwt:",
        max_length=64,
        description="Prefix of the subject, to tell it from those of API keys; if empty, equal names are one owner.",
    )
    tenant_claim: str = Field(
        default="tenant", description="Claim of the tenant; dots also reach into objects. Empty: tokens name no tenant."
    )
    tenant: str = Field(default="", description="Tenant of tokens that name none; when empty, they are refused.")
    tenants: Names = Field(default=(), description="Tenants that tokens may name; when empty, any.")
    scope_claim: str = Field(default="scope", description="Claim of the scopes: a list, or a string with spaces.")
    read_scopes: Names = Field(default=("warren:read",), description="Values that grant the scope `read`.")
    run_scopes: Names = Field(default=("warren:run",), description="Values that grant the scope `run`.")
    admin_scopes: Names = Field(default=("warren:admin",), description="Values that grant the scope `admin`.")
    default_scope: Literal["none", "read", "run"] = Field(
        default="run", description="Scope of tokens without any of these values; `none` refuses them."
    )
    jwks_refresh_s: float = Field(default=300, ge=1, description="Seconds after which the key set is fetched again.")
    jwks_cooldown_s: float = Field(
        default=10,
        ge=0.1,
        description="Shortest pause between two fetches, in seconds, however many tokens name unknown keys.",
    )
    jwks_stale_s: float = Field(
        default=86_400, ge=0, description="Seconds that the last key set is used while fetches fail."
    )


class TenantSettings(Group):
    """Quotas of all principals of one tenant; 0 is no limit, as is none where `[tenant]` has none too."""

    sandboxes: int | None = Field(default=None, ge=0, description="Sandboxes of one tenant, stopped ones included.")
    active: int | None = Field(default=None, ge=0, description="Running sandboxes of one tenant.")
    memory_bytes: Size | None = Field(
        default=None, ge=0, description="Sum of the memory limits of its running sandboxes."
    )
    disk_bytes: Size | None = Field(default=None, ge=0, description="Sum of the workspace sizes of its sandboxes.")
    gpus: int | None = Field(default=None, ge=0, description="GPUs of its running sandboxes.")
    allow_gpus: bool | None = Field(
        default=None, description="Whether its sandboxes may have GPUs; unless set, they may."
    )
    executions: int | None = Field(default=None, ge=0, description="Executions of one tenant at once.")
    requests_per_minute: int | None = Field(default=None, ge=0, description="Requests per minute of one tenant.")
    creates_per_minute: int | None = Field(default=None, ge=0, description="Sandboxes that it creates per minute.")
    max_memory_bytes: Size | None = Field(default=None, ge=0, description="Largest memory of one of its sandboxes.")
    max_cpus: float | None = Field(default=None, ge=0, description="Most processors of one of its sandboxes.")
    max_pids: int | None = Field(default=None, ge=0, description="Most processes of one of its sandboxes.")
    max_disk_bytes: Size | None = Field(default=None, ge=0, description="Largest workspace of one of its sandboxes.")
    egress: Literal["none", "packages", "open"] | None = Field(
        default=None, description="Widest egress of one of its sandboxes; unless set, `open`."
    )
    egress_hosts: Names | None = Field(
        default=None,
        description="Hosts, globs, addresses and networks that its sandboxes may reach besides; destinations that are "
        "not public must be listed here.",
    )
