"""The host goes down with everything on it: workspaces that are to be kept are there again, and nothing else is."""

from __future__ import annotations

import contextlib
import os
import signal
from functools import partial
from typing import TYPE_CHECKING

from e2e.serving import create, has_ended, read_events, run_code, wait_until
from e2e.story import left_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from e2e.serving import RunningService


def test_after_a_reboot_persistent_sandboxes_resume_with_their_files(serve: Callable[..., RunningService]) -> None:
    service = serve(pool_size=1).start()
    with service.client() as client:
        kept, stopped = create(client, session_key="agent-1"), create(client)
        lost = create(client, storage="ephemeral")
        run_code(client, kept, "x = 1\nopen('kept', 'w').write('yes')")
        run_code(client, stopped, "open('kept', 'w').write('too')")
        client.post(f"/sandboxes/{stopped}/stop").raise_for_status()
        run_code(client, lost, "open('kept', 'w').write('no')")
        running = run_code(client, kept, "import time\nprint('said', flush=True)\ntime.sleep(600)", background=True)
        followed = read_events(client, kept, running["execution_id"])
        assert [next(followed)[0], next(followed)[0]] == ["started", "stdout"]
    power_off(service)
    service.start()
    with service.client() as client:
        found = {one["id"]: one for one in client.get("/sandboxes").json()["items"]}
        ended = client.get(f"/sandboxes/{kept}/executions/{running['execution_id']}").json()
        resumed = client.post("/sandboxes", json={"session_key": "agent-1"})

        assert {key: one["status"] for key, one in found.items()} == {kept: "stopped", stopped: "stopped"}
        assert found[kept]["reason"]
        assert client.get(f"/sandboxes/{lost}").status_code == 404
        assert ended["cause"] == "lost"
        assert ended["hint"]
        assert (resumed.json()["id"], resumed.json()["status"]) == (kept, "running")
        assert run_code(client, kept, "print(open('kept').read(), 'x' in globals())")["stdout"] == "yes False\n"
        assert run_code(client, stopped, "print(open('kept').read())")["stdout"] == "too\n"
        assert run_code(client, create(client), "print(1)")["stdout"] == "1\n"
    service.check_books(pooled=2)


def test_the_bare_engine_comes_back_from_a_reboot_too(serve: Callable[..., RunningService]) -> None:
    service = serve("bare").start()
    with service.client() as client:
        kept = create(client)
        run_code(client, kept, "open('kept', 'w').write('yes')")
    power_off(service)
    service.start()
    with service.client() as client:
        assert client.get(f"/sandboxes/{kept}").json()["status"] == "stopped"
        assert run_code(client, kept, "print(open('kept').read())")["stdout"] == "yes\n"
    service.check_books()


def power_off(service: RunningService) -> None:
    """End every process of a service's folder at once, and have the host forget what only memory knows of it."""
    own = service.pid
    pids = [own, *_processes(service.folder)]
    if service.engine == "local":
        pids += [service.keeper_pid(), *service.zygote_pids(), *map(service.sandbox_pid, _running(service))]
    for number in (signal.SIGSTOP, signal.SIGKILL):
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
    service.wait()
    groups = service.folder / "local"
    wait_until(lambda: all(map(has_ended, pids)), "every process to be gone")
    if groups.exists():
        # Kernels forget mounts and control groups too: what is left of either is removed as a reboot would.
        for line in left_of(service.folder):
            if line.startswith("/sys/fs/cgroup"):
                _remove_group(line)
        (groups / "keeper.sock").unlink(missing_ok=True)


def _running(service: RunningService) -> list[str]:
    records = (service.folder / "local" / "sandboxes").glob("*/record.json")
    return [path.parent.name for path in records if '"running"' in path.read_text()]


def _processes(folder: Path) -> list[int]:
    """Find the processes that have this folder in their command line or in their environment."""
    found = []
    for pid in map(int, filter(str.isdigit, os.listdir("/proc"))):
        if pid == os.getpid():
            continue
        with (
            contextlib.suppress(OSError),
            open(f"/proc/{pid}/cmdline", "rb") as line,
            open(f"/proc/{pid}/environ", "rb") as env,
        ):
            if os.fsencode(folder) in line.read() + env.read():
                found.append(pid)
    return found


def _remove_group(path: str) -> None:
    for folder, _, _ in os.walk(path, topdown=False):
        wait_until(partial(_rmdir, folder), f"{folder} to be empty")


def _rmdir(path: str) -> bool:
    try:
        os.rmdir(path)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True
