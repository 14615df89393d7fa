"""Looks at this machine for the guardrails, and refuses to go on where one is in the way."""

from __future__ import annotations

import os
import stat
import time
from typing import TYPE_CHECKING

from warren.bootstrap.guardrails import Facts, check, is_production
from warren.domain.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from warren.settings import Settings


def refuse_risks(settings: Settings) -> None:
    """Raise ConfigError, with every reason there is, when a service must not start with these settings."""
    sentences = check(settings, gather_facts(settings))
    if len(sentences) == 1:
        raise ConfigError(sentences[0])
    if sentences:
        lines = "\n".join(f"  {each}" for each in sentences)
        raise ConfigError(f"the service does not start, for {len(sentences)} reasons:\n{lines}")


def gather_facts(settings: Settings) -> Facts:
    """Look at what the settings do not say; outside production that is little."""
    is_writable = _is_writable_by_others(settings.data_dir)
    if not is_production(settings):
        return Facts(is_data_writable=is_writable)
    own = (getattr(settings.dialects, name).image for name in type(settings.dialects).model_fields)
    images = sorted({settings.image, *settings.pool.images, *filter(None, own)})
    unbuilt, unlocked = _look_at_images(settings, images)
    return Facts(
        has_keys=not settings.serve.auth or _has_keys(settings),
        unbuilt_images=unbuilt,
        unlocked_images=unlocked,
        readable_secrets=tuple(sorted({path for path in _secret_files(settings) if _is_readable_by_others(path)})),
        is_data_writable=is_writable,
    )


def _has_keys(settings: Settings) -> bool:
    import anyio

    from warren.stores.sqlite.database import DATABASE

    # Looking must not make one.
    if settings.store == "sqlite" and not os.path.exists(os.path.join(settings.data_dir, DATABASE)):
        return False
    return anyio.run(_find_key, settings)


async def _find_key(settings: Settings) -> bool:
    from warren.cli.service.offline_store import opened_store
    from warren.core.identity.keys import is_in_force

    async with opened_store(settings.data_dir) as (store, _):
        return any(is_in_force(key, time.time()) for key in await store.keys())


def _look_at_images(settings: Settings, images: list[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    from warren.bootstrap.app import build_catalog

    catalog = build_catalog(settings)
    unbuilt = tuple(name for name in images if not catalog.status(name).built)
    return unbuilt, tuple(name for name in images if catalog.spec(name).lock is None)


def _secret_files(settings: Settings) -> Iterator[str]:
    from pydantic import SecretStr

    from warren.settings import Source

    for name, value in settings.values():
        origin = settings.origin_of(name)
        if isinstance(value, SecretStr) and (origin.secret_file or origin.source is Source.FILE):
            yield os.path.abspath(origin.secret_file or origin.where)


def _is_readable_by_others(path: str) -> bool:
    try:
        mode = os.stat(path).st_mode
        folders = [os.path.dirname(os.path.realpath(path))]
        while folders[-1] != os.path.dirname(folders[-1]):
            folders.append(os.path.dirname(folders[-1]))
        is_reachable = all(os.stat(folder).st_mode & stat.S_IXOTH for folder in folders)
    except OSError:
        return False
    return stat.S_ISREG(mode) and bool(mode & stat.S_IROTH) and is_reachable


def _is_writable_by_others(folder: str) -> bool:
    try:
        return bool(os.stat(folder).st_mode & (stat.S_IWGRP | stat.S_IWOTH))
    except OSError:
        return False
