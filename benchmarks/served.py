"""A real `warren serve` process for the benchmarks and the soak, and clients that keep their connection."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import queue
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from warren.domain.values import Image

START_S = 60.0
STOP_S = 60.0
CLEAR_S = 120.0
_LOG_BYTES = 2000


class Client:
    """One connection, kept alive."""

    def __init__(self, port: int, key: str) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
        self._headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}

    def ask(self, method: str, path: str, body: object = None) -> tuple[int, bytes]:
        """Send a request and return status and body."""
        content = None if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        self._connection.request(method, path, content, self._headers)
        answer = self._connection.getresponse()
        return answer.status, answer.read()

    def get(self, method: str, path: str, body: object = None) -> Any:
        """Send a request that must succeed and return its JSON, or None."""
        status, content = self.ask(method, path, body)
        if status >= 300:
            raise RuntimeError(f"{method} {path} answered {status}: {content[:400].decode(errors='replace')}")
        return json.loads(content) if content else None

    def send_form(self, path: str, form: bytes, boundary: str) -> Any:
        """Send a form and return the JSON of its answer."""
        headers = {**self._headers, "Content-Type": f"multipart/form-data; boundary={boundary}"}
        self._connection.request("POST", path, form, headers)
        return json.loads(self._connection.getresponse().read())

    def run(self, sandbox: str, code: str) -> Any:
        """Run Python in a sandbox; it must end well."""
        result = self.get("POST", f"/api/v1/sandboxes/{sandbox}/exec", {"code": code, "language": "python"})
        if result["exit_code"] != 0:
            raise RuntimeError(f"{code!r} ended with {result}")
        return result

    def clock(self, work: Callable[[], object]) -> float:
        """Measure one call, in milliseconds."""
        began = time.perf_counter()
        work()
        return (time.perf_counter() - began) * 1000


class Served:
    """A service process with a data folder of its own."""

    def __init__(self, data: str, **settings: object) -> None:
        env = {name: value for name, value in os.environ.items() if not name.startswith("WARREN_")}
        env |= {f"WARREN_{name.upper()}": str(value) for name, value in settings.items()}
        self._warren = os.path.join(os.path.dirname(sys.executable), "warren")
        self.data = data
        self._log = open(os.path.join(data, "serve.log"), "ab")  # noqa: SIM115 - lives as long as the process
        self.process = subprocess.Popen(
            [self._warren, "serve", "--port", "0", "--data-dir", data],
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
        )
        try:
            self.port, self.key = self._read_announcement()
        except BaseException:
            self.process.kill()
            raise

    def client(self, key: str = "") -> Client:
        """Open one more connection, with the first key or another."""
        return Client(self.port, key or self.key)

    def create_key(self, tenant: str) -> str:
        """Create a key of another tenant."""
        command = [self._warren, "keys", "create", tenant, "--tenant", tenant, "--json"]
        env = {name: value for name, value in os.environ.items() if not name.startswith("WARREN_")}
        env["WARREN_DATA_DIR"] = self.data
        key: str = json.loads(subprocess.run(command, env=env, check=True, capture_output=True).stdout)["secret"]
        return key

    def stop(self, how: int = signal.SIGTERM) -> None:
        """End the process and wait for it; one that does not end in time is killed. Raises RuntimeError then."""
        if self.process.poll() is None:
            self.process.send_signal(how)
        try:
            self.process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise RuntimeError(
                f"the service did not end within {STOP_S:g} s and was killed; its log ends: {self.read_log_end()}"
            ) from None
        finally:
            self._log.close()

    def read_log_end(self) -> str:
        """Return the last lines of the log."""
        with open(self._log.name, "rb") as log:
            log.seek(max(0, os.path.getsize(self._log.name) - _LOG_BYTES))
            return log.read().decode(errors="replace")

    def _read_announcement(self) -> tuple[int, str]:
        lines: queue.Queue[str] = queue.Queue()
        assert self.process.stdout is not None
        stdout = self.process.stdout

        def read() -> None:
            # Closed here: to close a pipe that another thread reads waits for that thread.
            with stdout:
                for line in stdout:
                    lines.put(line)

        threading.Thread(target=read, daemon=True).start()
        text = ""
        while "Try: " not in text:
            try:
                text += lines.get(timeout=START_S)
            except queue.Empty:
                raise RuntimeError(f"the service did not start: {text}") from None
        port, key = re.search(r"http://[^ ]*:(\d+)", text), re.search(r"wrn_[\w-]+", text)
        assert port is not None
        return int(port[1]), self._keep_key(key[0] if key else None)

    def _keep_key(self, key: str | None) -> str:
        """Remember the key, which is shown once, for the next process on this folder."""
        path = os.path.join(self.data, "bench.key")
        if key is not None:
            with open(path, "w", encoding="ascii") as file:
                file.write(key)
        with open(path, encoding="ascii") as file:
            return file.read()


@contextlib.contextmanager
def served(image: Image, folder: str, **settings: object) -> Iterator[Served]:
    """Run a service for the length of a block; its sandboxes go with it."""
    import anyio

    with tempfile.TemporaryDirectory(prefix="serve-", dir=folder) as data:
        os.symlink(os.path.dirname(image.path), os.path.join(data, "images"))
        service = Served(data, image=image.name, **settings)
        try:
            yield service
        finally:
            try:
                service.stop()
            finally:
                # In a thread: the caller may run in an event loop already. With a deadline: it waits for a keeper.
                clearing = threading.Thread(target=anyio.run, args=(_clear, data), daemon=True)
                clearing.start()
                clearing.join(CLEAR_S)
                if clearing.is_alive():
                    print(f"sandboxes of {data} were not cleared within {CLEAR_S:g} s", file=sys.stderr)


async def _clear(data: str) -> None:
    from warren.engines.local.engine import LocalEngine

    engine = LocalEngine(data)
    await engine.open()
    async for handle in engine.handles():
        await engine.destroy(handle)
    await engine.retire()
