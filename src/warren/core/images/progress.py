"""The work of an image build: its progress, how it is stopped, and the programs that it runs."""

from __future__ import annotations

import os
import re
import subprocess
import threading
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from warren.domain.errors import BuildFailed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from warren.core.images.spec import ImageSpec, Interpreter

VENV_INSIDE = "/opt/image"
"""Path of an image's own files inside sandboxes."""

_TRUST_STORES = ("/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem")


@dataclass(frozen=True, slots=True)
class BuildStep:
    """Progress of a build, for display."""

    phase: str
    """In this order, three of them only where an image has such a thing: `waiting`, `system`, `resolving`,
    `downloading`, `installing`, `node`, `fonts`, `compiling`, `finishing` or `done`."""
    detail: str = ""
    done: int = 0
    total: int = 0
    """0 when the total is unknown."""


class Stop:
    """Stops a build from another thread: its program is killed, and it raises BuildFailed."""

    def __init__(self) -> None:
        self._asked = threading.Event()
        self._lock = threading.Lock()
        self._process: subprocess.Popen[str] | None = None

    def ask(self) -> None:
        """Stop the build, now or as soon as it begins."""
        with self._lock:
            self._asked.set()
            if self._process is not None:
                self._process.kill()

    def attach(self, process: subprocess.Popen[str]) -> None:
        """Set the running program."""
        with self._lock:
            self._process = process
            if self._asked.is_set():
                process.kill()

    def wait(self, seconds: float) -> None:
        """Sleep. Raises BuildFailed when the build is stopped."""
        self._asked.wait(seconds)
        self.check()

    def check(self) -> None:
        """Raise BuildFailed when the build is stopped."""
        if self._asked.is_set():
            raise BuildFailed("the build was stopped before it was done: begin it again")


@dataclass(frozen=True, slots=True, kw_only=True)
class Build:
    """One build: its spec, interpreter and folder."""

    spec: ImageSpec
    interpreter: Interpreter
    folder: str
    progress: Callable[[BuildStep], None]
    lock_fd: int
    """Inherited by the programs of a build, so that the lock outlives a killed builder as long as they run."""
    stop: Stop = field(default_factory=Stop)


def run(
    build: Build,
    command: Sequence[str],
    on_line: Callable[[str], None] | None = None,
    *,
    cwd: str | None = None,
    env: Mapping[str, str] | None = None,
    whole: bool = False,
) -> None:
    """Run a program of the build with additional environment `env`, and read its output.

    Raises BuildFailed when it fails or is stopped; a program that must run as a `whole` is not stopped.
    """
    last: deque[str] = deque(maxlen=200)
    with subprocess.Popen(
        # WHY `env`: only the settings read the environment, and the programs of a build may inherit all of it.
        ["env", *(f"{name}={value}" for name, value in env.items()), *command] if env else command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        pass_fds=(build.lock_fd,),
        cwd=cwd,
        start_new_session=whole,
    ) as process:
        assert process.stdout is not None
        if not whole:
            build.stop.attach(process)
        try:
            for line in process.stdout:
                last.append(line.rstrip())
                if on_line is not None:
                    on_line(line)
        except BaseException:
            if not whole:
                process.kill()
            raise
    build.stop.check()
    if process.returncode != 0:
        raise BuildFailed(f"image {build.spec.name} could not be built: {_reason(last)}")


def _reason(lines: Sequence[str]) -> str:
    """Join the output of a program to one sentence, without lists of hashes."""
    said = [line.strip() for line in lines]
    start = next((at for at, line in enumerate(said) if re.match(r"(npm )?error|E:", line)), max(0, len(said) - 3))
    parts = [
        re.sub(r"^(npm error|error:|cause:|hint:|caused by:|E:)\s*", "", line, flags=re.IGNORECASE)
        for line in said[start:]
    ]
    kept = [part.rstrip(".") for part in parts if part and not part.startswith("sha256:") and not part.endswith(":")]
    reason = "; ".join(dict.fromkeys(kept))[:600] or "no reason was given"
    if re.search(r"connect|dns|timed out|network|fetch", reason, re.IGNORECASE):
        return f"{reason}. Check the network, or name a package index in UV_DEFAULT_INDEX"
    return reason


def find_trust() -> str | None:
    """Return the file of authorities that this machine trusts, a company's proxy among them, if there is one."""
    return next((store for store in _TRUST_STORES if os.path.exists(store)), None)
