"""What passed through a port is in the record, also when the service ends before the minute does."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import httpx

from api.inside import Inside
from e2e.serving import DEADLINE_S, create

if TYPE_CHECKING:
    from collections.abc import Callable

    from e2e.serving import RunningService


def test_what_passed_is_written_down_at_the_latest_when_the_service_ends(serve: Callable[..., RunningService]) -> None:
    service = serve("bare").start()
    with service.client() as client:
        sandbox = create(client)
        inside = Inside(client, sandbox)
        for _ in range(5):
            inside.ask("/echo")
        client.get(f"/sandboxes/{sandbox}/ports/9/")
        body = {"kind": "port", "port": inside.port}
        made = client.post(f"/sandboxes/{sandbox}/links", json=body).json()
        httpx.get(f"http://127.0.0.1:{service.port}{made['url']}echo", timeout=DEADLINE_S, trust_env=False)
    assert service.stop() == 0

    exported = service.run("audit", "export").stdout
    rows = [row for row in map(json.loads, exported.splitlines()) if row["action"] == "port.traffic"]
    traffic = {(row["details"]["port"], row["details"].get("link")): row["details"] for row in rows}

    assert traffic[inside.port, None]["requests"] == 5
    assert traffic[inside.port, None]["statuses"] == {"200": 5}
    assert traffic[inside.port, None]["bytes_out"] > 500
    assert traffic[inside.port, made["id"]]["requests"] == 1
    assert traffic[9, None]["statuses"] == {"unreachable": 1}
    assert made["url"].split("/")[2] not in exported
    service.check_books()
