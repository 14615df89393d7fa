"""The audit log: entries, and the hash chain over them."""

from __future__ import annotations

import hashlib
import hmac
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntry:
    """An entry, before it has a place in the chain."""

    at: float
    action: str
    """A noun and a verb: `sandbox.create`, `execution.finish`, `file.write`, `auth.refuse`, `key.create`."""
    outcome: str
    """`ok`, or the code of the error."""
    tenant: str = ""
    subject: str = ""
    key_id: str = ""
    request_id: str = ""
    address: str = ""
    sandbox_id: str = ""
    execution_id: str = ""
    details: Mapping[str, object] = field(default_factory=dict)
    """JSON; bounded by the writer."""


@dataclass(frozen=True, slots=True)
class AuditRow:
    """An entry in its place: `hash` is over the entry, its number and the hash before."""

    seq: int
    entry: AuditEntry
    previous: str
    hash: str


FIRST_HASH = "0" * 64
"""The `previous` of the first row."""


def canonical_entry(entry: AuditEntry) -> bytes:
    """Build the bytes to hash: the same for equal entries, in every version."""
    values = {name: getattr(entry, name) for name in AuditEntry.__slots__}
    # Added to 0.0, because a database knows only one zero.
    return json.dumps(
        {**values, "at": 0.0 + entry.at, "details": dict(entry.details)},
        sort_keys=True,
        separators=(",", ":"),
        ensure_ascii=True,
    ).encode()


def chain_hash(secret: bytes, seq: int, previous: str, entry: bytes) -> str:
    """Return the hash of a row. Keyed, so that write access to the database alone cannot forge a chain."""
    return hmac.new(secret, b"%d:%s:" % (seq, previous.encode()) + entry, hashlib.sha256).hexdigest()
