"""`warren ps` on the service of this machine, and the table that it prints."""

from __future__ import annotations

import json
import os
import socket
from datetime import UTC, datetime

from warren.cli.terminal.tables import print_table
from warren.cli.units import render_age, render_size, shorten_id
from warren.sdk import environment

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

LIMIT = 100
_TIMEOUT_S = 10.0
_HARMLESS = frozenset(
    f"WARREN_{name}" for name in ("DATA_DIR", "ENGINE", "ALLOW_BARE", "IMAGE", "OPTIONAL_LAYERS", "API_KEY")
)
"""Variables that decide nothing here; with any other, the settings are read first, and may refuse it."""


def ps(asked: Mapping[str, Any]) -> int | None:
    """List the sandboxes of the service of this machine; None, with nothing done, where typer has to."""
    variables = environment.list_variables()
    if asked["args"] or not _HARMLESS.issuperset(variables) or os.path.lexists("warren.toml"):
        return None
    folder = variables.get(environment.DATA_DIR) or environment.default_data_dir()
    found = fetch_sandboxes(os.path.join(folder, "warren.sock"))
    if found is None:
        return None
    if asked.get("quiet"):
        print("".join(f"{info['id']}\n" for info in found), end="", flush=True)
    else:
        print_sandboxes(found, shows_owner="everybody" in asked)
    return 0


def print_sandboxes(found: Sequence[Mapping[str, Any]], *, shows_owner: bool) -> None:
    """Print a row for each sandbox, given as the API writes it; owners too where there are several."""
    if not found:
        print("There are no sandboxes. `warren sandbox create` makes one.")
        return
    shows_owner |= len({(info["owner"]["tenant"], info["owner"]["subject"]) for info in found}) > 1
    columns = ["sandbox", "status", "image", "age", "idle", "memory", "cpus", "runs", "labels"]
    rows = []
    for info in found:
        row = [
            shorten_id(info["id"]),
            info["status"] if info["reason"] is None else f"{info['status']}: {info['reason']}",
            info["image"],
            _render_since(info["created_at"]),
            _render_since(info["last_activity_at"]),
            render_size(info["memory_mb"] << 20),
            f"{info['cpu']:g}",
            str(info["command_count"]),
            # On one line: the next must not look like another sandbox.
            " ".join(f"{name}={value}".replace("\n", "\\n") for name, value in info["metadata"].items()),
        ]
        rows.append([*row, f"{info['owner']['tenant']}/{info['owner']['subject']}"] if shows_owner else row)
    print_table(None, [*columns, "owner"] if shows_owner else columns, rows)


def _render_since(time: str) -> str:
    return render_age((datetime.now(UTC) - datetime.fromisoformat(time)).total_seconds())


def fetch_sandboxes(path: str) -> list[Any] | None:
    """Ask a service for its newest sandboxes; None where it is not there, refuses, or has more than are shown."""
    from http.client import HTTPException, HTTPResponse

    from warren.engines.unix_sockets import short_path

    asked = (
        f"GET /api/v1/sandboxes?limit={LIMIT}&everybody=true HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    )
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as service:
            service.settimeout(_TIMEOUT_S)
            with short_path(path) as short:
                service.connect(short)
            service.sendall(asked.encode())
            response = HTTPResponse(service)
            response.begin()
            page = json.loads(response.read())
            return page["items"] if response.status == 200 and page["total"] <= LIMIT else None
    except (OSError, HTTPException, ValueError, LookupError):
        return None
