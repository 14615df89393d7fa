"""The work of building an image: how far it is, how it is stopped, and the programs that it runs."""

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
"""Where sandboxes see an image's own files."""

_TRUST_STORES = ("/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem")
_PREFIX = re.compile(r"(npm error|(error|cause|hint|caused by|E):)\s*", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class BuildStep:
    """Where a build has got to, for a progress display."""

    phase: str
    """In this order, three of them only where an image has such a thing: `waiting`, `system`, `resolving`,
    `downloading`, `installing`, `node`, `fonts`, `compiling`, `finishing` or `done`."""
    detail: str = ""
    done: int = 0
    total: int = 0
    """0 when it is not known how much there is to do."""


class Stop:
    """Ends a build from another thread: what it runs is killed, and it raises BuildFailed."""

    def __init__(self) -> None:
        self._asked = threading.Event()
        self._lock = threading.Lock()
        self._process: subprocess.Popen[str] | None = None

    def ask(self) -> None:
        """End the build, now or as soon as it begins."""
        with self._lock:
            self._asked.set()
            if self._process is not None:
                self._process.kill()

    def attach(self, process: subprocess.Popen[str]) -> None:
        """Say what runs now."""
        with self._lock:
            self._process = process
            if self._asked.is_set():
                process.kill()

    def wait(self, seconds: float) -> None:
        """Let time pass. Raises BuildFailed when the end is asked for."""
        self._asked.wait(seconds)
        self.check()

    def check(self) -> None:
        """Raise BuildFailed when the end is asked for."""
        if self._asked.is_set():
            raise BuildFailed("the build was stopped before it was done: begin it again")


@dataclass(frozen=True, slots=True, kw_only=True)
class Build:
    """One build: what, on what, where."""

    spec: ImageSpec
    interpreter: Interpreter
    folder: str
    progress: Callable[[BuildStep], None]
    lock_fd: int
    """Inherited by the programs a build runs, so that the lock outlives a killed builder as long as they do."""
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
    """Run a program of the build, with `env` besides the environment of this process, and read what it says.

    Raises BuildFailed when it fails, or when it was stopped; one that must be run as a `whole` is not stopped.
    """
    last: deque[str] = deque(maxlen=200)
    with subprocess.Popen(
        # WHY a program for it: only the settings read the environment, and whatever is run here may have all of it.
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
    """Join what a program said to one sentence, without the lists of hashes."""
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
    """Return the file with the authorities that this machine trusts, a company's proxy say, if there is one."""
    return next((store for store in _TRUST_STORES if os.path.exists(store)), None)
