"""Composition root: builds an engine, a store, a catalog and the service from the settings."""

from __future__ import annotations

import os
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from warren.bootstrap.machine import build_maxima, find_existing
from warren.core.images.catalog import Catalog
from warren.core.policy.egress_hosts import parse_pattern
from warren.core.policy.free_space import FreeSpace, Watermark
from warren.core.policy.policy import EgressLimits, Policy, RenderPolicy, TenantLimits, lower_limits
from warren.domain.egress import Egress, EgressMode, EgressRule
from warren.domain.errors import ConfigError, InvalidRequest
from warren.domain.records import ResourceUse, Scope
from warren.engines.base import load_engine
from warren.settings.kinds import AUTO
from warren.stores.base import load_store

if TYPE_CHECKING:
    from warren.core.identity.jwks import TokenKey
    from warren.core.identity.jwks_source import KeySource
    from warren.core.identity.token_rules import TokenRules
    from warren.core.identity.tokens import Tokens
    from warren.core.packages.setup import PackageSetup
    from warren.core.packages.sources import PackageSources
    from warren.core.service import Service
    from warren.core.telemetry.tracing import Tracer
    from warren.engines.base import Engine
    from warren.settings import (
        CapacitySettings,
        JwtSettings,
        QuotaSettings,
        RenderSettings,
        Settings,
        TenantSettings,
        TracingSettings,
    )
    from warren.stores.base import Store


def build_service(settings: Settings, *, render_program: str | None = None) -> Service:
    """Build the service, not opened: `async with` it.

    `render_program` replaces the program that renders decks inside sandboxes; tests of attacks use it.
    """
    # Imported here: commands that need only an engine would pay for it.
    from warren.core.service import Service
    from warren.core.shared_links.signing_keys import SigningKeys

    return Service(
        engine=build_engine(settings),
        store=build_store(settings),
        images=build_catalog(settings),
        policy=build_policy(settings),
        tokens=build_tokens(settings.jwt),
        signing=SigningKeys(os.path.join(settings.data_dir, "links.key")),
        tracer=build_tracer(settings.tracing),
        blobs_dir=os.path.join(settings.data_dir, "blobs"),
        space=build_free_space(settings),
        render_policy=build_render_policy(settings.render),
        packages=build_package_setup(settings),
        render_program=render_program,
    )


def build_free_space(settings: Settings) -> FreeSpace:
    """Build the check of the free space of the data disk."""
    folder = find_existing(settings.data_dir)
    usual = Watermark.of_disk(folder)
    chosen = {
        name: getattr(usual if getattr(settings.disk, name) == AUTO else settings.disk, name)
        for name in ("free_bytes", "free_inodes")
    }
    return FreeSpace(folder, Watermark(**chosen))


def build_tracer(settings: TracingSettings) -> Tracer | None:
    """Build the tracer, if an endpoint is set. Raises ConfigError without the extra that it needs."""
    if not settings.endpoint:
        return None
    # Imported here: it is an extra, and costs more than the rest of the service.
    from warren.core.telemetry.tracing_otel import OtelTracer

    headers = "" if settings.headers is None else settings.headers.get_secret_value()
    return OtelTracer(
        settings.endpoint, headers=headers, service_name=settings.service_name, ratio=settings.sample_ratio
    )


def build_engine(settings: Settings) -> Engine:
    """Build the configured engine, not opened."""
    options: dict[str, Any] = {}
    if settings.engine == "local":
        options = {
            "optional_layers": settings.optional_layers,
            "debug": settings.debug,
            "cdi_dirs": settings.gpus.cdi_dirs,
        }
    elif settings.engine == "bare":
        options = {"allow": settings.allow_bare}
    # The protocol does not cover construction: that is between an engine's settings and its class.
    engine_class: Any = load_engine(settings.engine)
    engine: Engine = engine_class(settings.data_dir, **options)
    return engine


def build_store(settings: Settings) -> Store:
    """Build the configured store, not opened."""
    store_class: Any = load_store(settings.store)
    store: Store = store_class(
        settings.data_dir, kept_executions=settings.records.executions, own_bytes=settings.quota.record_bytes
    )
    return store


def build_catalog(settings: Settings) -> Catalog:
    """Build the catalog of the configured images."""
    return Catalog(settings.data_dir, settings.image_dirs)


def build_policy(settings: Settings) -> Policy:
    """Build the policy of the core from the settings. Raises ConfigError."""
    life, pool, quota, capacity = settings.life, settings.pool, settings.quota, settings.capacity
    largest = build_maxima(settings)
    policy = Policy(
        image=settings.image,
        limits=lower_limits(settings.limits.build(), largest),
        largest=largest,
        timeout_s=settings.timeout_s,
        idle_timeout_s=life.idle_timeout_s,
        max_lifetime_s=life.max_lifetime_s,
        stopped_lifetime_s=life.stopped_lifetime_s,
        pool_size=pool.size,
        pool_images=pool.images or (settings.image,),
        egress=Egress(mode=EgressMode(settings.egress.default)),
        egress_limits=EgressLimits(**{one.name: getattr(settings.egress, one.name) for one in fields(EgressLimits)}),
        egress_ca_file=settings.egress.ca_file,
        egress_upstream=_upstream(settings),
        own=_holding(quota),
        tenant=_ceiling(settings.tenant),
        tenants={name: _ceiling(each, settings.tenant) for name, each in settings.tenants.items()},
        everybody=_holding(capacity),
        own_executions=quota.executions,
        executions=capacity.executions,
        requests_per_minute=quota.requests_per_minute,
        creates_per_minute=quota.creates_per_minute,
        creates=capacity.creates,
        waiting=capacity.waiting,
        wait_s=capacity.wait_s,
        output_bytes=settings.records.output_bytes,
        audit_output_bytes=settings.records.audit_output_bytes,
        audit_days=settings.records.audit_days,
        kept_executions=settings.records.executions,
        link_max_s=settings.serve.link_max_s,
        own_skills=quota.skills,
        own_skill_bytes=quota.skill_bytes,
        own_file_bytes=quota.file_bytes,
        file_bytes=capacity.file_bytes,
        callback_hosts=settings.dialects.otari.callback_hosts,
    )
    _check_policy(policy)
    return policy


def _check_policy(policy: Policy) -> None:
    for name in ("", *policy.tenants):
        try:
            policy.limits_of(name)
        except InvalidRequest as exc:
            raise ConfigError(f"{f'tenants.{name}' if name else 'tenant'}: no sandbox could be made: {exc}") from exc


def _upstream(settings: Settings) -> str:
    chosen = settings.egress.upstream_proxy
    return chosen.get_secret_value() if chosen is not None else ""


def build_package_setup(settings: Settings) -> PackageSetup:
    """Return the sources and folder of packages; nothing is read before the first request."""
    from warren.core.packages.setup import PackageSetup

    def load() -> PackageSources:
        from warren.bootstrap.package_sources import build_sources

        return build_sources(settings.packages, settings.read_pip_index(), _upstream(settings))

    folder = os.path.join(settings.data_dir, "packages")
    return PackageSetup(load=load, folder=folder, timeout_s=settings.packages.timeout_s)


def build_render_policy(settings: RenderSettings) -> RenderPolicy:
    """Build the policy of slides from the settings. Raises ConfigError."""
    try:
        limits = settings.build_limits()
    except InvalidRequest as exc:
        raise ConfigError(f"render: {exc}") from exc
    same = {one.name: getattr(settings, one.name) for one in fields(RenderPolicy) if one.name != "limits"}
    return RenderPolicy(limits=limits, **same)


def _holding(settings: QuotaSettings | CapacitySettings) -> ResourceUse:
    return ResourceUse(*(getattr(settings, name) for name in ResourceUse._fields))


def _ceiling(settings: TenantSettings, otherwise: TenantSettings | None = None) -> TenantLimits:
    """Build the limits of a tenant; unset values come from the other settings, or are no limit."""
    values = settings.model_dump(exclude_none=True)
    if otherwise is not None:
        values = otherwise.model_dump(exclude_none=True) | values
    return TenantLimits(
        holding=ResourceUse(*(values.get(name, 0) for name in ResourceUse._fields)),
        executions=values.get("executions", 0),
        requests_per_minute=values.get("requests_per_minute", 0),
        creates_per_minute=values.get("creates_per_minute", 0),
        largest={name[4:]: most for name, most in values.items() if name.startswith("max_") and most},
        egress=Egress(
            mode=EgressMode(values.get("egress", "open")),
            rules=tuple(_ceiling_rule(host) for host in values.get("egress_hosts", ())),
        ),
        allow_gpus=values.get("allow_gpus", True),
    )


def _ceiling_rule(host: str) -> EgressRule:
    try:
        return EgressRule(host=parse_pattern(host).text, ports=())
    except ValueError as exc:
        raise ConfigError(f"tenant.egress_hosts cannot have {host!r}: {exc}") from exc


def build_tokens(settings: JwtSettings) -> Tokens | None:
    """Build the token authentication; None without keys. Raises ConfigError."""
    if not (settings.secret or settings.public_key_file or settings.jwks):
        return None
    # Imported here: PyJWT and its cryptography take 0.1 s.
    from warren.core.identity.jwks import ALGORITHMS
    from warren.core.identity.tokens import Tokens

    for name in settings.algorithms:
        if name not in ALGORITHMS:
            raise ConfigError(f"jwt.algorithms cannot have {name!r}: choose from {', '.join(sorted(ALGORITHMS))}")
    if settings.public_key_file or settings.jwks:
        for name in ("issuer", "audience"):
            if not getattr(settings, name):
                raise ConfigError(
                    f"jwt.{name} must be set: an issuer's keys sign for other services and customers too, "
                    "whose tokens would be taken here"
                )
    return Tokens(_token_rules(settings), _token_keys(settings), _key_source(settings))


def _token_rules(settings: JwtSettings) -> TokenRules:
    from warren.core.identity.token_rules import TokenRules

    words = ((Scope.READ, settings.read_scopes), (Scope.RUN, settings.run_scopes), (Scope.ADMIN, settings.admin_scopes))
    if not settings.tenant_claim and not settings.tenant:
        raise ConfigError("jwt.tenant must be set where jwt.tenant_claim is empty: every token is of some tenant")
    return TokenRules(
        issuers=frozenset(settings.issuer),
        audiences=frozenset(settings.audience),
        leeway_s=settings.leeway_s,
        max_age_s=settings.max_age_s,
        max_bytes=settings.max_bytes,
        subject_claim=settings.subject_claim,
        subject_prefix=settings.subject_prefix,
        tenant_claim=settings.tenant_claim,
        tenant=settings.tenant,
        tenants=frozenset(settings.tenants),
        scope_claim=settings.scope_claim,
        scopes={word: scope for scope, names in words for word in names},
        default_scope=None if settings.default_scope == "none" else Scope(settings.default_scope),
    )


def _token_keys(settings: JwtSettings) -> list[TokenKey]:
    from warren.core.identity.jwks import build_pem_keys, build_secret_key
    from warren.core.identity.jwks_source import read_bounded

    keys: list[TokenKey] = []
    if settings.secret is not None:
        try:
            keys.append(build_secret_key(settings.secret.get_secret_value().encode(), settings.algorithms))
        except ValueError as exc:
            raise ConfigError(f"jwt.secret cannot be used: {exc}") from exc
    if path := settings.public_key_file:
        try:
            keys += build_pem_keys(read_bounded(path), settings.algorithms)
        except (OSError, ValueError) as exc:
            why = exc.strerror if isinstance(exc, OSError) else exc
            raise ConfigError(f"jwt.public_key_file {path} cannot be used: {why}") from exc
    return keys


def _key_source(settings: JwtSettings) -> KeySource | None:
    from warren.core.identity import jwks_source
    from warren.core.identity.jwks import parse_jwks

    where = settings.jwks
    if not where:
        return None
    if "://" in where:
        refresh_s, cooldown_s = settings.jwks_refresh_s, settings.jwks_cooldown_s
        try:
            load = jwks_source.load_url(jwks_source.check_url(where))
        except ValueError as exc:
            raise ConfigError(f"jwt.jwks: {exc}") from exc
    else:
        refresh_s, cooldown_s = jwks_source.FILE_REFRESH_S, jwks_source.FILE_COOLDOWN_S
        load = jwks_source.load_file(where)
        try:
            parse_jwks(jwks_source.read_bounded(where), settings.algorithms)
        except (OSError, ValueError) as exc:
            why = exc.strerror if isinstance(exc, OSError) else exc
            raise ConfigError(f"jwt.jwks {where} cannot be used: {why}") from exc
    return jwks_source.KeySource(
        load,
        refresh_s=refresh_s,
        cooldown_s=cooldown_s,
        stale_s=settings.jwks_stale_s,
        algorithms=settings.algorithms,
    )
