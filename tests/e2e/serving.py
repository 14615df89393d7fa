"""A real `warren serve` process on a data folder of its own, which is killed, started again, and cleared away."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import re
import signal
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

import anyio
import httpx

from e2e import forked
from e2e.forked import Forked
from e2e.story import left_of
from warren.engines.bare.engine import BareEngine
from warren.engines.local.engine import LocalEngine
from warren.stores.sqlite import SqliteStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from warren.domain.records import Sandbox

PROGRAM = (sys.executable, "-c", "from warren.cli.main import main; main()")
DEADLINE_S = 60.0


class NotStarted(AssertionError):
    """The service ended before it said where it is."""

    def __init__(self, code: int, said: str) -> None:
        super().__init__(f"the service ended with {code}: {said}")
        self.code = code
        self.said = said


class RunningService:
    """One data folder, and the service process on it, if there is one now."""

    def __init__(self, folder: Path, images: str, engine: str = "local", **settings: object) -> None:
        self.folder = folder
        self.log_path = folder.with_suffix(".log")
        self.engine = engine
        self.key = ""
        self.port = 0
        self.process: Forked | subprocess.Popen[str] | None = None
        self.program: tuple[str, ...] = PROGRAM
        folder.mkdir(exist_ok=True)
        os.symlink(os.path.join(images, "images"), folder / "images")
        defaults = {"engine": engine, "allow_bare": "true", "image": "python", "pool_size": 0}
        self.env = {"PATH": os.defpath, "HOME": str(folder), "WARREN_DATA_DIR": str(folder)}
        self.choose(**(defaults | settings))

    def choose(self, **settings: object) -> None:
        """Choose settings of the next process."""
        self.env |= {f"WARREN_{name.upper()}": str(value) for name, value in settings.items()}

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def start(self, *arguments: str) -> RunningService:
        """Start a process and wait until it says where it is. Raises NotStarted."""
        log_start = self.launch(*arguments)
        said = self._read_announcement()
        if "Try: " not in said:
            code = self.wait()
            raise NotStarted(code, (self.log_path).read_text()[log_start:])
        self.port = int(re.search(r"http://[^ ]*:(\d+)", said)[1])  # type: ignore[index]  # it is there, or the test fails
        secret = re.search(r"wrn_[\w-]+", said)
        self.key = secret[0] if secret else self.key
        return self

    def launch(self, *arguments: str) -> int:
        """Start a process and wait for nothing; returns where its log begins."""
        assert self.process is None
        command = ["serve", "--port", "0", *arguments]
        with open(self.log_path, "ab") as log:
            if self.program == PROGRAM:
                self.process = Forked(command, env=self.env, cwd="/", stderr=log, text=True, start_new_session=True)
            else:
                self.process = subprocess.Popen(
                    [*self.program, *command],
                    env=self.env,
                    cwd="/",
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    text=True,
                    start_new_session=True,
                )
            return log.tell()

    def restart(self, *arguments: str) -> RunningService:
        """Kill the process as a power failure would, and start another on the same folder."""
        self.kill()
        return self.start(*arguments)

    def kill(self) -> None:
        """End the process with SIGKILL."""
        self.signal(signal.SIGKILL)
        self.wait()

    def stop(self) -> int:
        """End the process as an operator does, and return its exit code."""
        self.signal(signal.SIGTERM)
        return self.wait()

    def signal(self, number: int) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def wait(self) -> int:
        assert self.process is not None
        code = self.process.wait(DEADLINE_S)
        assert self.process.stdout is not None
        self.process.stdout.close()
        self.process = None
        return code

    def client(self, **options: Any) -> httpx.Client:
        """Return a client with the first key, and connections of its own."""
        return httpx.Client(
            base_url=f"http://127.0.0.1:{self.port}/api/v1",
            headers={"Authorization": f"Bearer {self.key}"} if self.key else {},
            timeout=DEADLINE_S,
            trust_env=False,
            **options,
        )

    def probe(self, path: str) -> httpx.Response:
        """Ask a health address, on a connection of its own."""
        return httpx.get(f"http://127.0.0.1:{self.port}{path}", timeout=DEADLINE_S, trust_env=False)

    def probe_details(self) -> dict[str, Any]:
        """Ask how everything is, as an administrator."""
        with self.client() as client:
            found: dict[str, Any] = client.get(f"http://127.0.0.1:{self.port}/healthz/details").json()
        return found

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run another command on the same folder."""
        return forked.run([*arguments], env=self.env, cwd="/", text=True, timeout=DEADLINE_S)

    def log(self) -> list[dict[str, Any]]:
        """Read what the processes on this folder have logged."""
        lines = self.log_path.read_text().splitlines(keepends=True)
        return [json.loads(line) for line in lines if line.startswith("{") and line.endswith("\n")]

    def rows(self) -> dict[str, Sandbox]:
        """Read the sandboxes that the store has, whether or not a service runs."""
        return anyio.run(self._rows)

    def handles(self) -> set[str]:
        """Name the sandboxes that the engine has."""
        return anyio.run(self._handles)

    def check_books(self, *, pooled: int = 0) -> None:
        """Fail unless store, engine, quotas and the audit chain agree."""
        rows, handles = self.rows(), self.handles()
        assert rows.keys() <= handles, "the store has sandboxes that the engine has not"
        assert len(handles - rows.keys()) <= pooled, "the engine has unknown sandboxes"
        verified = self.run("audit", "verify")
        assert verified.returncode == 0, verified.stderr

    def sandbox_pid(self, sandbox_id: str) -> int:
        """Return the first process of a sandbox of the local engine, as the host counts; waits until there is one."""
        record = self.folder / "local" / "sandboxes" / sandbox_id / "record.json"
        pid: int = wait_until(lambda: int(json.loads(record.read_text())["pid"]), "a sandbox to have a process")
        return pid

    def keeper_pid(self) -> int:
        return anyio.run(self._keeper_pid)

    def zygote_pids(self) -> list[int]:
        records = (self.folder / "local" / "zygotes").glob("*/zygote.json")
        return [int(json.loads(path.read_text())["pid"]) for path in records]

    def clear(self) -> None:
        """End everything that this folder has, and fail if anything is left of it."""
        if self.process is not None:
            self.kill()
        if (self.folder / self.engine).exists():
            anyio.run(self._clear)
            assert left_of(self.folder) == []

    def _engine(self) -> LocalEngine | BareEngine:
        return LocalEngine(str(self.folder)) if self.engine == "local" else BareEngine(str(self.folder), allow=True)

    async def _handles(self) -> set[str]:
        engine = self._engine()
        try:
            return {handle.sandbox_id async for handle in engine.handles()}
        finally:
            await engine.close()

    async def _rows(self) -> dict[str, Sandbox]:
        from warren.domain.records import SandboxQuery

        store = SqliteStore(str(self.folder))
        await store.open()
        try:
            return {row.id: row for row in (await store.list(SandboxQuery(limit=1000))).items}
        finally:
            await store.close()

    async def _keeper_pid(self) -> int:
        engine = LocalEngine(str(self.folder))
        await engine.open()
        try:
            assert engine._client is not None
            return int(engine._client.hello["pid"])
        finally:
            await engine.close()

    async def _clear(self) -> None:
        engine = self._engine()
        await engine.open()
        try:
            async for handle in engine.handles():
                await engine.destroy(handle)
            if isinstance(engine, LocalEngine):
                await engine.retire()
        finally:
            await engine.close()

    def _read_announcement(self) -> str:
        lines: queue.Queue[str] = queue.Queue()
        assert self.process is not None
        stdout = self.process.stdout
        assert stdout is not None

        def read() -> None:
            with contextlib.suppress(ValueError):
                for line in stdout:
                    lines.put(line)
            lines.put("")

        threading.Thread(target=read, daemon=True).start()
        said = ""
        while "Try: " not in said:
            line = lines.get(timeout=DEADLINE_S)
            if not line:
                break
            said += line
        return said


def wait_until(what: Callable[[], Any], why: str = "") -> Any:
    """Ask again and again until the answer is true, and return it; fail when that takes too long."""
    until = time.monotonic() + DEADLINE_S
    while not (answer := what()):
        assert time.monotonic() < until, f"waited for {why or what} in vain"
        time.sleep(0.01)
    return answer


def has_ended(pid: int) -> bool:
    """Whether a process has ended. Init may take a minute to reap an orphan, so a zombie has."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
            return file.read().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def run_code(client: httpx.Client, sandbox_id: str, code: str, **more: Any) -> dict[str, Any]:
    """Run Python in the kernel of a sandbox; the call must succeed."""
    answer = client.post(f"/sandboxes/{sandbox_id}/exec", json={"code": code, **more})
    assert answer.status_code in {200, 202}, answer.text
    found: dict[str, Any] = answer.json()
    return found


def create(client: httpx.Client, **fields: Any) -> str:
    """Make a sandbox; the call must succeed."""
    answer = client.post("/sandboxes", json=fields)
    assert answer.status_code == 201, answer.text
    return str(answer.json()["id"])


def read_events(client: httpx.Client, sandbox_id: str, execution_id: str, after: int = 0) -> Iterator[tuple[str, Any]]:
    """Yield the events of an execution, replayed and live, as names and values."""
    path = f"/sandboxes/{sandbox_id}/executions/{execution_id}/events"
    with client.stream("GET", path, params={"after": after}) as answer:
        assert answer.status_code == 200, answer.read()
        name = ""
        for line in answer.iter_lines():
            if line.startswith("event: "):
                name = line.removeprefix("event: ")
            elif line.startswith("data: "):
                yield name, json.loads(line.removeprefix("data: "))


def is_problem(answer: httpx.Response) -> bool:
    """Whether an answer is a failure that says in a sentence what is wrong."""
    body = answer.json()
    return answer.headers["content-type"] == "application/problem+json" and len(str(body["detail"]).split()) > 2
