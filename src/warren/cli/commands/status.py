"""`warren status`: whether a service runs, where, and how it is; and `warren version`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from warren.cli.errors import EXIT_FAILED, EXIT_NO_SERVICE, check_platform
from warren.cli.options import AsJson, Target
from warren.cli.terminal.tables import print_json, print_table
from warren.cli.units import render_age, render_size

if TYPE_CHECKING:
    from warren.cli.service.data_lock import Holder

EXAMPLES = """\b
Examples:
  warren status
  warren status --json
  warren status --url https://sandboxes.example.com
"""

VERSION_EXAMPLES = "\b\nExample:\n  warren version"


def status(*, target: Target, as_json: AsJson = False) -> int:
    """Show whether a service runs, where, and its state.

    The exit code is 0 if the service is healthy, 1 if it is not (the reasons are printed), and 3 if none runs.
    """
    if target.url is not None:
        return _show({"running": True, "address": target.url, **_ask(target.url)}, as_json)
    check_platform()
    from warren.cli.service.data_lock import COMMAND, find_holder

    folder = target.load_settings().data_dir
    holder = find_holder(folder)
    found: dict[str, Any] = {"running": False, "data_dir": folder}
    if holder is not None and holder.kind == COMMAND:
        found["command"] = holder.pid
    elif holder is not None:
        found |= {"running": True, "pid": holder.pid, "address": holder.address, "log": holder.log or None}
        found |= _ask_here(folder, holder)
    return _show(found, as_json)


def _ask_here(data_dir: str, holder: Holder) -> dict[str, Any]:
    from warren.cli.service.connection import is_served
    from warren.cli.service.listening import socket_path
    from warren.engines.unix_sockets import short_path
    from warren.sdk.failures import ServiceUnreachable

    why = "starting or stopping" if holder.address else "starting"
    silent = {"status": "degraded", "reasons": [f"{why}: it does not answer yet"]}
    if not is_served(data_dir):
        return silent
    try:
        with short_path(socket_path(data_dir)) as path:
            return _ask(f"unix:{path}")
    except ServiceUnreachable:
        # It was there a moment ago.
        return silent


def _ask(url: str) -> dict[str, Any]:
    """Ask for the details; a key without that right gets the public health."""
    import anyio

    from warren import AsyncClient
    from warren.domain.errors import Forbidden, Unauthenticated

    async def ask() -> dict[str, Any]:
        async with AsyncClient(url, timeout=10, retries=0) as client:
            try:
                return await client.health_details()
            except (Forbidden, Unauthenticated):
                health = await client.health()
                return {"status": health.status, "version": health.version, "reasons": list(health.reasons)}

    return anyio.run(ask)


def _show(found: dict[str, Any], as_json: bool) -> int:
    if as_json:
        print_json(found)
    elif not found["running"]:
        print(f"No service runs on {found['data_dir']}.")
        if "command" in found:
            print(f"Process {found['command']}, another command, uses it now.")
    else:
        print_table(None, ("", ""), _rows(found))
    if not found["running"]:
        return EXIT_NO_SERVICE
    return 0 if found.get("status") == "healthy" else EXIT_FAILED


def _rows(found: dict[str, Any]) -> list[tuple[str, str]]:
    rows = [("service", f"{found.get('status', 'unknown')}"), ("address", found["address"])]
    rows += [("reason", reason) for reason in found.get("reasons", ())]
    words = {"version": "version", "pid": "process", "data_dir": "data folder", "log": "log file"}
    rows += [(word, str(found[name])) for name, word in words.items() if found.get(name)]
    if "uptime_seconds" in found:
        rows.append(("runs for", render_age(found["uptime_seconds"])))
    if "engine" in found:
        layers = found["engine"]["layers"]
        rows.append(
            ("engine", f"{found['engine']['name']}" + (f", {len(layers)} layers of isolation" if layers else ""))
        )
    if "sandboxes" in found:
        held = found["sandboxes"]
        memory = render_size(held["memory_bytes"])
        rows.append(
            ("sandboxes", f"{held['sandboxes']}, of which {held['active']} run, with {memory} of memory at most")
        )
    if found.get("pool"):
        rows.append(("kept ready", ", ".join(f"{size} {name}" for name, size in found["pool"].items())))
    if "admission" in found:
        busy = {name: gate["under_way"] for name, gate in found["admission"].items()}
        rows.append(("under way", ", ".join(f"{number} {name}" for name, number in busy.items())))
    return rows


def version() -> None:
    """Print the version."""
    import warren

    print(f"warren {warren.__version__}")
