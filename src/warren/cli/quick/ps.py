"""`warren ps` on this machine: from its service, or from the store where none runs; and the table that it prints.

The store is read without opening the engine. A running sandbox is checked by a connection to its agent. Where a record
is not what a restarted service would leave (a sandbox has died, a step was interrupted), the whole command line takes
over: its embedded service corrects the record first.
"""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime

from warren.cli.terminal.tables import print_table
from warren.cli.units import render_age, render_size, shorten_id
from warren.sdk import environment

TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket
    from collections.abc import Mapping, Sequence
    from typing import Any

LIMIT = 100
_TIMEOUT_S = 10.0
_STORE_WAIT_S = 0.5
_COLUMNS = (
    "id", "tenant", "subject", "status", "reason", "engine", "image", "memory_bytes", "limits", "metadata",
    "created_at", "active_at", "executions",
)  # fmt: skip
_NEWEST = f"SELECT {', '.join(_COLUMNS)} FROM sandboxes ORDER BY created_at DESC, seq DESC LIMIT ?"  # noqa: S608 - our own names
_HARMLESS = frozenset(
    f"WARREN_{name}" for name in ("DATA_DIR", "ENGINE", "ALLOW_BARE", "IMAGE", "OPTIONAL_LAYERS", "API_KEY")
)
"""Variables that decide nothing here; with any other, the settings are read first, and may refuse it."""


def ps(asked: Mapping[str, Any]) -> int | None:
    """List the sandboxes of this machine; None, with nothing done, where typer has to."""
    variables = environment.list_variables()
    if asked["args"] or not _HARMLESS.issuperset(variables) or os.path.lexists("warren.toml"):
        return None
    folder = variables.get(environment.DATA_DIR) or environment.default_data_dir()
    found = list_sandboxes(folder)
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


def list_sandboxes(folder: str, *, limit: int = LIMIT, is_exact: bool = True) -> list[Any] | None:
    """Return the newest sandboxes of a data folder, as the API writes them, from its service or else from its store.

    None where the service refuses or the store cannot be read; with `is_exact`, also where there are more than `limit`,
    or a record of the store needs a service to correct it.
    """
    from warren.engines.unix_sockets import connect_socket

    # With one more than are wanted, it is known that there are more.
    most = limit + is_exact
    try:
        service = connect_socket(os.path.join(folder, "warren.sock"))
    except (FileNotFoundError, NotADirectoryError, ConnectionRefusedError):
        found = _read_store(folder, most)
        if is_exact and found and not all(_is_true(folder, info) for info in found):
            return None
    except OSError:
        return None
    else:
        with service:
            found = _ask(service, most)
    return found if found is None or len(found) <= limit else None


def _ask(service: socket.socket, limit: int) -> list[Any] | None:
    from http.client import HTTPException, HTTPResponse

    asked = (
        f"GET /api/v1/sandboxes?limit={limit}&everybody=true HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    )
    try:
        service.settimeout(_TIMEOUT_S)
        service.sendall(asked.encode())
        response = HTTPResponse(service)
        response.begin()
        page = json.loads(response.read())
        return page["items"] if response.status == 200 else None
    except (OSError, HTTPException, ValueError, LookupError):
        return None


def _read_store(folder: str, limit: int) -> list[Any] | None:
    import sqlite3
    from contextlib import closing
    from urllib.parse import quote

    path = os.path.abspath(os.path.join(folder, "warren.db"))
    if not os.path.lexists(path):
        # Without a file that says otherwise, the folder was never used.
        return None if os.path.lexists(os.path.join(folder, "audit.key")) else []
    try:
        with closing(sqlite3.connect(f"file:{quote(path)}?mode=ro", uri=True, timeout=_STORE_WAIT_S)) as store:
            (version,) = store.execute("SELECT max(version) FROM schema_version").fetchone()
            rows = store.execute(_NEWEST, (limit,)).fetchall() if version == _count_migrations() else None
        return None if rows is None else [_load(*row) for row in rows]
    except (sqlite3.Error, OSError, ValueError, LookupError, TypeError):
        return None


def _count_migrations() -> int:
    import warren.stores

    names = os.listdir(os.path.join(warren.stores.__path__[0], "sqlite", "migrations"))
    return sum(name.endswith(".sql") for name in names)


def _load(*row: Any) -> dict[str, Any]:
    """Build what the API says of a sandbox, as far as it is printed. Raises TypeError for text that is no Unicode."""
    info = dict(zip(_COLUMNS, row, strict=True))
    if any(isinstance(value, bytes) for value in row):
        raise TypeError("text stored as bytes")
    return {
        **info,
        "owner": {"tenant": info["tenant"], "subject": info["subject"]},
        "memory_mb": info["memory_bytes"] >> 20,
        "cpu": json.loads(info["limits"])["cpus"],
        "metadata": json.loads(info["metadata"]),
        "created_at": datetime.fromtimestamp(info["created_at"], UTC).isoformat(),
        "last_activity_at": datetime.fromtimestamp(info["active_at"], UTC).isoformat(),
        "command_count": info["executions"],
    }


def _is_true(folder: str, info: Mapping[str, Any]) -> bool:
    """Whether a restarted service would find a sandbox as its record says."""
    from warren.engines.unix_sockets import connect_socket

    place = os.path.join(folder, "local", "sandboxes", info["id"])
    if info["engine"] != "local":
        return False
    if info["status"] != "running":
        return info["status"] == "stopped" and os.path.isdir(place)
    try:
        connect_socket(os.path.join(place, "agent.sock")).close()
    except OSError:
        return False
    return True
