"""The composition root: from the settings to an engine, a store, a catalog and the service over them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from warren.core.images import Catalog
from warren.core.policy import Policy
from warren.engines.base import load_engine
from warren.records import Holding
from warren.stores.base import load_store

if TYPE_CHECKING:
    from warren.core.service import Service
    from warren.engines.base import Engine
    from warren.settings import CapacitySettings, QuotaSettings, Settings
    from warren.stores.base import Store


def build_service(settings: Settings) -> Service:
    """Build the service; nothing is open yet: `async with` it."""
    # Not above: commands that need an engine only would pay for it.
    from warren.core.service import Service

    return Service(
        engine=build_engine(settings),
        store=build_store(settings),
        images=build_catalog(settings),
        policy=build_policy(settings),
    )


def build_engine(settings: Settings) -> Engine:
    """Build the engine that the settings name; it is not open yet."""
    options: dict[str, Any] = {}
    if settings.engine == "local":
        options = {"optional_layers": settings.optional_layers, "debug": settings.debug}
    elif settings.engine == "bare":
        options = {"allow": settings.allow_bare}
    # The seam says nothing of how an engine is built: that is between its settings and its class.
    engine_class: Any = load_engine(settings.engine)
    engine: Engine = engine_class(settings.data_dir, **options)
    return engine


def build_store(settings: Settings) -> Store:
    """Build the store that the settings name; it is not open yet."""
    store_class: Any = load_store(settings.store)
    store: Store = store_class(settings.data_dir, kept_executions=settings.records.executions)
    return store


def build_catalog(settings: Settings) -> Catalog:
    """Build the catalog of the images that the settings name."""
    return Catalog(settings.data_dir, settings.image_dirs)


def build_policy(settings: Settings) -> Policy:
    """Translate what the operator chose into what the core knows."""
    life, pool, quota, capacity = settings.life, settings.pool, settings.quota, settings.capacity
    return Policy(
        image=settings.image,
        limits=settings.limits.build(),
        timeout_s=settings.timeout_s,
        idle_timeout_s=life.idle_timeout_s,
        max_lifetime_s=life.max_lifetime_s,
        stopped_lifetime_s=life.stopped_lifetime_s,
        pool_size=pool.size,
        pool_images=pool.images or (settings.image,),
        own=_holding(quota),
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
        kept_executions=settings.records.executions,
    )


def _holding(settings: QuotaSettings | CapacitySettings) -> Holding:
    return Holding(settings.sandboxes, settings.active, settings.memory_bytes, settings.disk_bytes)
