"""What the routes of the native API share: the ids in their paths, and the headers that several take."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from warren.domain.errors import InvalidRequest
from warren.gateway.api.operations import SANDBOX_ID
from warren.gateway.dialects.native.schemas import EXECUTION_ID, KERNEL_NAME

if TYPE_CHECKING:
    from warren.gateway.api.operations import Call

_IDEMPOTENCY_KEY = re.compile(r"[\x21-\x7e]{1,200}")

IDEMPOTENCY = {
    "Idempotency-Key": {
        "description": "The same request with the same key is done once; its first outcome is answered again.",
        "schema": {"type": "string", "pattern": "^[\\x21-\\x7e]{1,200}$"},
    }
}


def sandbox_id(call: Call) -> str:
    """Return the sandbox of the path. Raises NotFound for what cannot be one."""
    return call.id("sandbox_id", SANDBOX_ID, "sandbox")


def execution_id(call: Call) -> str:
    """Return the execution of the path. Raises NotFound for what cannot be one."""
    return call.id("execution_id", EXECUTION_ID, "execution")


def kernel_name(call: Call) -> str:
    """Return the kernel of the path. Raises NotFound for what cannot be one."""
    return call.id("kernel", KERNEL_NAME, "kernel")


def idempotency_key(call: Call) -> str | None:
    """Return the key under which a request is done once. Raises InvalidRequest."""
    key = call.header(b"idempotency-key")
    if key is not None and _IDEMPOTENCY_KEY.fullmatch(key) is None:
        raise InvalidRequest("Idempotency-Key must be 1 to 200 printable ASCII characters without spaces")
    return key
