"""Problem details (RFC 9457): one shape for every failure, without internals of the service."""

from __future__ import annotations

import logging
import math
import os
import traceback
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import orjson
from starlette.exceptions import HTTPException
from starlette.responses import Response

from warren.core.concurrency.admission import RateExceeded
from warren.domain.errors import Error, InvalidRequest, Overloaded, StoreError, Unauthenticated, by_code
from warren.gateway.api.auth import CHALLENGE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from starlette.types import Send

    from warren.core.concurrency.admission import Rate

CONTENT_TYPE = "application/problem+json"
TYPE = "/docs#"
"""Where codes are explained: a row of the API page."""

ERROR_HEADER = "Warren-Error"
"""The code and the sentence of a problem, for the answer to HEAD, which has no body (RFC 9110, 9.3.2)."""
_SAFE_IN_HEADER = "".join(chr(each) for each in range(0x20, 0x7F) if chr(each) != "%")
_HEADER_CHARACTERS = 300

_log = logging.getLogger(__name__)
_UNEXPECTED = "the service failed: its log has more under this request's id"
_STORE = (
    "the service cannot write to its store now, perhaps because its disk is full: check whether this was done, and "
    "try again"
)


HTTP_CODES: dict[str, int] = {
    "method_not_allowed": 405,
    "not_acceptable": 406,
    "precondition_failed": 412,
    "unsupported_media_type": 415,
    "range_not_satisfiable": 416,
    "invalid_fields": 422,
    "upgrade_required": 426,
    "header_too_large": 431,
    "internal_error": 500,
}
"""Problems of HTTP itself, beyond `warren.domain.errors`."""

_BY_STATUS = {status: code for code, status in HTTP_CODES.items()} | {
    400: "invalid_request",
    401: "unauthenticated",
    403: "forbidden",
    404: "not_found",
    409: "conflict",
    413: "too_large",
    429: "quota_exceeded",
    501: "unsupported",
    503: "overloaded",
}


class InvalidFields(InvalidRequest):
    """Fields of a request are invalid; each is named.

    Raised where a request is read: a pydantic error from anywhere else is a bug of ours.
    """

    code = "invalid_fields"
    status = 422

    def __init__(self, message: str, errors: Sequence[Mapping[str, str]]) -> None:
        super().__init__(message)
        self.errors = errors


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """A failure as a client sees it."""

    code: str
    status: int
    detail: str
    retryable: bool = False
    headers: Mapping[str, str] = field(default_factory=dict)
    errors: Sequence[Mapping[str, str]] = ()
    """Invalid fields of the request: `where` and `message`."""

    def render(self, request_id: str) -> dict[str, Any]:
        """Build the body; a stream that fails half-way sends the same as its last event."""
        # A lone surrogate, from a file name for example, is not UTF-8.
        detail = self.detail.encode("utf-8", "replace").decode()
        body: dict[str, Any] = {
            "type": f"{TYPE}{self.code}",
            "title": self.code.replace("_", " ").capitalize(),
            "status": self.status,
            "detail": detail,
            "code": self.code,
            "request_id": request_id,
            "retryable": self.retryable,
            "error": {"code": self.code.upper(), "message": detail},
        }
        if self.errors:
            body["errors"] = list(self.errors)
        return body

    def respond(self, request_id: str) -> Response:
        """Build the answer."""
        # GET and HEAD have the same header. Other characters than ASCII are percent-encoded, line ends among them.
        sentence = quote(self.detail[:_HEADER_CHARACTERS], safe=_SAFE_IN_HEADER, errors="replace").strip()
        return Response(
            orjson.dumps(self.render(request_id)),
            status_code=self.status,
            headers={**self.headers, ERROR_HEADER: f"{self.code}: {sentence}"},
            media_type=CONTENT_TYPE,
        )


STOPPED = Problem(
    code=Overloaded.code,
    status=Overloaded.status,
    detail="the service is stopping, and this did not end in time: check its outcome",
)


def build_problem(exc: BaseException) -> Problem:
    """Translate an exception for a client."""
    exc = _unwrap(exc)
    if isinstance(exc, Error):
        return _of_error(exc)
    if isinstance(exc, HTTPException):
        return _of_http(exc)
    return Problem(code="internal_error", status=500, detail=_UNEXPECTED)


def respond(exc: BaseException, request_id: str) -> Response:
    """Build the answer to a request that ended in an exception; unexpected ones are logged."""
    problem = build_problem(exc)
    if problem.status == 500 or isinstance(_unwrap(exc), StoreError):
        log_failure(exc, request_id)
    return problem.respond(request_id)


def log_failure(exc: BaseException, request_id: str) -> None:
    """Log class and place of an exception, but not its message: it may quote a user's input."""
    exc = _unwrap(exc)
    frames = traceback.extract_tb(exc.__traceback__)[-8:]
    fields = {
        "request_id": request_id,
        "error": type(exc).__name__,
        "where": " < ".join(
            f"{os.path.basename(each.filename)}:{each.lineno} {each.name}" for each in reversed(frames)
        ),
    }
    if isinstance(exc, Error):
        # Our own sentences name fields and paths of ours, never a program's output.
        fields["message_text"] = str(exc)
    _log.error("request.failed", extra=fields)


def rate_headers(rate: Rate) -> dict[str, str]:
    """Build the RateLimit headers of every answer where a rate is set."""
    return {
        "RateLimit-Limit": str(rate.limit),
        "RateLimit-Remaining": str(rate.remaining),
        "RateLimit-Reset": str(math.ceil(rate.reset_s)),
        "RateLimit-Policy": f"{rate.limit};w={rate.window_s}",
    }


def retry_after(seconds: float | None) -> dict[str, str]:
    """Build Retry-After: whole seconds, rounded up, at least 1."""
    return {"Retry-After": str(max(1, math.ceil(seconds or 1)))}


async def close_websocket(exc: BaseException, send: Send) -> None:
    """Close a WebSocket because of an exception: the code is 4000 + the status, the reason is the sentence."""
    problem = build_problem(exc)
    # A close frame holds at most 123 bytes of reason.
    reason = problem.detail.encode("utf-8", "replace")[:123].decode("utf-8", "ignore")
    await send({"type": "websocket.close", "code": 4000 + problem.status, "reason": reason})


def _of_error(exc: Error) -> Problem:
    headers: dict[str, str] = {}
    if isinstance(exc, Unauthenticated):
        headers |= CHALLENGE
    if exc.status in {429, 503} and exc.retryable:
        headers |= retry_after(exc.retry_after_s)
    if isinstance(exc, RateExceeded):
        headers |= rate_headers(exc.rate)
    detail = _STORE if isinstance(exc, StoreError) else str(exc)
    errors = exc.errors if isinstance(exc, InvalidFields) else ()
    return Problem(
        code=exc.code, status=exc.status, detail=detail, retryable=exc.retryable, headers=headers, errors=errors
    )


def _of_http(exc: HTTPException) -> Problem:
    code = _BY_STATUS.get(exc.status_code) or ("invalid_request" if exc.status_code < 500 else "internal_error")
    known = by_code(code)
    return Problem(
        code=code,
        status=exc.status_code,
        detail=_HTTP_DETAILS.get(exc.status_code) or str(exc.detail),
        retryable=known is not None and known.retryable,
        headers=dict(exc.headers or {}) | (CHALLENGE if exc.status_code == 401 else {}),
    )


_HTTP_DETAILS = {
    404: "there is nothing at this address: `/docs` lists the API",
    405: "this address does not allow that method: `Allow` lists those that it does",
    426: "this address is a WebSocket: connect to it as one",
}


def _unwrap(exc: BaseException) -> BaseException:
    """Return the first exception of nested task groups; our own errors first."""
    while isinstance(exc, BaseExceptionGroup):
        exc = next((each for each in exc.exceptions if isinstance(each, Error)), exc.exceptions[0])
    return exc
