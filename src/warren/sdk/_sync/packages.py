# Made from src/warren/sdk/_async/packages.py by `make sdk`: change that instead.
"""Installation of packages, with the installer's output."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from warren.sdk.events import QUIET_S, EventParser
from warren.sdk.failures import ServiceUnreachable, build_stream_error, explain_unread
from warren.sdk.request import api
from warren.sdk.values import build
from warren.sdk.values_packages import InstalledPackages

if TYPE_CHECKING:
    from collections.abc import Callable

    from warren.sdk._sync.connection import Connection


def install(
    connection: Connection, sandbox_id: str, body: dict[str, Any], on_output: Callable[[str], object] | None
) -> InstalledPackages:
    """Install packages, and call `on_output` with the installer's output. Raises Error."""
    parts = ("sandboxes", sandbox_id, "packages")
    if on_output is None:
        request = api("POST", *parts, json=body, read_timeout_s=None)
        return build(InstalledPackages, connection.ask_json(request))
    headers = {"Accept": "text/event-stream"}
    request = api("POST", *parts, json=body, headers=headers, read_timeout_s=QUIET_S)
    parser = EventParser()
    with connection.open(request) as answer:
        for data in answer.iter_bytes():
            for raw in parser.feed(data):
                try:
                    said = json.loads(raw.data)
                    text = said["data"] if raw.name in {"stdout", "stderr"} else ""
                except (ValueError, KeyError, TypeError) as error:
                    raise explain_unread("an event") from error
                if text:
                    on_output(text)
                if raw.name == "error":
                    raise build_stream_error(said)
                if raw.name == "result":
                    return build(InstalledPackages, said)
    raise ServiceUnreachable("the stream of events ended before the installation did: ask again")
