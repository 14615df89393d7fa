"""A soak: mixed load on a real service for minutes, and whether anything grew: `make soak`.

Creates, runs, timeouts, crashes, uploads and clients that go away. Every answer must be one that the load explains.
Exit code 1 when one is not, or when descriptors, processes, memory or disk of the service grew.
"""

from __future__ import annotations

import argparse
import os
import random
import socket
import sys
import tempfile
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from benchmarks.served import served
from warren.core.images.catalog import Catalog
from warren.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from benchmarks.served import Served

WORKERS = 6
SETTLE_S = 5.0
GROWTH = {"descriptors": 24, "processes": 12, "memory_mb": 60.0, "mounts": 4, "disk_mb": 20.0}
"""What may be there more at the end than after the warm-up: caches, and sandboxes of the pool."""


@dataclass(slots=True)
class Tally:
    """What happened so far, and what should not have."""

    done: Counter[str] = field(default_factory=Counter)
    strange: list[str] = field(default_factory=list)

    def check(self, what: str, ok: bool, answer: object) -> None:
        """Count an answer, and keep one that the load does not explain."""
        self.done[what] += 1
        if not ok:
            self.strange.append(f"{what}: {answer!r}"[:600])


class Load:
    """One worker: does one thing after another, chosen by its own dice, and checks every answer."""

    def __init__(self, service: Served, tally: Tally, seed: int) -> None:
        self._service = service
        self._tally = tally
        self._dice = random.Random(seed)
        self._client = service.client()
        self._sandbox = ""

    def run_until(self, end: float) -> None:
        """Work until the clock says so, then tidy up."""
        acts: list[Callable[[], None]] = [self.count, self.count, self.fail, self.time_out, self.crash, self.upload]
        acts += [self.one_shot, self.leave, self.stop_and_resume, self.renew]
        self.renew()
        while time.monotonic() < end:
            try:
                self._dice.choice(acts)()
            except (RuntimeError, OSError) as error:
                self._tally.check("a request that failed", False, error)
                self._client = self._service.client()
                self.renew()
        self._client.ask("DELETE", self._path)

    def renew(self) -> None:
        """Delete the sandbox and make another."""
        if self._sandbox:
            status, _ = self._client.ask("DELETE", self._path)
            self._tally.check("delete", status == 204, status)
        self._sandbox = self._client.get("POST", "/api/v1/sandboxes", {"disk_mb": 64})["id"]
        self._exec("n = 0")
        self._tally.check("create", True, None)

    def count(self) -> None:
        """Use a variable of an earlier call."""
        answer = self._exec("n += 1\nprint(n > 0)")
        self._tally.check("run", answer["stdout"] == "True\n", answer)

    def fail(self) -> None:
        """Raise."""
        answer = self._exec("1 / 0")
        self._tally.check("exception", answer["cause"] == "error", answer)

    def time_out(self) -> None:
        """Run out of time; variables survive."""
        answer = self._exec("while True: pass", timeout_seconds=0.3)
        self._tally.check("timeout", answer["cause"] == "timeout" and answer["state"] != "lost", answer)

    def crash(self) -> None:
        """Die; variables survive."""
        answer = self._exec("import os; os._exit(3)")
        self._tally.check("crash", answer["cause"] == "killed" and answer["state"] != "lost", answer)

    def upload(self) -> None:
        """Write a file, read it back, delete it."""
        content = self._dice.randbytes(self._dice.choice((10, 100_000, 3_000_000)))
        put, _ = self._client.ask("PUT", f"{self._path}/files/data.bin", content)
        got = self._client.ask("GET", f"{self._path}/files/data.bin")
        gone, _ = self._client.ask("DELETE", f"{self._path}/files/data.bin")
        self._tally.check("upload", (put, got, gone) == (204, (200, content), 204), (put, got[0], gone))

    def one_shot(self) -> None:
        """Run in a fresh sandbox."""
        answer = self._client.get("POST", "/api/v1/run", {"code": "print(6 * 7)"})
        self._tally.check("one-shot", answer["stdout"] == "42\n", answer)

    def leave(self) -> None:
        """Ask for something long and go away; the sandbox must be free again for the next call."""
        body = b'{"code": "import time; time.sleep(600)", "language": "python"}'
        with socket.create_connection(("127.0.0.1", self._service.port)) as raw:
            head = f"POST {self._path}/exec HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {self._service.key}\r\n"
            raw.sendall(f"{head}Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
            time.sleep(0.05)
        began = time.monotonic()
        answer = self._exec("print('free')")
        free = answer["stdout"] == "free\n" and time.monotonic() - began < 30
        self._tally.check("client gone", free, answer)

    def stop_and_resume(self) -> None:
        """Stop the sandbox and use it again: the files are there, the variables are not."""
        self._client.ask("PUT", f"{self._path}/files/kept.txt", b"kept")
        stopped, _ = self._client.ask("POST", f"{self._path}/stop")
        answer = self._exec("n = 0\nprint(open('kept.txt').read())")
        self._tally.check("stop and resume", stopped == 200 and answer["stdout"] == "kept\n", (stopped, answer))

    @property
    def _path(self) -> str:
        return f"/api/v1/sandboxes/{self._sandbox}"

    def _exec(self, code: str, **more: object) -> dict[str, object]:
        answer: dict[str, object] = self._client.get(
            "POST", f"{self._path}/exec", {"code": code, "language": "python", **more}
        )
        return answer


def main(argv: Sequence[str]) -> int:
    """Warm up, remember what the service holds, load it, let it settle, and compare."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--image", default="data", help="what sandboxes are made from")
    parser.add_argument("--data", default=Settings.load().data_dir, help="where images are built and kept")
    options = parser.parse_args(argv)
    image = Catalog(options.data).build(options.image)
    tally = Tally()
    with tempfile.TemporaryDirectory(prefix="soak-", dir=options.data) as folder, served(image, folder) as service:
        _load(service, tally, min(1.0, options.minutes / 4))
        before = _held(service)
        _load(service, tally, options.minutes)
        after = _held(service)
        sandboxes = service.client().get("GET", "/api/v1/sandboxes")["total"]
        audit = service.client().get("GET", "/api/v1/audit?limit=1")["total"]
    print(
        f"{sum(tally.done.values())} things done: {dict(tally.done)}; {audit} audit records; {sandboxes} sandboxes left"
    )
    grown = [name for name, most in GROWTH.items() if after[name] - before[name] > most]
    for name in GROWTH:
        print(f"  {name}: {before[name]:g} -> {after[name]:g}{'  GREW' if name in grown else ''}")
    for line in tally.strange[:20]:
        print(f"  unexplained: {line}")
    return 1 if grown or tally.strange or sandboxes else 0


def _load(service: Served, tally: Tally, minutes: float) -> None:
    end = time.monotonic() + 60 * minutes
    workers = [Load(service, tally, seed) for seed in range(WORKERS)]
    threads = [threading.Thread(target=worker.run_until, args=(end,)) for worker in workers]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        threads[0].join(10)
        if sys.stderr.isatty():
            left = max(0.0, end - time.monotonic())
            print(f"\r{left:4.0f} s left, {sum(tally.done.values())} done ", end="", file=sys.stderr, flush=True)
        for thread in threads:
            thread.join(0.1)
    time.sleep(SETTLE_S)


def _held(service: Served) -> dict[str, float]:
    pid = service.process.pid
    with open(f"/proc/{pid}/statm", encoding="ascii") as file:
        resident = int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6
    with open("/proc/mounts", encoding="utf-8") as file:
        mounts = sum(service.data in line for line in file)
    return {
        "descriptors": len(os.listdir(f"/proc/{pid}/fd")),
        "processes": _count_processes(service.data),
        "memory_mb": resident,
        "mounts": mounts,
        "disk_mb": _disk_mb(os.path.join(service.data, "local")),
    }


def _count_processes(data: str) -> int:
    """Count the processes that name the data folder, and all that descend from them."""
    parents: dict[int, int] = {}
    ours: set[int] = set()
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/stat", encoding="utf-8", errors="replace") as file:
                parents[int(name)] = int(file.read().rpartition(")")[2].split()[1])
            with open(f"/proc/{name}/cmdline", "rb") as file:
                if data.encode() in file.read():
                    ours.add(int(name))
        except (FileNotFoundError, ProcessLookupError):
            continue
    while found := {pid for pid, parent in parents.items() if parent in ours} - ours:
        ours |= found
    return len(ours)


def _disk_mb(folder: str) -> float:
    """Add up what sandboxes take on disk; the database is not counted, as it is meant to grow."""
    total = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.lstat(os.path.join(parent, name)).st_blocks
            except FileNotFoundError:
                continue
    return total * 512 / 1e6


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
