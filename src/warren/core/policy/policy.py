"""The operator's policy as plain values. `bootstrap/app.py` builds it: the core does not read settings."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from warren.core.policy.egress_rules import check_egress, check_within, lower_to
from warren.domain.egress import Egress, EgressMode
from warren.domain.errors import Forbidden, InvalidRequest
from warren.domain.records import ResourceUse
from warren.domain.values import GIB, KIB, MIB, Limits
from warren.stores.base import Ceilings

if TYPE_CHECKING:
    from collections.abc import Mapping

    from warren.domain.egress import EgressRule
    from warren.domain.records import Caller, Scope

PICTURES, EDITABLE = "v1", "v2"
"""The two renderers: `v1` makes one exact picture per slide, `v2` text, shapes, tables and pictures."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EgressLimits:
    """Limits of egress; 0 is no limit."""

    connections: int = 64
    """Of one sandbox at once; further connections wait."""
    everybody: int = 1024
    """Of all sandboxes at once."""
    per_minute: int = 1200
    """New connections of one sandbox; a quarter of them may come in one burst."""
    bytes_per_hour: int = 100 << 30
    """Of one sandbox, both directions."""
    idle_s: float = 600.0
    """A connection that moves no byte for this long is closed."""
    answer_s: float = 300.0
    """A server that sends no response for this long is given up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantLimits:
    """Limits of all principals of a tenant together; 0 is no limit."""

    holding: ResourceUse = field(default_factory=ResourceUse)
    executions: int = 0
    requests_per_minute: int = 0
    creates_per_minute: int = 0
    largest: Mapping[str, float] = field(default_factory=dict)
    """The largest limits of one sandbox, by the names in `Limits`."""
    egress: Egress = field(default_factory=lambda: Egress(mode=EgressMode.OPEN))
    """The widest egress of one sandbox."""
    allow_gpus: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """The operator's choices that use cases need."""

    image: str = "data"
    limits: Limits = field(default_factory=Limits)
    largest: Mapping[str, float] = field(default_factory=dict)
    """The largest limits of one sandbox of any tenant, by the names in `Limits`."""
    timeout_s: float | None = None
    idle_timeout_s: float | None = 1800
    max_lifetime_s: float | None = None
    stopped_lifetime_s: float | None = 7 * 86_400
    pool_size: int = 0
    pool_images: tuple[str, ...] = ()
    own: ResourceUse = field(default_factory=ResourceUse)
    """Quota of one principal; 0 is no limit."""
    tenant: TenantLimits = field(default_factory=TenantLimits)
    tenants: Mapping[str, TenantLimits] = field(default_factory=dict)
    """Tenants with limits of their own."""
    everybody: ResourceUse = field(default_factory=ResourceUse)
    own_executions: int = 64
    executions: int = 256
    requests_per_minute: int = 0
    creates_per_minute: int = 0
    creates: int = 8
    """Sandboxes that are created at once."""
    waiting: int = 512
    wait_s: float = 30.0
    output_bytes: int = 64 * KIB
    """Bytes kept of the code, stdout and stderr of an execution, each."""
    audit_output_bytes: int = 4 * KIB
    audit_days: int | None = None
    """Days that rows of the audit record are kept; None is for ever."""
    kept_executions: int = 1000
    link_max_s: float = 7 * 86_400
    egress: Egress = field(default_factory=Egress)
    """Egress of a sandbox unless the caller sets it, within the ceiling of its tenant."""
    egress_limits: EgressLimits = field(default_factory=EgressLimits)
    """Limits of egress traffic."""
    egress_ca_file: str = ""
    """Certificates to trust for egress TLS, besides those of this host."""
    egress_upstream: str = field(default="", repr=False)
    """The upstream proxy of all egress, with credentials."""
    callback_hosts: tuple[str, ...] = ()
    """Hosts of tool callbacks besides public addresses."""
    own_skills: int = 200
    """Skills that one principal may keep; 0 is no limit."""
    own_skill_bytes: int = 256 * MIB
    """Bytes of their packages; 0 is no limit."""
    own_file_bytes: int = GIB
    """Bytes of stored files of one principal; 0 is no limit. `file_bytes` is for all principals."""
    file_bytes: int = 16 * GIB

    def ceiling_of(self, tenant: str) -> TenantLimits:
        """Return the limits of a tenant."""
        return self.tenants.get(tenant, self.tenant)

    def ceilings_of(self, tenant: str) -> Ceilings:
        """Return the quotas of an owner of this tenant, of the tenant, and of all."""
        return Ceilings(self.own, self.ceiling_of(tenant).holding, self.everybody)

    def largest_of(self, tenant: str) -> Mapping[str, float]:
        """Return the largest limits of a sandbox of a tenant."""
        own = self.ceiling_of(tenant).largest
        return {**self.largest, **{name: min(most, self.largest.get(name, most)) for name, most in own.items()}}

    def limits_of(self, tenant: str) -> Limits:
        """Return the default limits of a tenant's sandbox. Raises InvalidRequest, at start-up."""
        return lower_limits(self.limits, self.largest_of(tenant))

    def limits_with_memory(self, tenant: str, memory_bytes: int) -> Limits:
        """Return the default limits with that much memory, up to the tenant's limit; 0 is the default."""
        usual = self.limits_of(tenant)
        if not memory_bytes:
            return usual
        most = self.largest_of(tenant).get("memory_bytes", memory_bytes)
        return dataclasses.replace(usual, memory_bytes=min(memory_bytes, int(most)))

    def choose_egress(self, tenant: str, asked: Egress | None) -> Egress:
        """Return the egress of a tenant's sandbox: the requested one in canonical spelling, or the operator's default.

        Raises InvalidRequest for an invalid policy, and Forbidden for one above the tenant's ceiling.
        """
        if asked is None:
            return self.lower_egress(tenant, self.egress)
        checked = check_egress(asked)
        check_within(checked, self.ceiling_of(tenant).egress, tenant)
        return checked

    def lower_egress(self, tenant: str, egress: Egress) -> Egress:
        """Return an egress policy of the operator's, within the ceiling of a tenant."""
        return lower_to(egress, self.ceiling_of(tenant).egress)

    def check_rules(self, tenant: str, rules: tuple[EgressRule, ...]) -> None:
        """Raise Forbidden for rules above the ceiling of a tenant."""
        check_within(Egress(mode=EgressMode.RULES, rules=rules), self.ceiling_of(tenant).egress, tenant)

    def check_limits(self, tenant: str, limits: Limits, before: Limits | None = None) -> None:
        """Raise InvalidRequest for limits above the largest of a tenant; a sandbox keeps the limits that it has."""
        own = self.ceiling_of(tenant).largest
        for name, most in self.largest_of(tenant).items():
            asked = getattr(limits, name)
            if asked > most and (before is None or asked > getattr(before, name)):
                where = f"in a sandbox of tenant {tenant!r}" if own.get(name) == most else "in one sandbox here"
                raise InvalidRequest(
                    f"{name} may be at most {_show(name, most)} {where}, and {_show(name, asked)} was asked for"
                )


def lower_limits(limits: Limits, largest: Mapping[str, float]) -> Limits:
    """Return limits that are within the largest ones."""
    less = {name: type(own)(most) for name, most in largest.items() if most < (own := getattr(limits, name))}
    return dataclasses.replace(limits, **less) if less else limits


def check_may(caller: Caller, scope: Scope) -> None:
    """Raise Forbidden unless the caller's credentials include the scope."""
    if not caller.principal.may(scope):
        raise Forbidden(f"this key has the scope {caller.principal.scope}, and this needs {scope}")


def _show(name: str, value: float) -> str:
    if not name.endswith("_bytes"):
        return f"{value:g}"
    return f"{value / GIB:g}G" if value >= GIB else f"{value / MIB:g}M"


@dataclass(frozen=True, slots=True, kw_only=True)
class RenderPolicy:
    """Limits and defaults of renders."""

    image: str = "office"
    limits: Limits = field(
        default_factory=lambda: Limits(memory_bytes=1536 * MIB, cpus=2.0, pids=512, disk_bytes=GIB, checkpoints=0)
    )
    version: str = PICTURES
    """Unless a request names one."""
    warm: int = 1
    """Sandboxes with a browser that is started ahead."""
    warm_s: float = 600.0
    """Seconds that these stay ready after the last render."""
    at_once: int = 2
    wait_s: float = 0.5
    """For a slot among `at_once`."""
    per_minute: int = 10
    """Renders of one principal; 0 is no limit."""
    timeout_s: float = 180.0
    html_chars: int = 2_000_000
    files: int = 32
    file_bytes: int = 25_000_000
    files_bytes: int = 120_000_000
    slides: int = 200
    output_bytes: int = 220_000_000
    waiting: int = 100
    """Background renders in progress, of all principals."""
    own_waiting: int = 10
    keep_s: float = 3600.0
    """Seconds that the result of a background render is kept."""
