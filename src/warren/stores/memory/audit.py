"""The audit chain in memory. The secret ends with the process, so nothing outside it can forge a row."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

from warren.domain.errors import Conflict
from warren.domain.records import AuditRow, canonical_entry, chain_hash
from warren.stores.memory.tables import OpenTables, page

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from warren.domain.records import AuditEntry, AuditQuery, Page
    from warren.stores.memory.tables import Tables


class AuditRecords(OpenTables):
    """The methods of the store that are about the audit chain."""

    async def append(self, *entries: AuditEntry) -> None:
        tables = self._tables
        for given in entries:
            # WHY: what is hashed is what JSON makes of it, as in every store: 1 is 1.0, and keys are text.
            entry = replace(given, at=float(given.at), details=json.loads(json.dumps(dict(given.details))))
            seq, previous = _last(tables)
            hashed = chain_hash(tables.audit_secret, seq + 1, previous, canonical_entry(entry))
            tables.audit.append(AuditRow(seq + 1, entry, previous, hashed))

    async def audit(self, query: AuditQuery) -> Page[AuditRow]:
        names = ("tenant", "subject", "action", "sandbox_id", "execution_id", "request_id")
        wanted = {name: value for name in names if (value := getattr(query, name)) is not None}
        found = [
            row
            for row in self._tables.audit
            if all(getattr(row.entry, name) == value for name, value in wanted.items())
            and (query.since is None or row.entry.at >= query.since)
            and (query.until is None or row.entry.at < query.until)
        ]
        return page(found[::-1], query.offset, query.limit)

    async def chain(self, after: int = 0) -> AsyncIterator[AuditRow]:
        for row in [row for row in self._tables.audit if row.seq > after]:
            yield row

    async def verify(self) -> tuple[int, str]:
        tables = self._tables
        seq, previous = tables.audit_start
        for row in tables.audit:
            seq += 1
            hashed = chain_hash(tables.audit_secret, seq, previous, canonical_entry(row.entry))
            if (row.seq, row.previous, row.hash) != (seq, previous, hashed):
                raise Conflict(f"row {seq} of the audit record was edited")
            previous = hashed
        return seq, previous

    async def audit_start(self) -> tuple[int, str]:
        return self._tables.audit_start

    async def prune_audit(self, before: float) -> tuple[int, int, str] | None:
        tables = self._tables
        young = next((at for at, row in enumerate(tables.audit) if row.entry.at >= before), len(tables.audit))
        cut = min(young, len(tables.audit) - 1)
        if cut <= 0:
            return None
        last, first = tables.audit[cut - 1], tables.audit_start[0] + 1
        tables.audit_start = last.seq, last.hash
        del tables.audit[:cut]
        return first, last.seq, last.hash


def _last(tables: Tables) -> tuple[int, str]:
    return (tables.audit[-1].seq, tables.audit[-1].hash) if tables.audit else tables.audit_start
