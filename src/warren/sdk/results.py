"""Results of executions, as values that can show themselves."""

from __future__ import annotations

import base64
import binascii
import reprlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

from warren.sdk.failures import ExecutionFailed
from warren.sdk.values import TIME, TUPLE, build, build_all, build_one

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

_BRIEF = reprlib.Repr()
_BRIEF.maxstring = 80


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """An image that a cell showed."""

    mime: str
    data: bytes

    def save(self, path: str) -> None:
        """Write it to a file of this machine."""
        with open(path, "wb") as file:
            file.write(self.data)

    def _repr_mimebundle_(self, **_asked: object) -> dict[str, Any]:
        from warren.sdk.show import show_picture

        return {"text/html": show_picture(self), "text/plain": repr(self)}

    def __repr__(self) -> str:
        return f"Picture({self.mime}, {len(self.data)} bytes)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Display:
    """Something that a cell showed: one value in one or more MIME types, binary ones as base64."""

    data: Mapping[str, str]
    metadata: Mapping[str, Any] = field(default_factory=dict)
    is_result: bool = False
    """Whether it is the value of the last expression."""

    @property
    def text(self) -> str:
        """The value as text; empty where it has none."""
        return self.data.get("text/plain", "")

    @property
    def picture(self) -> Picture | None:
        """The value as an image, where it is one."""
        for mime in ("image/png", "image/jpeg", "image/gif", "image/webp"):
            if mime in self.data:
                try:
                    return Picture(mime=mime, data=base64.b64decode(self.data[mime]))
                except binascii.Error:
                    return None
        svg = self.data.get("image/svg+xml")
        return None if svg is None else Picture(mime="image/svg+xml", data=svg.encode())

    def _repr_mimebundle_(self, **_asked: object) -> dict[str, Any]:
        from warren.sdk.show import show_display, show_plain

        return {"text/html": show_display(self), "text/plain": show_plain(self.text) or repr(self)}

    def __repr__(self) -> str:
        return f"Display({', '.join(self.data)})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Raised:
    """The exception that ended a cell."""

    name: str
    value: str
    traceback: str

    def is_told_in(self, output: str) -> bool:
        """Whether its traceback stands there already: kernels write it to standard error as well."""
        return self.traceback.strip() in output


@dataclass(frozen=True, slots=True, kw_only=True)
class FileChange:
    """A file that an execution changed."""

    path: str
    action: str
    """created, modified or deleted."""
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputFile:
    """A file that a one-shot run left."""

    path: str
    action: str
    size_bytes: int
    data: bytes

    @property
    def text(self) -> str:
        """Its content as text."""
        return self.data.decode("utf-8", "replace")

    def save(self, path: str) -> None:
        """Write it to a file of this machine."""
        with open(path, "wb") as file:
            file.write(self.data)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Result:
    """An execution and, once it has finished, how it ended."""

    execution_id: str
    sandbox_id: str
    status: str
    """running or finished."""
    kind: str
    kernel: str | None = None
    background: bool = False
    started_at: datetime = field(metadata=TIME)
    finished_at: datetime | None = field(default=None, metadata=TIME)
    exit_code: int | None = None
    cause: str | None = None
    """Why it ended: exited, error, timeout, interrupted, oom, cpu, pids, disk, output, killed or lost."""
    state: str | None = None
    """What it did to the variables of its kernel: kept, rolled_back, lost or none."""
    timed_out: bool = False
    hint: str | None = None
    """What to do next, where something went wrong."""
    limit: float | None = None
    peak: float | None = None
    stdout: str = ""
    stderr: str = ""
    raw_stdout: bytes = b""
    """The same as bytes; exact if it was asked for with `exact=True`."""
    raw_stderr: bytes = b""
    stdout_bytes: int = 0
    """Written in all."""
    stderr_bytes: int = 0
    truncated: bool = False
    displays: tuple[Display, ...] = field(default=(), metadata=build_all(Display))
    error: Raised | None = field(default=None, metadata=build_one(Raised))
    files_changed: tuple[FileChange, ...] = field(default=(), metadata=build_all(FileChange))
    files_changed_complete: bool = False
    duration_ms: float = 0.0
    cpu_ms: float = 0.0
    cells_back: int = 0
    protected: bool = False
    why_unprotected: str | None = None
    notes: tuple[str, ...] = field(default=(), metadata=TUPLE)
    code: str = ""
    """What ran, where it was looked up."""
    request_id: str = ""

    @property
    def ok(self) -> bool:
        """Whether it ran to its end, and said that all is well."""
        return self.cause == "exited" and not self.exit_code

    @property
    def value(self) -> str | None:
        """The value of the last expression, as Python writes it."""
        found = [each.text for each in self.displays if each.is_result]
        return found[-1] if found else None

    @property
    def images(self) -> tuple[Picture, ...]:
        """The images that it showed."""
        return tuple(picture for each in self.displays if (picture := each.picture) is not None)

    @property
    def text(self) -> str:
        """Everything that a person would read: output, values, and what went wrong."""
        parts = [self.stdout, self.stderr, *(each.text for each in self.displays)]
        if self.error is not None and not self.error.is_told_in(self.stderr):
            parts.append(self.error.traceback)
        if self.status == "finished" and not self.ok and (self.cause != "error" or self.error is None):
            parts.append(self.explain())
        *before, last = [part for part in parts if part] or [""]
        return "".join(part if part.endswith("\n") else f"{part}\n" for part in before) + last

    def explain(self) -> str:
        """Say in a sentence how it ended."""
        if self.status != "finished":
            return f"execution {self.execution_id} is still running"
        if self.ok:
            return f"it ended well after {self.duration_ms / 1000:.3g} seconds"
        if self.cause == "error" and self.error is not None:
            return f"{self.error.name}: {self.error.value}" + (f". {self.hint}" if self.hint else "")
        if self.cause == "exited":
            return self.hint or f"it ended with exit code {self.exit_code}"
        return f"{self.cause}: {self.hint or f'it ended with exit code {self.exit_code}'}"

    def check(self) -> Self:
        """Return this if all went well. Raises ExecutionFailed."""
        if not self.ok:
            raise ExecutionFailed(self)
        return self

    def _repr_html_(self) -> str:
        from warren.sdk.show import show_result

        return show_result(self)

    def _repr_mimebundle_(self, **_asked: object) -> dict[str, Any]:
        from warren.sdk.show import show_plain

        return {"text/html": self._repr_html_(), "text/plain": show_plain(self.text or self.explain())}

    def __repr__(self) -> str:
        # Not every field: at a prompt that is pages, and megabytes where there is an image.
        shown = {name: getattr(self, name) for name in ("exit_code", "value", "stdout", "stderr", "images")}
        parts = [self.cause or self.status, *(f"{name}={_BRIEF.repr(each)}" for name, each in shown.items() if each)]
        return f"{type(self).__name__}({', '.join(parts)})"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class OneShotResult(Result):
    """How a run in a sandbox of its own ended, and the files that it left."""

    files: tuple[OutputFile, ...] = ()
    files_complete: bool = True

    def file(self, path: str) -> OutputFile:
        """Return the file of that path. Raises KeyError."""
        for each in self.files:
            if each.path == path:
                return each
        raise KeyError(path)


def build_result(raw: Mapping[str, Any]) -> Result:
    """Build how an execution ended. Raises NotUnderstood."""
    return build(Result, {**raw, **_outputs(raw)})


def build_one_shot(raw: Mapping[str, Any]) -> OneShotResult:
    """Build how a one-shot run ended. Raises NotUnderstood."""
    files = tuple(build(OutputFile, {**each, "data": base64.b64decode(each["base64"])}) for each in raw["files"])
    return build(OneShotResult, {**raw, **_outputs(raw), "files": files})


def _outputs(raw: Mapping[str, Any]) -> dict[str, Any]:
    outputs: dict[str, Any] = {}
    for name in ("stdout", "stderr"):
        text = raw.get(name) or ""
        is_exact = raw.get("encoding") == "base64"
        data = base64.b64decode(text) if is_exact else text.encode("utf-8", "surrogatepass")
        outputs[f"raw_{name}"] = data
        outputs[name] = data.decode("utf-8", "replace") if is_exact else text
    return outputs
