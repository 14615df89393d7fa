"""Sandboxes as people name them: by the beginning of an id."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from warren.domain.errors import Forbidden, InvalidRequest, NotFound

if TYPE_CHECKING:
    from warren import AsyncClient, AsyncSandbox
    from warren.cli.service.connection import Target

_WHOLE = re.compile(r"sbx_[0-9a-f]{24}")
_PART = re.compile(r"sbx_[0-9a-z]+")
_SHOWN = 5
LOCAL = ("default", "local")
"""Whose sandboxes are that are made without a key."""


async def find_sandbox(client: AsyncClient, target: Target, text: str, *, to_use: bool = False) -> AsyncSandbox:
    """Find the one sandbox that is meant. Raises NotFound, and InvalidRequest where it may be one of several.

    Raises Forbidden where it cannot be used by who is asking, although they can see it and end it.
    """
    wanted = text if text.startswith("sbx_") else f"sbx_{text}"
    if _WHOLE.fullmatch(wanted):
        sandbox = await client.sandboxes.get(wanted)
    else:
        sandbox = await _search(client, target, text, wanted)
    owner = sandbox.info.owner
    if to_use and not target.is_remote and (owner.tenant, owner.subject) != LOCAL:
        raise Forbidden(
            f"sandbox {sandbox.id} is {owner.subject}'s, of the tenant {owner.tenant}, and only they use it: "
            "give --url, and their key in WARREN_API_KEY"
        )
    return sandbox


async def _search(client: AsyncClient, target: Target, text: str, wanted: str) -> AsyncSandbox:
    unknown = NotFound(f"there is no sandbox {text[:64]}: `warren ps` lists those there are")
    if not _PART.fullmatch(wanted):
        raise unknown
    found = [each async for each in client.sandboxes.all(everybody=not target.is_remote) if each.id.startswith(wanted)]
    if not found:
        raise unknown
    if len(found) > 1:
        ids = ", ".join(each.id for each in found[:_SHOWN])
        more = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
        raise InvalidRequest(f"{text} may be any of {ids}{more}: type more of the one you mean")
    return found[0]
