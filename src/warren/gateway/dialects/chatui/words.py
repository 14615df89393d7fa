"""ChatUI's error messages: exactly these sentences, because clients match them."""

from __future__ import annotations

import base64
import binascii
from typing import TYPE_CHECKING, Literal

from warren.core.concurrency.admission import RateExceeded
from warren.domain.errors import Overloaded, QuotaExceeded, Unauthenticated
from warren.gateway.api.bodies import BodyTooLarge
from warren.gateway.api.problems import build_problem, retry_after
from warren.gateway.dialects import details
from warren.gateway.dialects.chatui.translate import RELEASE
from warren.gateway.dialects.details import Refused, reply

if TYPE_CHECKING:
    from starlette.responses import Response

    from warren.gateway.api.operations import Call
    from warren.settings import Settings

HEADERS = (
    (b"x-code-execution-version", RELEASE.encode()),
    (b"x-code-execution-version-tag", b"v" + RELEASE.encode()),
)
"""Headers of every answer."""
SHARED = frozenset({"/livez", "/readyz", "/healthz", "/health", "/healthz/details", "/health/details", "/metrics"})
RATE = "Rate limit exceeded for this principal. Please slow down."
CREATE_RATE = "Container creation rate limit exceeded for this principal."
TOO_MANY_OWN = "You have reached the maximum number of active container sessions."
TOO_MANY = "The gateway is at its maximum number of active container sessions."
BUSY = "Too many concurrent executions. Please try again later."
_CHALLENGE = {"WWW-Authenticate": "Bearer"}


def respond(exc: BaseException, request_id: str) -> Response:
    """Build the answer to a request that ended in an exception."""
    if isinstance(exc, Unauthenticated):
        said = "Missing Bearer token" if exc.is_missing else "Invalid or expired credentials"
        return reply(401, said, _CHALLENGE)
    if isinstance(exc, BodyTooLarge):
        return reply(413, f"Request body too large. Maximum size is {exc.limit} bytes.")
    if isinstance(exc, RateExceeded):
        return reply(429, RATE, build_problem(exc).headers)
    answer = details.respond(exc, request_id)
    if answer.status_code == 500 and not isinstance(exc, Refused):
        return reply(500, "Internal server error")
    return answer


def retry(error: QuotaExceeded | Overloaded) -> dict[str, str]:
    """Build Retry-After."""
    return retry_after(error.retry_after_s)


def decode_file(name: str, text: str) -> bytes:
    """Decode an asset of a deck or document; the head of a data URL is skipped. Raises Refused."""
    content = text.partition(",")[2] if text.startswith("data:") else text
    try:
        return base64.b64decode(content, validate=True)
    except (binascii.Error, ValueError):
        raise Refused(400, f"input file '{name}' has invalid base64 content") from None


def body_limit(settings: Settings) -> int:
    """Return the size limit of a body."""
    return settings.dialects.chatui.body_bytes


async def check_rate(call: Call, what: Literal["executions", "creates"], sentence: str) -> None:
    """Count an operation that is limited for each window. Raises Refused."""
    settings = call.settings.dialects.chatui
    most, window_s = getattr(settings, f"{what}_per_minute"), getattr(settings, f"{what}_window_s")
    if not most:
        return
    owner = call.caller.principal.owner
    bucket = f"chatui.{what}\0{owner.tenant}\0{owner.subject}"
    taken = await call.service.store.take(bucket, capacity=most, per_s=most / window_s)
    if not taken.allowed:
        raise Refused(429, sentence, retry_after(taken.retry_after_s))
