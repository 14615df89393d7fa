"""Keyword options of runs and sandboxes; the service has the defaults."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterable
from typing import TYPE_CHECKING, Any, TypedDict

from warren.domain.errors import suggest
from warren.sdk.content import Content

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from warren.sdk.content import Uploadable


class RunOptions(TypedDict, total=False):
    """How to run something."""

    language: str
    """Of the code: `python` or `bash`."""
    stdin: str | bytes
    """Standard input."""
    env: Mapping[str, str]
    """Added to the environment of this run."""
    cwd: str | None
    """Folder to run in, relative to the workspace."""
    timeout_seconds: float | None
    """Interrupted after so long, then killed."""
    idle_timeout_seconds: float | None
    """The same, after so long without output."""
    grace_seconds: float
    """Between the interrupt and the kill."""
    echo: str
    """What becomes of the value of the last expression: `display`, `stdout` or `none`."""
    output_bytes: int
    """Kept of stdout and of stderr: head and tail."""
    output_max_bytes: int
    """A program that writes more in all is ended."""
    kill_leftovers: bool
    """End the processes that a command leaves behind."""
    fresh: bool
    """Run Python in a fresh process: no variables, and a true exit code."""
    exact: bool
    """Output byte for byte, in `raw_stdout` and `raw_stderr`."""


class ExecOptions(RunOptions, total=False):
    """How to run something in a sandbox."""

    kernel: str
    """Python runs in this kernel, which keeps its variables."""
    stdin_open: bool
    """Standard input stays open: write to it with `Execution.write`."""
    scan_changes: bool
    """Look for changed files afterwards."""
    idempotency_key: str
    """The same request with the same key is done once; one is made up where none is given."""


class OneShotOptions(RunOptions, total=False):
    """How to run something in a sandbox of its own."""

    image: str | None
    """What the sandbox is made from."""
    memory_mb: int | None
    cpu: float | None
    pids: int | None
    disk_mb: int | None
    egress: str | Mapping[str, Any] | None
    """What it may reach: `none`, `packages`, `open`, or `{"rules": [{"host": …, "ports": […]}]}`."""
    gpus: str | int | Sequence[str] | None
    """GPUs: `all`, `auto`, `none`, how many, or which by name."""
    max_files: int
    """Changed files to return with their content."""
    max_bytes: int
    """Of all of them together."""


class ChangeOptions(TypedDict, total=False):
    """What of a sandbox can be changed."""

    memory_mb: int | None
    """Memory, in MiB."""
    cpu: float | None
    """Processors; parts of one are fine."""
    pids: int | None
    """Processes and threads."""
    checkpoint_mb: int | None
    """A kernel with more private memory than this is not checkpointed; 0 turns checkpoints off."""
    checkpoints: int | None
    """Cells that a rollback can reach back."""
    idle_timeout_seconds: float | None
    """Stopped after so long without use; 0 is never."""
    max_lifetime_seconds: float | None
    """Destroyed after so long, used or not; 0 is never."""
    metadata: Mapping[str, str] | None
    """Your own labels; lists can be filtered by them."""
    egress: str | Mapping[str, Any] | None
    """What it may reach: `none`, `packages`, `open`, or `{"rules": [{"host": …, "ports": […]}]}`."""


class SandboxOptions(ChangeOptions, total=False):
    """What a new sandbox shall be."""

    image: str | None
    """What it is made from; `client.images()` lists them."""
    disk_mb: int | None
    """Size of the workspace, in MiB."""
    storage: str
    """`persistent`: the workspace survives a stop. `ephemeral`: it is gone then."""
    session_key: str | None
    """The same key always gives you the same sandbox, resumed if it was stopped."""
    env: Mapping[str, str]
    """Environment of everything that runs in it. Never shown again."""
    gpus: str | int | Sequence[str] | None
    """GPUs: `all`, `auto` (all, or none where there are none), `none`, how many, or which by name."""
    skill_ids: Sequence[str]
    """Skills to have in `/workspace/skills`."""
    idempotency_key: str
    """The same request with the same key makes one sandbox; one is made up where none is given."""


class ListOptions(TypedDict, total=False):
    """Which sandboxes to list."""

    status: str | Sequence[str]
    """Only these: `running`, `stopped` and so on."""
    image: str | None
    """Only of this image."""
    session_key: str | None
    """Only the one of this session key."""
    metadata: Mapping[str, str] | None
    """Only with these labels."""
    everybody: bool
    """Other people's too; for admins."""


class SkillOptions(TypedDict, total=False):
    """What of a skill can be changed."""

    name: str | None
    description: str | None
    skill_md_content: str | None
    """Another text; only where the skill is nothing but its SKILL.md."""
    skill_metadata: Mapping[str, Any] | None
    """Replaces all of your own values."""
    portal_visible: bool | None
    """Share it: all of your tenant may then see and install it."""
    portal_category: str | None
    portal_tags: Sequence[str] | None


class AuditOptions(TypedDict, total=False):
    """Which rows of the audit record to list."""

    tenant: str | None
    subject: str | None
    action: str | None
    """Such as `sandbox.create`."""
    sandbox_id: str | None
    execution_id: str | None
    request_id: str | None
    since: float | None
    """Seconds since 1970, included; `until` is not."""
    until: float | None


def build_body(options: Mapping[str, Any], known: type, **fixed: Any) -> dict[str, Any]:
    """Build a request's body. Raises TypeError for a word that is no option, with the nearest that is."""
    names = known.__annotations__
    for name in options:
        if name not in names:
            raise TypeError(f"there is no option {name!r}{suggest(name, names)}")
    body = {name: value for name, value in {**options, **fixed}.items() if value is not None}
    body.pop("idempotency_key", None)
    if isinstance(stdin := body.get("stdin"), bytes):
        del body["stdin"]
        body["stdin_base64"] = base64.b64encode(stdin).decode()
    if body.pop("exact", False):
        body["encoding"] = "base64"
    for name in ("env", "metadata", "skill_metadata"):
        if name in body:
            body[name] = dict(body[name])
    for name in ("skill_ids", "portal_tags"):
        if name in body:
            body[name] = list(body[name])
    return body


def what_to_run(code: str | None, command: str | Sequence[str] | None) -> dict[str, Any]:
    """Build the part of a body that says what runs. Raises TypeError unless exactly one thing is given."""
    if (code is None) == (command is None):
        raise TypeError("give either code or command=")
    if code is not None:
        return {"code": code}
    if isinstance(command, str):
        return {"command": command}
    return {"argv": [*(command or ())]}


def input_files(files: Mapping[str, Uploadable] | None) -> list[dict[str, str]]:
    """Build the files that go in with a one-shot run."""
    found = []
    for path, source in (files or {}).items():
        pieces = Content.of(source).read()
        if isinstance(pieces, AsyncIterable):
            raise TypeError("files of a run cannot be read asynchronously: give bytes, text, a path or an open file")
        found.append({"path": path, "base64": base64.b64encode(b"".join(pieces)).decode()})
    return found


def assets_of(assets: Mapping[str, Uploadable] | None) -> list[dict[str, str]]:
    """Build the files that go in with a deck."""
    return [{"name": each["path"], "base64": each["base64"]} for each in input_files(assets)]


def read_timeout(body: Mapping[str, Any], patience_s: float) -> float | None:
    """Return how long the answer to a run may take: for ever, unless the run itself has a limit."""
    limit = body.get("timeout_seconds")
    return None if limit is None else float(limit) + float(body.get("grace_seconds", 1.0)) + patience_s
