"""otari's sessions in paths, and the refusal of missing ones."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from warren.domain.errors import NotFound, SandboxLost
from warren.domain.records import Scope
from warren.gateway.api.operations import SANDBOX_ID
from warren.gateway.dialects.details import Refused, too_long

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from warren.core.sandboxes.live import LiveSandbox
    from warren.gateway.api.operations import Call

MAX_ID = 64


def session_id(call: Call) -> str:
    """Return the session of the path. Raises Refused: 422 for an id that is too long, 404 for a malformed one."""
    value = call.params["session_id"]
    if len(value) > MAX_ID:
        raise Refused(422, [too_long(["path", "session_id"], value, MAX_ID)])
    if SANDBOX_ID.fullmatch(value) is None:
        raise unknown(value)
    return value


def unknown(session: str) -> Refused:
    """Build the refusal for a session that does not exist, or belongs to another owner."""
    return Refused(404, session)


@contextlib.asynccontextmanager
async def using(call: Call, scope: Scope = Scope.RUN) -> AsyncIterator[LiveSandbox]:
    """Hold the session of the path, in use until the end. Raises Refused when there is none."""
    session = session_id(call)
    async with contextlib.AsyncExitStack() as held:
        try:
            live = await held.enter_async_context(call.service.sandboxes.use(call.caller, session, scope))
        except (NotFound, SandboxLost):
            raise unknown(session) from None
        yield live
