"""Onyx's files and sessions when the service is killed: none half there, none for longer than was said."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING

import httpx

from e2e.serving import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

    from e2e.serving import RunningService


def connect(service: RunningService) -> httpx.Client:
    client = service.client()
    client.base_url = f"http://127.0.0.1:{service.port}"
    return client


def on_disk(service: RunningService) -> int:
    folder = service.folder / "blobs" / "files"
    return len(os.listdir(folder)) if folder.exists() else 0


def test_what_was_stored_is_whole_after_a_kill_and_nothing_else_is_kept(serve: Callable[..., RunningService]) -> None:
    service = serve("bare").start()
    told: set[str] = set()
    content = b"x" * 300_000

    def work() -> None:
        with connect(service) as client:
            while True:
                try:
                    answer = client.post("/v1/files", files={"file": ("f", content)})
                    told.add(answer.json()["file_id"])
                except httpx.TransportError:
                    return

    for _ in range(2):
        before = len(told)
        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        wait_until(lambda before=before: len(told) >= before + 10)  # type: ignore[misc]
        service.kill()
        for thread in threads:
            thread.join()
        service.start()

    with connect(service) as client:
        listed = {file["file_id"] for file in client.get("/v1/files").json()["files"]}
        assert told <= listed
        for file_id in listed:
            assert client.get(f"/v1/files/{file_id}").content == content
        wait_until(lambda: on_disk(service) == len(listed))


def test_a_session_outlives_a_killed_service_and_ends_at_its_time(serve: Callable[..., RunningService]) -> None:
    service = serve().start()
    with connect(service) as client:
        long, short = (
            client.post("/v1/sessions", json={"ttl_seconds": seconds}).json()["session_id"] for seconds in (600, 3)
        )
        client.post(f"/v1/sessions/{long}/bash", json={"cmd": "echo kept > f"})
    service.restart()
    with connect(service) as client:
        found = client.post(f"/v1/sessions/{long}/bash", json={"cmd": "cat f"}).json()
        assert found["stdout"] == "kept\n"
        wait_until(lambda: client.post(f"/v1/sessions/{short}/bash", json={"cmd": "true"}).status_code == 404)
        wait_until(lambda: len(client.get("/api/v1/sandboxes").json()["items"]) == 1)
