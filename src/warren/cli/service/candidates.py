"""What a shell offers to complete: images and ids of sandboxes. Any failure offers nothing: a person is typing."""

from __future__ import annotations

import re
from typing import Any

_ID = re.compile(r"sbx_[0-9a-z]{8,40}")
_PATIENCE_S = 2.0
_MOST = 200

Candidate = tuple[str, str]


def list_images(incomplete: str) -> list[Candidate]:
    """Return the images of the catalog that begin so."""
    from warren.bootstrap.app import build_catalog
    from warren.settings import Settings

    try:
        specs = build_catalog(Settings.load()).specs()
    except Exception:  # noqa: BLE001 - the command itself says what is wrong
        return []
    return [(spec.name, spec.description) for spec in specs if spec.name.startswith(incomplete)]


def list_sandboxes(ctx: Any, incomplete: str) -> list[Candidate]:
    """Return the sandboxes whose ids begin so, with `sbx_` or without; of the service that the command would ask."""
    try:
        found = _find(ctx.params.get("url"), ctx.params.get("data_dir"))
    except Exception:  # noqa: BLE001 - as above
        return []
    # An id may be typed without what all of them begin with.
    cut = 4 if incomplete and not incomplete.startswith("s") else 0
    # A shell puts it on the command line as it is, whatever service said it.
    rows = [(name[cut:], meaning) for name, meaning in found if _ID.fullmatch(name)]
    return [row for row in rows if row[0].startswith(incomplete)]


def list_places(ctx: Any, incomplete: str) -> list[Candidate]:
    """Return the sandboxes as `warren sandbox cp` names them; files are the shell's to complete."""
    found = list_sandboxes(ctx, incomplete) if incomplete else []
    return [(f"{name}:", meaning) for name, meaning in found]


def _find(url: str | None, data_dir: str | None) -> list[Candidate]:
    """Ask the service; where none runs, look into the store, and start nothing."""
    from warren.cli.quick import ps as quick
    from warren.sdk.environment import default_url
    from warren.settings import Settings

    if url or default_url():
        from warren import Client

        with Client(url, timeout=_PATIENCE_S, retries=0) as client:
            return [(each.id, f"{each.info.status}, {each.info.image}") for each in client.sandboxes.list(limit=_MOST)]
    found = quick.list_sandboxes(Settings.load(flags={"data_dir": data_dir}).data_dir, limit=_MOST, is_exact=False)
    return [(each["id"], f"{each['status']}, {each['image']}") for each in found or ()]
