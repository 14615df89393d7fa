"""The disk of the data folder is full: calls are refused with a sentence, nothing breaks, and room heals it."""

from __future__ import annotations

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


KEEP = "import os\nf = open('kept', 'w')\nf.write('yes')\nf.flush()\nos.fsync(f.fileno())\nf.close()"
LARGE = "import os\nf = open('l', 'wb')\nf.write(os.urandom(30_000_000))\nf.flush()\nos.fsync(f.fileno())\nf.close()"


class SmallDisk:
    """A file system that can be filled to the last byte."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._filler = folder / "filler"

    def fill(self) -> None:
        size = 1 << 20
        with open(self._filler, "ab", buffering=0) as file:
            while size:
                try:
                    file.write(bytes(size))
                except OSError:
                    size //= 2

    def make_room(self) -> None:
        self._filler.unlink()

    @property
    def free(self) -> int:
        return shutil.disk_usage(self.folder).free


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    if ROOTLESS:
        pytest.skip("a small disk is mounted for this, which only root may do")
    folder = tmp_path / "small"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=96m", "small", folder], check=True)
    yield SmallDisk(folder)
    subprocess.run(["umount", folder], check=True)


@pytest.fixture
def service(disk: SmallDisk, serve: Callable[..., RunningService]) -> RunningService:
    return serve(folder=disk.folder / "data").start()


@pytest.fixture
def client(service: RunningService) -> Iterator[httpx.Client]:
    with service.client() as client:
        yield client


def _attempts(client: httpx.Client, sandbox: str, disk: SmallDisk) -> dict[str, httpx.Response]:
    """Try everything that writes, each on a disk that was full a moment ago.

    What is refused gives back what it had taken, which may be room enough for the next: that is then done, and kept.
    """
    attempts: dict[str, Callable[[], httpx.Response]] = {
        "create": lambda: client.post("/sandboxes", json={}),
        "ephemeral": lambda: client.post("/sandboxes", json={"storage": "ephemeral"}),
        "run": lambda: client.post("/run", json={"code": "print(1)"}),
        "exec": lambda: client.post(f"/sandboxes/{sandbox}/exec", json={"code": "done = True"}),
        "upload": lambda: client.put(f"/sandboxes/{sandbox}/files/up", content=b"x" * 1_000_000),
        "read": lambda: client.get(f"/sandboxes/{sandbox}/files/kept"),
    }
    answers = {}
    for name, attempt in attempts.items():
        disk.fill()
        answers[name] = attempt()
    return answers


def _is_refused(client: httpx.Client, sandbox: str) -> bool:
    """Whether calls are refused, which begins a little after the disk is full: its last pages are still the store's."""
    answer = client.post(f"/sandboxes/{sandbox}/exec", json={"code": f"print('{'x' * 50_000}')"})
    assert answer.status_code == 200 or (answer.status_code == 503 and is_problem(answer)), answer.text
    return answer.status_code == 503


def test_a_full_disk_refuses_what_cannot_be_recorded_and_loses_nothing(
    service: RunningService, client: httpx.Client, disk: SmallDisk
) -> None:
    sandbox = create(client)
    run_code(client, sandbox, f"x = 41\n{KEEP}")
    disk.fill()
    wait_until(lambda: _is_refused(client, sandbox), "the disk to be full for the store, too")
    answers = _attempts(client, sandbox, disk)
    disk.make_room()
    wait_until(lambda: service.probe("/readyz").status_code == 200, "the service to be ready again")

    refused = [answer for answer in answers.values() if not answer.is_success]
    assert refused, "a full disk"
    assert all(is_problem(answer) for answer in refused), [answer.text for answer in refused]
    assert all(answer.status_code >= 500 and answer.json()["retryable"] for answer in refused)
    assert all("disk is full" in answer.json()["detail"] for answer in refused), [answer.text for answer in refused]
    looked = run_code(client, sandbox, "print(x + 1, open('kept').read(), 'done' in globals())")
    assert looked["stdout"] in {"42 yes True\n", "42 yes False\n"}
    # Not the other way round: the disk may be full only when its result is to be written.
    assert "True" in looked["stdout"] or not answers["exec"].is_success
    assert client.get(f"/sandboxes/{sandbox}/files/kept").content == b"yes"
    assert run_code(client, create(client), "print(1)")["stdout"] == "1\n"
    made = [answers[name].json()["id"] for name in ("create", "ephemeral") if answers[name].is_success]
    wait_until(
        lambda: client.get("/sandboxes").json()["total"] == 2 + len(made),
        "the rest of those that were refused to be removed",
    )
    assert all(run_code(client, one, "print(1)")["stdout"] == "1\n" for one in made)
    service.check_books()


def test_the_service_is_killed_on_a_full_disk_and_starts_again_with_room(
    service: RunningService, client: httpx.Client, disk: SmallDisk
) -> None:
    sandbox = create(client)
    run_code(client, sandbox, f"x = 41\n{KEEP}")
    disk.fill()
    wait_until(lambda: _is_refused(client, sandbox), "the disk to be full for the store, too")
    service.kill()
    disk.make_room()
    service.start()
    with service.client() as later:
        listed = later.get(f"/sandboxes/{sandbox}/executions", params={"limit": 100}).json()["items"]

        assert run_code(later, sandbox, "print(x + 1, open('kept').read())")["stdout"] == "42 yes\n"
        assert all(one["status"] == "finished" for one in listed)
        assert all(one["cause"] == "exited" for one in listed), "the agent kept what could not be written"
    service.check_books()


def test_deleting_a_sandbox_makes_room(service: RunningService, client: httpx.Client, disk: SmallDisk) -> None:
    sandbox, large = create(client), create(client)
    run_code(client, large, LARGE)
    disk.fill()
    wait_until(lambda: _is_refused(client, sandbox), "the disk to be full for the store, too")
    wait_until(lambda: client.delete(f"/sandboxes/{large}").status_code in {204, 404}, "the sandbox to be deleted")
    wait_until(lambda: disk.free > 20_000_000, "room")
    wait_until(lambda: service.probe("/readyz").status_code == 200, "the service to be ready again")

    assert run_code(client, sandbox, "print(1)")["stdout"] == "1\n"
    service.check_books()


def test_a_workspace_that_could_not_be_written_is_whole_after_a_stop(
    service: RunningService, client: httpx.Client, disk: SmallDisk
) -> None:
    """Its own disk has room, but the host's has not: what it wrote meanwhile may be lost, what it had is not."""
    sandbox = create(client)
    run_code(client, sandbox, KEEP)
    disk.fill()
    client.post(f"/sandboxes/{sandbox}/exec", json={"code": LARGE})
    disk.make_room()
    wait_until(lambda: service.probe("/readyz").status_code == 200, "the service to be ready again")
    wait_until(lambda: client.post(f"/sandboxes/{sandbox}/stop").status_code == 200, "the sandbox to stop")
    resumed = run_code(client, sandbox, "print(open('kept').read(), open('again', 'w').write('yes'))")

    assert resumed["stdout"] == "yes 3\n"
    service.check_books()


def test_on_a_full_disk_the_service_does_not_start_and_says_why(
    disk: SmallDisk, serve: Callable[..., RunningService]
) -> None:
    service = serve("bare", folder=disk.folder / "data")
    disk.fill()
    refused = service.run("serve", "--port", "0")
    disk.make_room()

    assert refused.returncode in {1, 2}
    assert refused.stderr.count("\n") == 1, refused.stderr
    assert os.fspath(disk.folder) in refused.stderr
    service.start()
    assert service.probe("/readyz").status_code == 200
