"""What the routes of Onyx's dialect share: files by id, sessions by name, and sandboxes as its settings want them."""

from __future__ import annotations

import contextlib
import re
import time
from typing import TYPE_CHECKING

from warren.domain.errors import NotFound, Overloaded, QuotaExceeded
from warren.gateway.api.problems import build_problem
from warren.gateway.dialects import details
from warren.gateway.dialects.details import Refused
from warren.gateway.dialects.onyx import translate

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from starlette.responses import Response

    from warren.domain.records import Sandbox, StoredFile
    from warren.domain.values import Limits
    from warren.gateway.api.operations import Call
    from warren.gateway.dialects.onyx import schemas

_SESSION = re.compile(r"code-session-[0-9a-f]{32}")
_SHOWN = 200


async def resolve(call: Call, files: Sequence[schemas.FileRef], *, reserved: bool) -> dict[str, StoredFile]:
    """Find the files of a request, by path; of two at one path the last counts. Raises Refused."""
    found = []
    for file in files:
        try:
            found.append(await call.service.stored_files.get(call.caller, file.file_id))
        except NotFound:
            named = f"File with ID '{file.file_id[:_SHOWN]}' not found for path '{file.path[:_SHOWN]}'."
            raise Refused(404, named) from None
    paths = [translate.parse_path(file.path, reserved=reserved) for file in files]
    return dict(zip(paths, found, strict=True))


@contextlib.asynccontextmanager
async def session(call: Call) -> AsyncIterator[Sandbox]:
    """Find the session of the path. Raises Refused, also when it ends while the body uses it."""
    session_id = call.params["session_id"]
    try:
        yield await _find(call, session_id)
    except NotFound:
        raise Refused(404, f"Session '{session_id[:_SHOWN]}' not found") from None


async def _find(call: Call, session_id: str) -> Sandbox:
    if _SESSION.fullmatch(session_id) is None:
        raise NotFound(session_id)
    sandbox = await call.service.sandboxes.find(call.caller, session_key(session_id))
    if sandbox.expires_at is not None and sandbox.expires_at <= time.time():
        raise NotFound(session_id)
    return sandbox


def session_key(session_id: str) -> str:
    """Return the session key of the sandbox of a session."""
    return f"onyx/{session_id}"


def image(call: Call) -> str | None:
    """Return the image of this dialect's sandboxes; None for the default."""
    return call.settings.dialects.onyx.image or None


def limits(call: Call) -> Limits:
    """Return the limits of this dialect's sandboxes."""
    return call.service.policy.limits_with_memory(
        call.caller.principal.tenant, call.settings.dialects.onyx.memory_bytes
    )


def respond(exc: BaseException, request_id: str) -> Response:
    """Build the answer to a request that ended in an exception, with Retry-After where it is retryable."""
    if isinstance(exc, QuotaExceeded | Overloaded):
        problem = build_problem(exc)
        saturated = isinstance(exc, QuotaExceeded)
        words = "Execution capacity on this replica is saturated" if saturated else _unavailable(exc.code)
        return details.reply(problem.status, f"{words}: {problem.detail}", problem.headers)
    response = details.respond(exc, request_id)
    if response.status_code == 503:
        response.headers.setdefault("Retry-After", "1")
    return response


def _unavailable(reason: str) -> str:
    return f"Executor capacity unavailable ({reason})"
