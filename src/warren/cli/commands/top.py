"""`warren top`: what running sandboxes use, now and again."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from warren.cli.errors import EXIT_INTERRUPTED
from warren.cli.options import AsJson, Everybody, Target, duration
from warren.cli.service.connection import run_with_client
from warren.cli.terminal.tables import as_plain, build_table, print_json
from warren.cli.units import render_age, render_size, shorten_id

if TYPE_CHECKING:
    from warren import AsyncClient, AsyncSandbox, Usage
    from warren.cli.terminal.signals import Signals

EXAMPLES = """\b
Examples:
  warren top
  warren top --once
  warren top --interval 10s
  warren top --json | jq '.[0].memory_bytes'
"""

_SAMPLE_S = 0.5
_AT_ONCE = 8


@dataclass(frozen=True, slots=True)
class _Row:
    """One sandbox, measured."""

    sandbox: AsyncSandbox
    usage: Usage
    at: float
    cpu_percent: float | None = None
    """Of one processor, since it was measured before."""


def top(
    *,
    once: Annotated[bool, typer.Option("--once", help="Print once and exit; the default in a pipe.")] = False,
    interval: Annotated[float, duration("Time between measurements.")] = "2s",  # type: ignore[assignment]  # typer parses it
    everybody: Everybody = False,
    target: Target,
    as_json: AsJson = False,
) -> int:
    """Show the processors, memory, processes and disk that running sandboxes use; the largest users come first.

    On a terminal, the table is redrawn until Ctrl-C.
    """
    import anyio
    from rich.console import Console

    shows_everybody = everybody or not target.is_remote

    async def work(client: AsyncClient, _signals: Signals) -> int:
        rows = await _measure(client, everybody=shows_everybody)
        if not (once or as_json) and sys.stdout.isatty():
            await _redraw(client, rows, interval, everybody=shows_everybody)
        if rows:
            # The use of processors is known only after a second measurement.
            await anyio.sleep(_SAMPLE_S)
            rows = await _measure(client, rows, everybody=shows_everybody)
        if as_json:
            print_json([_as_json(row) for row in rows])
        else:
            Console().print(_draw(rows))
        return 0

    code = run_with_client(target, work)
    # Ctrl-C is how one leaves.
    return 0 if code == EXIT_INTERRUPTED and not once else code


async def _redraw(client: AsyncClient, rows: list[_Row], interval_s: float, *, everybody: bool) -> NoReturn:
    import anyio
    from rich.live import Live

    with Live(_draw(rows), screen=True, auto_refresh=False) as live:
        wait_s = _SAMPLE_S
        while True:
            await anyio.sleep(wait_s)
            rows, wait_s = await _measure(client, rows, everybody=everybody), interval_s
            live.update(_draw(rows), refresh=True)


async def _measure(client: AsyncClient, before: list[_Row] | None = None, *, everybody: bool) -> list[_Row]:
    """Measure every running sandbox, a few at a time; one that ends meanwhile is left out."""
    import anyio

    from warren.domain.errors import Error

    known = {row.sandbox.id: row for row in before or ()}
    rows: list[_Row] = []
    room = anyio.CapacityLimiter(_AT_ONCE)

    async def measure(sandbox: AsyncSandbox) -> None:
        async with room:
            try:
                usage = await sandbox.usage()
            except Error:
                return
        at = time.monotonic()
        rows.append(_Row(sandbox, usage, at, _share(known.get(sandbox.id), usage, at)))

    async with anyio.create_task_group() as tasks:
        async for sandbox in client.sandboxes.all(status="running", everybody=everybody):
            tasks.start_soon(measure, sandbox)
    return sorted(rows, key=lambda row: (-(row.cpu_percent or 0), -(row.usage.memory_bytes or 0), row.sandbox.id))


def _share(before: _Row | None, usage: Usage, at: float) -> float | None:
    if before is None or usage.cpu_us is None or before.usage.cpu_us is None or at <= before.at:
        return None
    return max(0.0, (usage.cpu_us - before.usage.cpu_us) / (at - before.at) / 10_000)


def _as_json(row: _Row) -> dict[str, Any]:
    share, info = None if row.cpu_percent is None else round(row.cpu_percent, 1), row.sandbox.info
    head = {"id": info.id, "image": info.image, "cpu_percent": share, "memory_mb": info.memory_mb}
    return {**head, **as_plain(row.usage)}


def _draw(rows: list[_Row]) -> Any:
    from datetime import UTC, datetime

    now = datetime.now(UTC)
    columns = ("sandbox", "image", "cpu", "memory", "of", "peak", "procs", "disk", "idle")
    cells = [
        (
            shorten_id(row.sandbox.id),
            row.sandbox.info.image,
            "" if row.cpu_percent is None else f"{row.cpu_percent:.0f} %",
            _size(row.usage.memory_bytes),
            render_size(row.sandbox.info.memory_mb << 20),
            _size(row.usage.memory_peak_bytes),
            "" if row.usage.pids is None else str(row.usage.pids),
            _size(row.usage.disk_bytes),
            render_age((now - row.sandbox.info.last_activity_at).total_seconds()),
        )
        for row in rows
    ]
    memory = render_size(sum(row.usage.memory_bytes or 0 for row in rows))
    shares = sum(row.cpu_percent or 0 for row in rows)
    return build_table(f"{len(rows)} running, {shares:.0f} % of a processor, {memory}", columns, cells)


def _size(value: int | None) -> str:
    return "" if value is None else render_size(value)
