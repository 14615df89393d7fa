"""The nouns: frozen values shared by every layer. No I/O and no framework."""

from __future__ import annotations

import enum
import os
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from warren.domain.errors import InvalidRequest
from warren.domain.gpus import NO_GPUS, GpuRequest

if TYPE_CHECKING:
    from collections.abc import Mapping

KIB = 1 << 10
MIB = 1 << 20
GIB = 1 << 30

_ID = re.compile(r"[a-z]{3}_[a-z0-9]{8,40}")


class Storage(enum.StrEnum):
    """What happens to a workspace when its sandbox stops."""

    EPHEMERAL = "ephemeral"
    """Gone when the sandbox stops."""
    PERSISTENT = "persistent"
    """Kept, over stop, service restart and host reboot, until the sandbox is destroyed."""


class Cause(enum.StrEnum):
    """Why an execution ended. Every result has exactly one."""

    EXITED = "exited"
    """The program ran to its end; `exit_code` says how."""
    ERROR = "error"
    """An exception ended the cell; the kernel and its variables are fine."""
    TIMEOUT = "timeout"
    INTERRUPTED = "interrupted"
    OOM = "oom"
    CPU = "cpu"
    PIDS = "pids"
    DISK = "disk"
    OUTPUT = "output"
    KILLED = "killed"
    """A signal of none of the causes above: a segfault, `os._exit`, `kill -9`."""
    LOST = "lost"
    """The sandbox was lost; nothing more is known."""


class State(enum.StrEnum):
    """What an execution did to the variables of its kernel."""

    KEPT = "kept"
    ROLLED_BACK = "rolled_back"
    """The kernel died; the variables are as they were at the end of an earlier cell."""
    LOST = "lost"
    NONE = "none"
    """There was no kernel: a shell command or a fresh process."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Resource limits of one sandbox. The operating system enforces them."""

    memory_bytes: int = 512 * MIB
    cpus: float = 1.0
    pids: int = 256
    disk_bytes: int = 2 * GIB
    disk_inodes: int = 131_072
    open_files: int = 4096
    checkpoint_bytes: int = 64 * MIB
    """A kernel with more private memory than this is not checkpointed."""
    checkpoints: int = 1
    """Cells that `rollback` can go back, 0 to 8. Each, and the newest state, costs up to `checkpoint_bytes` on top."""
    tmp_bytes: int = 0
    """Size of `/tmp`, whose files count as memory; 0 is a quarter of the memory."""

    def __post_init__(self) -> None:
        for name, low, high in _LIMIT_RANGES:
            value = getattr(self, name)
            if not isinstance(value, int | float) or isinstance(value, bool) or not low <= value <= high:
                low_text, high_text = (_size(low), _size(high)) if name.endswith("_bytes") else (low, high)
                message = f"{name} must be between {low_text} and {high_text}, not {value!r}"
                raise InvalidRequest(message)


def _size(value: float) -> str:
    return f"{value / GIB:g}G" if value >= GIB else f"{value / MIB:g}M"


_LIMIT_RANGES: tuple[tuple[str, float, float], ...] = (
    ("memory_bytes", 64 * MIB, 1024 * GIB),
    ("cpus", 0.05, 1024),
    ("pids", 16, 32_768),
    ("disk_bytes", 16 * MIB, 4096 * GIB),
    ("disk_inodes", 1024, 1 << 30),
    ("open_files", 64, 1_048_576),
    ("checkpoint_bytes", 0, 64 * GIB),
    ("checkpoints", 0, 8),
    ("tmp_bytes", 0, 1024 * GIB),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """A built image. `core.images` makes these; engines only read them."""

    name: str
    digest: str
    """Content address of the spec and the interpreter; equal digests mean equal images."""
    path: str
    """Host folder of the built image; its `venv/` is what a sandbox sees as `/opt/image`."""
    root: str = "host"
    """`host`: the host's `/usr`, read-only. Otherwise a host folder that holds a root filesystem."""
    interpreter_prefix: str
    """Host prefix of the base interpreter."""
    interpreter_inside: str = "/opt/python"
    """Where the sandbox sees that prefix: its own path if under `/usr` or linked to its own libpython."""
    python: str = "/opt/image/bin/python"
    """The interpreter, as a path inside the sandbox."""
    preload: tuple[str, ...] = ()
    """Modules imported once, before any sandbox is forked."""
    env: Mapping[str, str] = field(default_factory=dict)
    gpus: GpuRequest = NO_GPUS
    """Of its sandboxes, unless the caller says otherwise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxSpec:
    """Everything an engine needs to make one sandbox. The id is chosen, and stored, before anything is made."""

    id: str
    image: Image
    limits: Limits = field(default_factory=Limits)
    storage: Storage = Storage.EPHEMERAL
    common_env: Mapping[str, str] = field(default_factory=dict)
    """The environment that all sandboxes of this image share: no secret, and known before any exists."""
    env: Mapping[str, str] = field(default_factory=dict)
    """Its own environment, which wins over `common_env`."""
    single_use: bool = False
    """Whether it serves one execution only: then nothing is kept ready for another."""
    gpus: GpuRequest = NO_GPUS
    """Which GPUs it has. Devices by name where `core` chose them; else the engine, or its scheduler, chooses."""
    store_id: str = ""
    """The store that has its record, or will have it; kept by the engine. Empty for the sandbox of a command."""

    def __post_init__(self) -> None:
        if not _ID.fullmatch(self.id):
            message = f"sandbox id {self.id!r} must look like sbx_ and 8 to 40 lower-case letters or digits"
            raise InvalidRequest(message)


@dataclass(frozen=True, slots=True)
class Handle:
    """An engine's own reference to a sandbox: plain strings, so that another process can connect again."""

    engine: str
    sandbox_id: str
    storage: Storage | None = field(default=None, compare=False)
    """As the engine has it, where the engine lists it."""
    store_id: str = field(default="", compare=False)
    """As in its spec, where the engine lists it. Empty for those of earlier versions too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Current resource use of a sandbox, counted by the operating system. None where this host cannot count it."""

    memory_bytes: int | None
    memory_peak_bytes: int | None
    cpu_us: int | None
    pids: int | None
    disk_bytes: int | None
    disk_inodes: int | None


class ExecKind(enum.StrEnum):
    """What an execution runs."""

    CELL = "cell"
    """Python in a kernel; variables stay."""
    SCRIPT = "script"
    """Python in a fresh process forked from the warm imports; the exit code is the operating system's word."""
    SHELL = "shell"
    ARGV = "argv"


class Echo(enum.StrEnum):
    """What becomes of the value of the last expression of a cell, or of a script, which displays nothing."""

    DISPLAY = "display"
    STDOUT = "stdout"
    NONE = "none"


class Keep(enum.StrEnum):
    """Which part of a long output is kept."""

    ENDS = "ends"
    """Its head and its tail, with a line between them that says how much is missing."""
    HEAD = "head"
    """The beginning, unmarked: for a dialect with its own words for what is missing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecSpec:
    """What to run, and how. `guest.wire.run_request` has the same fields and defaults as the agent reads them."""

    kind: ExecKind = ExecKind.CELL
    code: str = ""
    kernel: str = "main"
    argv: tuple[str, ...] = ()
    timeout_s: float | None = None
    grace_s: float = 1.0
    """Between an interrupt and the kill."""
    idle_timeout_s: float | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    """May hold secrets: never recorded."""
    cwd: str | None = None
    echo: Echo = Echo.DISPLAY
    file: str = ""
    """Of a script: the name of its source in the workspace while it runs, unless a file has that name already."""
    label: str = ""
    """Of a script: its name in tracebacks."""
    figures: str = ""
    """Of a script: the folder of /tmp where `plt.show()` saves figures; empty: nowhere."""
    scratch: tuple[str, ...] = ()
    """Folders of /tmp that exist, and are empty, when it begins. Not for cells."""
    collect: str = ""
    """A folder of /tmp whose files the result lists. Not for cells."""
    output_bytes: int = MIB
    output_keep: Keep = Keep.ENDS
    output_max_bytes: int = 256 * MIB
    kill_leftovers: bool = False
    scan_changes: bool = True
    checkpoint: bool = True
    """Whether the kernel copies itself afterwards, so that the next cell cannot lose its variables."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecRequest(ExecSpec):
    """One execution, as an agent is asked for it."""

    id: str
    stream: bool = True
    paced: bool = False

    @property
    def whole(self) -> bool:
        """Whether the agent answers once, with everything: a caller that follows no events needs no more."""
        return not self.stream


@dataclass(frozen=True, slots=True)
class FileChange:
    """One file that an execution created, modified or deleted."""

    path: str
    action: str
    size: int


@dataclass(frozen=True, slots=True)
class Entry:
    """A file, folder or link in a workspace."""

    path: str
    type: str
    size: int
    mode: int
    mtime_ns: int
    target: str | None = None


@dataclass(frozen=True, slots=True)
class Display:
    """A display of a cell: one value in one or more MIME types (binary ones base64)."""

    data: Mapping[str, str]
    metadata: Mapping[str, object] = field(default_factory=dict)
    is_result: bool = False
    """True for the value of the last expression."""


@dataclass(frozen=True, slots=True)
class Event:
    """An event of an execution: `kind` is stdout, stderr, display or result."""

    seq: int
    kind: str
    data: bytes = b""
    skipped: int = 0
    display: Display | None = None
    result: ExecResult | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecResult:
    """The result of an execution, with everything known about its cause."""

    id: str
    exit_code: int | None
    cause: Cause
    state: State
    stdout: bytes = b""
    stderr: bytes = b""
    stdout_bytes: int = 0
    stderr_bytes: int = 0
    stdout_chars: int = 0
    """Written in all, in characters."""
    stderr_chars: int = 0
    truncated: bool = False
    displays: tuple[Display, ...] = ()
    error: Mapping[str, str] | None = None
    limit: float | None = None
    peak: float | None = None
    cells_back: int = 0
    protected: bool = True
    why_unprotected: str | None = None
    files_changed: tuple[FileChange, ...] = ()
    files_changed_complete: bool = True
    collected: tuple[Entry, ...] = ()
    """Files of the collected folder, by their path there. Not kept in records."""
    collected_complete: bool = True
    duration_ms: float = 0.0
    cpu_ms: float = 0.0
    hint: str | None = None
    notes: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether it ran to its end with exit code 0."""
        return self.cause is Cause.EXITED and self.exit_code == 0


def new_id(prefix: str) -> str:
    """Make an id that cannot be guessed: `sbx_…` or `exe_…`."""
    return f"{prefix}_{os.urandom(12).hex()}"
