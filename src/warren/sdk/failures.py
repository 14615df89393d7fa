"""Errors of the client: the service's own by their code, and failures to reach the service."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import httpx

from warren.domain.errors import (
    Conflict,
    Error,
    Forbidden,
    InvalidRequest,
    NotFound,
    Overloaded,
    QuotaExceeded,
    RequestError,
    TooLarge,
    Unauthenticated,
    by_code,
)
from warren.sdk.environment import KEY

if TYPE_CHECKING:
    from collections.abc import Mapping

    from websockets.exceptions import ConnectionClosed

    from warren.sdk.address import Address
    from warren.sdk.results import Result

_BY_STATUS: dict[int, type[Error]] = {
    400: InvalidRequest,
    401: Unauthenticated,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    413: TooLarge,
    422: InvalidRequest,
    429: QuotaExceeded,
    503: Overloaded,
}
"""For codes that this version does not know, and for answers of proxies."""
_LONGEST_WAIT_S = 86_400.0
_ERROR_HEADER = "warren-error"
"""The code and the sentence of a problem: the answer to a HEAD has no body."""


class ServiceUnreachable(Error):
    """No service answers at the address, or the connection broke before it did."""

    code = "service_unreachable"
    status = 503
    retryable = True


class NotUnderstood(Error):
    """The answer is not one of Warren, or of another version of it."""

    code = "not_understood"
    status = 502


class ExecutionFailed(Exception):
    """Raised by `Result.check`: the program failed, and `result` has everything about it."""

    def __init__(self, result: Result) -> None:
        from warren.sdk.show import show_plain

        super().__init__(show_plain(result.explain()))
        self.result = result


def build_error(status: int, headers: Mapping[str, str], body: bytes, *, has_key: bool = True) -> Error:
    """Build the error that an answer means."""
    problem = _read_problem(body) or _read_header(headers.get(_ERROR_HEADER, ""))
    code = problem.get("code")
    cls = by_code(code) if isinstance(code, str) else None
    if cls is None:
        cls = _BY_STATUS.get(status) or (RequestError if 400 <= status < 500 else Error)
    is_ours = headers.get("content-type", "").startswith("application/problem+json")
    error = cls(_say(status, problem, has_key=has_key, is_ours=is_ours))
    error.code = code if isinstance(code, str) else getattr(cls, "code", "error")
    error.status = status
    error.request_id = str(problem.get("request_id") or headers.get("x-request-id", ""))
    error.retryable = bool(problem.get("retryable", cls.retryable))
    error.retry_after_s = parse_wait(headers.get("retry-after"))
    return error


def build_stream_error(problem: Mapping[str, Any]) -> Error:
    """Build the error with which a stream of events ends."""
    status = problem.get("status")
    return build_error(status if isinstance(status, int) else 500, {}, json.dumps(problem).encode())


def explain_unread(what: str) -> NotUnderstood:
    """Build the error for an answer that this version cannot read."""
    return NotUnderstood(f"this client cannot read what the service answers ({what}): use the client of its version")


def parse_wait(text: str | None) -> float | None:
    """Read Retry-After, in seconds; a date, which the service never sends, is None."""
    if text is None or not text.isascii() or not text.isdigit():
        return None
    return min(float(text), _LONGEST_WAIT_S)


def explain(error: httpx.TransportError, address: Address, *, was_sending: bool = False) -> ServiceUnreachable:
    """Explain in one sentence why there is no answer, and what to do."""
    why = str(error) or type(error).__name__
    if isinstance(error, httpx.ConnectError | httpx.ConnectTimeout):
        return ServiceUnreachable(f"no service answers at {address} ({why}): {_find_remedy(why)}")
    if isinstance(error, httpx.TimeoutException):
        return ServiceUnreachable(
            f"the service at {address} did not answer in time: try again, or give a longer timeout="
        )
    if was_sending:
        # A refusal in the middle of a large body can be lost with the connection.
        what = "see whether it is too large, or the sandbox full or gone, and try again"
        return ServiceUnreachable(f"the connection to the service at {address} broke during the upload ({why}): {what}")
    return ServiceUnreachable(
        f"the connection to the service at {address} broke ({why}): see what was done, and try again"
    )


def _find_remedy(why: str) -> str:
    # httpx passes on only the text of a TLS error.
    if "CERTIFICATE_VERIFY_FAILED" in why:
        return "if you trust the issuer of its certificate, name the issuer's in SSL_CERT_FILE"
    if "WRONG_VERSION_NUMBER" in why:
        return "what listens there has no TLS, so write http:// instead of https://"
    return "start one with `warren serve`, or set WARREN_URL"


def explain_moved(location: str, address: Address) -> NotUnderstood:
    """Build the error for a redirect: clients do not follow one with their keys."""
    return NotUnderstood(f"{address} sends this client on to {location[:200]!r}: if you trust that, give it as url=")


def explain_refused(error: Exception, address: Address, *, has_key: bool) -> Error:
    """Build the error of a WebSocket that was not opened: the service's answer, or that there was none."""
    response = getattr(error, "response", None)
    if response is None:
        return explain(httpx.ConnectError(str(error)), address)
    headers = {name.lower(): value for name, value in response.headers.raw_items()}
    return build_error(response.status_code, headers, response.body or b"", has_key=has_key)


def explain_closed(closed: ConnectionClosed) -> Error:
    """Build the error of a closed WebSocket: its code is 4000 + a problem's status, its reason the sentence."""
    code, reason = (closed.rcvd.code, closed.rcvd.reason) if closed.rcvd is not None else (1006, "")
    if not 4400 <= code < 4600:
        return ServiceUnreachable(f"the connection was closed ({reason or code}): open it again")
    return build_stream_error({"status": code - 4000, "detail": reason})


def read_frame(message: bytes | str) -> Mapping[str, Any]:
    """Read a text frame; one that is not JSON is empty."""
    try:
        said = json.loads(message) if isinstance(message, str) else None
    except ValueError:
        return {}
    return said if isinstance(said, dict) else {}


def _read_problem(body: bytes) -> Mapping[str, Any]:
    try:
        found = json.loads(body)
    except ValueError:
        return {}
    return found if isinstance(found, dict) and isinstance(found.get("detail"), str) else {}


def _read_header(text: str) -> Mapping[str, Any]:
    code, _, sentence = text.partition(": ")
    return {"code": code, "detail": unquote(sentence)} if sentence else {}


def _say(status: int, problem: Mapping[str, Any], *, has_key: bool, is_ours: bool) -> str:
    if status == 401 and not has_key:
        return f"the service asks for a key: set {KEY} or give api_key=; `warren keys create` makes one"
    if problem:
        return str(problem["detail"])
    if is_ours:
        return f"the service refused it with {status}"
    return f"the answer was {status}, and not one of Warren's: see whether a proxy stands before the service"
