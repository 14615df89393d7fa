"""`warren audit`: whether the audit record is whole, and a copy of it."""

from __future__ import annotations

import csv
import json
import re
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from warren.cli.options import AsJson, DataDir, choose_from, option
from warren.cli.terminal.tables import print_json
from warren.cli.units import parse_time

if TYPE_CHECKING:
    from warren.domain.records import AuditRow
    from warren.stores.base import Store

app = typer.Typer(help="Check and copy the audit record.", no_args_is_help=True, rich_markup_mode=None)

_encode = json.JSONEncoder(separators=(",", ":")).encode
_HEAD = re.compile(r"(\d{1,18}):([0-9a-f]{64})")
_COLUMNS = (
    "seq", "at", "action", "outcome", "tenant", "subject", "key_id", "request_id", "address", "sandbox_id",
    "execution_id", "details", "previous", "hash",
)  # fmt: skip
_FORMATS = ("jsonl", "csv")


def _parse_head(text: str) -> tuple[int, str]:
    match = _HEAD.fullmatch(text.strip())
    if match is None:
        raise typer.BadParameter(f"{text!r} is not SEQ:HASH, as `warren audit verify` prints it.")
    return int(match[1]), match[2]


@app.command(
    "verify",
    short_help="Check that nothing in the record was changed.",
    epilog='\b\nExamples:\n  warren audit verify\n  warren audit verify --known "$(cat head.txt)"',
)
def verify(
    *,
    known: Annotated[
        list[Any] | None,
        option(
            "SEQ:HASH", "Head that was printed earlier and must still be in the record; repeatable.", parser=_parse_head
        ),
    ] = None,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Check that no row of the record was deleted, edited or moved. Prints its head: the last number and hash.

    The exit code is 1 if one was, and the row is named. A head that is stored elsewhere proves later, with --known,
    that the record still begins with the same rows.
    """
    import anyio

    (cut, _), (seq, digest) = anyio.run(_verify, known or [], data_dir)
    if as_json:
        print_json({"rows": seq - cut, "pruned": cut, "head": f"{seq}:{digest}", "whole": True})
        return
    print(f"The audit record is whole: {seq - cut:,} rows.\nIts head is {seq}:{digest}")
    if cut:
        print(f"The {cut:,} rows before were cut off by the service, as records.audit_days says.")


@app.command(
    "export",
    short_help="Print the record.",
    epilog="\b\nExamples:\n  warren audit export > audit.jsonl\n"
    "  warren audit export --since 2026-11-01 --until 2026-12-01 --format csv > november.csv\n"
    "  warren audit export --since 24h",
)
def export(
    *,
    since: Annotated[
        float | None,
        option("TIME", "From this time: 2026-11-01, 2026-11-01T12:30, or an age such as 7d.", parser=parse_time),
    ] = None,
    until: Annotated[float | None, option("TIME", "Before this time.", parser=parse_time)] = None,
    form: Annotated[
        str,
        option("FORMAT", "jsonl (one JSON object per line) or csv.", "--format", autocompletion=choose_from(*_FORMATS)),
    ] = "jsonl",
    data_dir: DataDir = None,
) -> None:
    """Print the rows of a period, oldest first, with their hashes."""
    import anyio

    if form not in _FORMATS:
        raise typer.BadParameter(f"{form!r} is not a format: choose one of {', '.join(_FORMATS)}.")
    anyio.run(_export, since, until, form, data_dir)


async def _verify(known: list[tuple[int, str]], data_dir: str | None) -> tuple[tuple[int, str], tuple[int, str]]:
    from warren.cli.service.offline_store import opened_store
    from warren.cli.terminal.progress import spinner
    from warren.domain.records import AuditQuery

    async with opened_store(data_dir) as (store, _):
        newest = await store.audit(AuditQuery(limit=1))
        with spinner(f"checking {newest.total:,} rows"):
            head = await store.verify()
            cut = await store.audit_start()
            for seq, digest in known:
                await _check_known(store, seq, digest, cut)
        return cut, head


async def _check_known(store: Store, seq: int, digest: str, cut: tuple[int, str]) -> None:
    from warren.domain.errors import Conflict
    from warren.domain.records import FIRST_HASH

    if (seq, digest) in {(0, FIRST_HASH), cut}:
        return  # Every record began empty; of a cut-off part, the last hash is kept.
    if seq < cut[0]:
        raise Conflict(f"row {seq} of the audit record was cut off with all before row {cut[0] + 1}: keep a later head")
    async for row in store.chain(after=seq - 1):
        if row.seq == seq and row.hash == digest:
            return
        break
    raise Conflict(f"row {seq} of the audit record is not the one that was known: the record was replaced or cut")


async def _export(since: float | None, until: float | None, form: str, data_dir: str | None) -> None:
    from warren.cli.service.offline_store import build_caller, opened_store
    from warren.domain.errors import StoreError

    async with opened_store(data_dir) as (_, audit):
        try:
            await audit.record(build_caller(), "audit.export", since=since, until=until)
        except StoreError as exc:
            # A damaged record is the one that has to be looked at.
            print(f"warren: that this copy was taken is not in the record: {exc}", file=sys.stderr)
        writer = csv.DictWriter(sys.stdout, _COLUMNS)
        if form == "csv":
            writer.writeheader()
        async for row in audit.export(since=since, until=until):
            values = _as_json(row)
            if form == "csv":
                writer.writerow({**values, "details": _encode(values["details"])})
            else:
                print(_encode(values))


def _as_json(row: AuditRow) -> dict[str, Any]:
    values = {"seq": row.seq, "previous": row.previous, "hash": row.hash}
    return {name: values[name] if name in values else getattr(row.entry, name) for name in _COLUMNS}
