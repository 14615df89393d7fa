"""How failures look in the OpenAPI document."""

from __future__ import annotations

from typing import Any

from warren.domain.errors import BY_CODE
from warren.gateway.api.problems import CONTENT_TYPE, ERROR_HEADER, HTTP_CODES, TYPE

MEANINGS = {
    400: "The request is not valid.",
    401: "The request has no valid key.",
    403: "The key does not allow this.",
    404: "It does not exist, or belongs to another owner.",
    405: "The address does not allow that method; `Allow` lists those that it does.",
    406: "No answer here has a type that `Accept` names.",
    409: "The current state does not allow this, or something is busy.",
    412: "A condition of the request does not hold.",
    413: "The request, or its result, is too large.",
    414: "The address is too long.",
    415: "The type of the body is not accepted here.",
    416: "The file has no such part.",
    422: "Fields are invalid; `errors` names each.",
    426: "The address is a WebSocket, and the request is not an upgrade.",
    431: "The headers are too many or too long.",
    429: "A quota or rate is used up; `Retry-After` says when to try again.",
    500: "The service failed.",
    501: "The engine cannot do this.",
    502: "The sandbox is gone, or broke its protocol and was stopped; or no server inside it answers.",
    503: "The service is at its limit, or cannot write to its store; try again.",
}


def explain_codes() -> dict[str, tuple[int, str]]:
    """Return the status and the meaning of each code that a problem can have."""
    ours = {code: (error.status, error.__doc__ or "") for code, error in BY_CODE.items()}
    of_http = {code: (status, MEANINGS[status]) for code, status in HTTP_CODES.items() if code not in ours}
    return dict(sorted((ours | of_http).items(), key=lambda item: item[1][0]))


DETAIL: dict[str, Any] = {
    "type": "object",
    "description": "What went wrong, as clients of this API know it.",
    "properties": {
        "detail": {
            "description": "A sentence; or of a request with wrong fields, each of them.",
            "anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "object"}}, {"type": "object"}],
        }
    },
    "required": ["detail"],
}


def describe_detail(status: int, headers: dict[str, Any]) -> dict[str, Any]:
    """Build the response of one status in a dialect."""
    content = {"application/json": {"schema": {"$ref": "#/components/schemas/Detail"}}}
    described = describe_problem(status, headers)
    del described["headers"][ERROR_HEADER]
    return {**described, "content": content}


def describe_problem(status: int, headers: dict[str, Any]) -> dict[str, Any]:
    """Build the response of one status."""
    headers = {**headers, ERROR_HEADER: {"description": "`code: detail`, for HEAD.", "schema": {"type": "string"}}}
    if status in {429, 503}:
        headers["Retry-After"] = {"description": "Seconds to wait.", "schema": {"type": "string"}}
    if status == 401:
        headers["WWW-Authenticate"] = {"description": "How to authenticate.", "schema": {"type": "string"}}
    return {
        "description": MEANINGS[status],
        "headers": headers,
        "content": {CONTENT_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}},
    }


def problem_schema() -> dict[str, Any]:
    """Build the schema of problem details."""
    text = {"type": "string"}
    named = {
        "type": "object",
        "properties": {"where": text, "message": text},
        "required": ["where", "message"],
    }
    return {
        "type": "object",
        "description": "What went wrong (RFC 9457).",
        "properties": {
            "type": {**text, "description": "Where the code is explained."},
            "title": text,
            "status": {"type": "integer"},
            "detail": {**text, "description": "A sentence for people."},
            "code": {**text, "description": "Stable; for programs."},
            "request_id": text,
            "retryable": {"type": "boolean"},
            "error": {
                "type": "object",
                "properties": {"code": text, "message": text},
                "required": ["code", "message"],
            },
            "errors": {"type": "array", "items": named, "description": "Fields that are not what they must be."},
        },
        "required": ["type", "title", "status", "detail", "code", "request_id", "retryable", "error"],
        "example": {
            "type": f"{TYPE}not_found",
            "title": "Not found",
            "status": 404,
            "detail": "there is no such sandbox",
            "code": "not_found",
            "request_id": "req_0123456789abcdef01234567",
            "retryable": False,
            "error": {"code": "NOT_FOUND", "message": "there is no such sandbox"},
        },
    }
