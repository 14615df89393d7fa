"""Commands of `warren` as processes of their own, without the second of imports that each would begin with.

A process of `forkserver.py` has the imports behind it and forks for each command. The child is a process like any
other: its own pid, session, environment, descriptors, signals and exit. In a shell whose `PATH` is `search_path()`,
`warren` is such a process too. A test that is about the start of a process, or measures its memory, starts one by
itself.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import io
import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from typing import IO, TYPE_CHECKING, Any, Self

from e2e import forkclient

if TYPE_CHECKING:
    from collections.abc import Mapping

_HERE = os.path.dirname(os.path.abspath(__file__))


class ForkServer:
    """The process that forks. It ends when this one does, or forgets it."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="warren-forks-")
        self.address = os.path.join(self._folder.name, "socket")
        # Here, for a shell, is a `warren` that is forked like every other.
        self.programs = os.path.join(self._folder.name, "bin")
        os.mkdir(self.programs)
        client = [sys.executable, "-IS", os.path.join(_HERE, "forkclient.py"), self.address]
        with open(os.open(f"{self.programs}/warren", os.O_CREAT | os.O_WRONLY, 0o755), "w", encoding="utf-8") as file:
            file.write(f'#!/bin/sh\nexec {shlex.join(client)} "$@"\n')
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
            listener.bind(self.address)
            listener.listen(100)
            self._process = subprocess.Popen(
                [sys.executable, os.path.join(_HERE, "forkserver.py"), str(listener.fileno())],
                pass_fds=[listener.fileno()],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                env={"PATH": os.defpath},
                cwd="/",
                start_new_session=True,
            )
        atexit.register(self.close)

    def close(self) -> None:
        """Have the process end, and wait for it."""
        self._process.communicate()
        self._folder.cleanup()


def search_path() -> str:
    """Return a `PATH` on which `warren` is forked, then what this environment installed, then the usual."""
    return os.pathsep.join([server().programs, os.path.dirname(sys.executable), os.environ["PATH"]])


@functools.cache
def server() -> ForkServer:
    """Return the one of this process."""
    return ForkServer()


class Forked:
    """A command that runs: what tests use of `subprocess.Popen`."""

    def __init__(
        self,
        arguments: list[str],
        *,
        env: Mapping[str, str],
        cwd: str | os.PathLike[str],
        stdin: int | IO[Any] | None = subprocess.DEVNULL,
        stdout: int | IO[Any] | None = subprocess.PIPE,
        stderr: int | IO[Any] | None = subprocess.PIPE,
        text: bool = False,
        start_new_session: bool = False,
    ) -> None:
        self.args = arguments
        self.returncode: int | None = None
        with contextlib.ExitStack() as given:
            self.stdin = self._end(given, stdin, 0, text=text)
            ends = [self._theirs]
            self.stdout = self._end(given, stdout, 1, text=text)
            ends.append(self._theirs)
            self.stderr = self._end(given, stderr, 2, text=text)
            ends.append(self._theirs)
            request = {
                "arguments": arguments,
                "env": dict(env),
                "cwd": str(cwd),
                "session": start_new_session,
                "umask": 0o022,
            }
            self._answers = forkclient.ask(server().address, request, ends)
        self.pid: int = json.loads(self._answers.recv(1000))["pid"]

    def _end(
        self, given: contextlib.ExitStack, which: int | IO[Any] | None, number: int, *, text: bool
    ) -> IO[Any] | None:
        """Find the child's end of a descriptor, and return ours where it is a pipe."""
        if which is None or which == subprocess.DEVNULL:
            self._theirs = os.open(os.devnull, os.O_RDWR) if which is not None else number
            if which is not None:
                given.callback(os.close, self._theirs)
            return None
        if which == subprocess.PIPE:
            reading, writing = os.pipe()
            self._theirs, ours = (reading, writing) if number == 0 else (writing, reading)
            given.callback(os.close, self._theirs)
            opened = os.fdopen(ours, "wb" if number == 0 else "rb")
            return io.TextIOWrapper(opened, encoding="utf-8") if text else opened
        self._theirs = which if isinstance(which, int) else which.fileno()
        return None

    def poll(self) -> int | None:
        """Return the exit code if it has ended."""
        with contextlib.suppress(TimeoutError):
            self._wait(0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end. Raises TimeoutExpired."""
        try:
            return self._wait(timeout)
        except TimeoutError:
            raise subprocess.TimeoutExpired(self.args, timeout or 0) from None

    def _wait(self, timeout: float | None) -> int:
        if self.returncode is None:
            self._answers.settimeout(timeout)
            try:
                said = self._answers.recv(1000)
            except BlockingIOError:
                raise TimeoutError from None
            self.returncode = int(json.loads(said)["code"])
            self._answers.close()
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send a signal, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """End it."""
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        """Ask it to end."""
        self.send_signal(signal.SIGTERM)

    def communicate(self, input: Any = None, timeout: float | None = None) -> tuple[Any, Any]:  # noqa: A002 - as there
        """Write, read to the end, and wait. Raises TimeoutExpired."""
        read: dict[str, Any] = {}

        def drain(name: str, pipe: IO[Any]) -> None:
            read[name] = pipe.read()
            pipe.close()

        pipes = {name: pipe for name in ("stdout", "stderr") if (pipe := getattr(self, name)) is not None}
        threads = [threading.Thread(target=drain, args=each, daemon=True) for each in pipes.items()]
        for thread in threads:
            thread.start()
        if self.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                if input:
                    self.stdin.write(input)
                self.stdin.flush()
            with contextlib.suppress(BrokenPipeError):
                self.stdin.close()
        for thread in threads:
            thread.join(timeout)
            if thread.is_alive():
                raise subprocess.TimeoutExpired(self.args, timeout or 0)
        self.wait(timeout)
        return read.get("stdout"), read.get("stderr")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for pipe in (self.stdin, self.stdout, self.stderr):
            if pipe is not None:
                pipe.close()
        self.wait()


def run(
    arguments: list[str],
    *,
    env: Mapping[str, str],
    cwd: str | os.PathLike[str],
    timeout: float,
    input: Any = None,  # noqa: A002 - as there
    text: bool = False,
) -> subprocess.CompletedProcess[Any]:
    """Run a command to its end, as `subprocess.run` with captured output does."""
    stdin = subprocess.DEVNULL if input is None else subprocess.PIPE
    process = Forked(arguments, env=env, cwd=cwd, stdin=stdin, text=text)
    try:
        stdout, stderr = process.communicate(input, timeout)
    except BaseException:
        process.kill()
        process.wait()
        raise
    return subprocess.CompletedProcess(arguments, process.returncode or 0, stdout, stderr)
