"""Everything that can go wrong on our side, as one tree.

Error                      never raised directly
├─ RequestError            the caller can fix it
│  ├─ InvalidRequest       400
│  │  └─ OutsideWorkspace  400
│  ├─ Unauthenticated      401
│  ├─ Forbidden            403
│  ├─ NotFound             404
│  ├─ Conflict             409
│  ├─ PreconditionFailed   412
│  ├─ TooLarge             413
│  ├─ OutOfRange           416
│  ├─ RenderFailed         422
│  └─ QuotaExceeded        429
├─ EngineError
│  ├─ EngineUnavailable    503
│  ├─ StartFailed          500
│  ├─ BuildFailed          500
│  ├─ Unsupported          501
│  └─ SandboxLost          502
├─ Unreachable             502
├─ Overloaded              503
├─ StoreError              503
└─ InsufficientStorage     507
ConfigError                start-up only: one sentence, exit code 2

A program's fate is a value (`domain.Cause`), never one of these.
"""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


class Error(Exception):
    """Superclass of everything Warren raises. Never raised directly, but for a code that a client does not know."""

    code: str
    status: int
    retryable: bool = False
    retry_after_s: float | None = None
    """When to try again, where that is known."""
    request_id: str = ""
    """Set where an error came back from a service: its log has more under this."""


class RequestError(Error):
    """Superclass of what the caller can fix. Never raised directly."""


class InvalidRequest(RequestError):
    """The request makes no sense as it stands; the message says which part."""

    code = "invalid_request"
    status = 400


class OutsideWorkspace(InvalidRequest):
    """A path is not in the workspace, or leads out of it."""

    code = "outside_workspace"


class Unauthenticated(RequestError):
    """No valid credentials came with the request."""

    code = "unauthenticated"
    status = 401

    def __init__(self, message: str = "", *, is_missing: bool = False) -> None:
        super().__init__(message)
        self.is_missing = is_missing
        """Whether there were none at all."""


class Forbidden(RequestError):
    """The credentials are good but do not allow this."""

    code = "forbidden"
    status = 403


class NotFound(RequestError):
    """There is no such thing, or it belongs to another owner."""

    code = "not_found"
    status = 404


class Conflict(RequestError):
    """The thing is in a state, or is busy, so that this cannot be done now."""

    code = "conflict"
    status = 409


class PreconditionFailed(RequestError):
    """The thing is not, or no longer, as the caller's condition says."""

    code = "precondition_failed"
    status = 412


class TooLarge(RequestError):
    """The request or what it asks for is over a size limit."""

    code = "too_large"
    status = 413


class OutOfRange(RequestError):
    """The file has no such part; `size` is how long it is."""

    code = "range_not_satisfiable"
    status = 416

    def __init__(self, message: str, *, size: int = 0) -> None:
        super().__init__(message)
        self.size = size


class QuotaExceeded(RequestError):
    """A quota of the principal is used up; try again later."""

    code = "quota_exceeded"
    status = 429
    retryable = True
    retry_after_s: float

    def __init__(self, message: str, *, retry_after_s: float = 1.0) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class RenderFailed(RequestError):
    """A deck could not be turned into slides; the message says why, and `reason` is one word for it."""

    code = "render_failed"
    status = 422

    def __init__(self, message: str, *, reason: str = "failed") -> None:
        super().__init__(message)
        self.reason = reason
        """`no_slides`, `too_many_slides`, `timeout`, `memory` and so on: `core/slides/job.py` has them all."""


class EngineError(Error):
    """Superclass of what an engine raises. Never raised directly."""


class EngineUnavailable(EngineError):
    """The engine cannot work on this host; the message names the missing layer and the fix."""

    code = "engine_unavailable"
    status = 503


class StartFailed(EngineError):
    """A sandbox could not be made; nothing of it is left."""

    code = "start_failed"
    status = 500
    retryable = True


class BuildFailed(EngineError):
    """An image could not be built; nothing of it is left."""

    code = "build_failed"
    status = 500
    retryable = True


class Unsupported(EngineError):
    """This engine cannot do this; another may."""

    code = "unsupported"
    status = 501


class SandboxLost(EngineError):
    """The sandbox is gone, or broke its protocol and was stopped."""

    code = "sandbox_lost"
    status = 502


class Unreachable(Error):
    """No server inside the sandbox answers on that port, or not as one should."""

    code = "unreachable"
    status = 502
    retryable = True


class Overloaded(Error):
    """Everybody together asks for more than there is; the same request may do well later."""

    code = "overloaded"
    status = 503
    retryable = True
    retry_after_s: float

    def __init__(self, message: str, *, retry_after_s: float = 1.0) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class StoreError(Error):
    """The store did not answer or holds something it should not."""

    code = "store_error"
    status = 503
    retryable = True


class InsufficientStorage(Error):
    """The disk of the service is almost full: nothing is begun that writes more, and deletes still work."""

    code = "insufficient_storage"
    status = 507
    retryable = True


class ConfigError(Exception):
    """The configuration cannot be used; the message is one sentence, and the exit code is 2."""


def suggest(word: str, known: Iterable[str], *, prefix: str = "") -> str:
    """Return the end of a sentence about an unknown word: the nearest known one, and all if they are few.

    What all words begin with says nothing about which is meant, so it is not compared. A word that is like the end
    of a known one means that: `PROT` is `SERVE_PORT`.
    """
    asked = word.removeprefix(prefix)
    words = sorted(each.removeprefix(prefix) for each in known)
    ends = {each.replace(".", "_").rpartition("_")[2]: each for each in words}
    near = get_close_matches(asked, words, n=1) or [ends[end] for end in get_close_matches(asked, ends, n=1)]
    listed = ", ".join(prefix + each for each in words) or "nothing"
    if not near:
        return f": there is {listed}"
    nearest = f": did you mean {prefix}{near[0]}?"
    return f"{nearest} There is {listed}" if len(words) <= 8 else nearest


def by_code(code: str) -> type[Error] | None:
    """Find the error class for a code that crossed the wire; unknown codes are None."""
    return BY_CODE.get(code)


BY_CODE: dict[str, type[Error]] = {
    kind.code: kind
    for kind in [*globals().values()]
    if isinstance(kind, type) and issubclass(kind, Error) and hasattr(kind, "code")
}
