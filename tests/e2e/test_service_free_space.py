"""The data disk, a real ext4, fills up: refused in time, said in /readyz, and nothing acknowledged is lost."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

from e2e.conftest import ROOTLESS
from e2e.serving import create, is_problem, run_code, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    import httpx

    from e2e.serving import RunningService

MIB = 1 << 20


class LoopDisk:
    """A mounted ext4, and a file that takes its space."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._filler = folder / "filler"

    def fill(self, leave: int = 0) -> None:
        """Take all space but so many bytes."""
        with open(self._filler, "ab", buffering=0) as file, contextlib.suppress(OSError):
            while (free := shutil.disk_usage(self.folder).free - leave) > 0:
                file.write(bytes(min(free, MIB)))
            os.fsync(file.fileno())

    def make_room(self) -> None:
        """Give it back."""
        self._filler.unlink()


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[LoopDisk]:
    if ROOTLESS:
        pytest.skip("a small disk is mounted for this, which only root may do")
    if not os.path.exists("/dev/loop-control"):
        pytest.skip("this host has no loop devices")
    image, folder = tmp_path / "disk.ext4", tmp_path / "small"
    folder.mkdir()
    with open(image, "wb") as file:
        file.truncate(192 * MIB)
    subprocess.run(["mkfs.ext4", "-q", "-F", "-m", "0", image], check=True)
    subprocess.run(["mount", "-o", "loop", image, folder], check=True)
    yield LoopDisk(folder)
    subprocess.run(["umount", folder], check=True)


@pytest.fixture
def start(disk: LoopDisk, serve: Callable[..., RunningService]) -> Callable[..., RunningService]:
    def begin(**settings: object) -> RunningService:
        return serve(folder=disk.folder / "data", **settings).start()

    return begin


def test_below_the_watermark_only_what_writes_is_refused(disk: LoopDisk, start: Callable[..., RunningService]) -> None:
    service = start(disk_free_bytes="40M")
    with service.client() as client:
        stopped, running = create(client), create(client)
        assert client.put(f"/sandboxes/{running}/files/kept", content=b"yes").is_success
        assert client.post(f"/sandboxes/{stopped}/stop").status_code == 200
        disk.fill(leave=30 * MIB)
        wait_until(lambda: service.probe("/readyz").status_code == 503, "the service to notice")
        ready = service.probe("/readyz").json()
        refused = {
            "create": client.post("/sandboxes", json={}),
            "run": client.post("/run", json={"code": "print(1)"}),
            "start": client.post(f"/sandboxes/{stopped}/start"),
            "upload": client.put(f"/sandboxes/{running}/files/up", content=b"x"),
        }
        # Not by a program that is measured: what runs goes on, what is there is read, and deletes make room.
        looked = run_code(client, running, "print(open('kept').read())")
        read, deleted = client.get(f"/sandboxes/{running}/files/kept"), client.delete(f"/sandboxes/{stopped}")
        disk.make_room()
        wait_until(lambda: service.probe("/readyz").status_code == 200, "the service to be ready again")
        again = client.put(f"/sandboxes/{running}/files/up", content=b"x")

    assert ready["status"] == "degraded"
    assert any("disk: almost full" in reason for reason in ready["reasons"])
    assert any("delete sandboxes or files" in caveat for caveat in ready["caveats"])
    assert {name: answer.status_code for name, answer in refused.items()} == dict.fromkeys(refused, 507)
    assert all(is_problem(answer) and "disk is full" in answer.json()["detail"] for answer in refused.values())
    assert (looked["stdout"], read.content, deleted.status_code) == ("yes\n", b"yes", 204)
    assert again.is_success


def _upload_until_refused(client: httpx.Client, sandbox: str) -> list[str]:
    """Upload files until one is refused; return the names of those that were acknowledged."""
    kept: list[str] = []
    for number in range(400):
        answer = client.put(f"/sandboxes/{sandbox}/files/f{number}", content=str(number).encode() * 100_000)
        if not answer.is_success:
            assert answer.status_code in {503, 507}, answer.text
            break
        kept.append(f"f{number}")
    return kept


def test_a_file_that_was_acknowledged_is_there_after_the_disk_filled_up(
    disk: LoopDisk, start: Callable[..., RunningService]
) -> None:
    """Without a watermark, so that the disk is full while uploads are answered."""
    service = start(disk_free_bytes="0", disk_free_inodes="0")
    with service.client() as client:
        sandbox = create(client)
        disk.fill(leave=12 * MIB)
        kept = _upload_until_refused(client, sandbox)
        disk.make_room()
        wait_until(lambda: service.probe("/readyz").status_code == 200, "the service to be ready again")
        wait_until(lambda: client.post(f"/sandboxes/{sandbox}/stop").status_code == 200, "the sandbox to stop")
        found = {name: client.get(f"/sandboxes/{sandbox}/files/{name}").content for name in kept}

    assert kept
    assert [name for name in kept if found[name] != name[1:].encode() * 100_000] == []
