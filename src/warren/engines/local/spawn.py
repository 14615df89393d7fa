"""Starts a module of Warren where it can make control groups: in a systemd scope, or as a plain process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from typing import IO, Any

from warren.domain.errors import EngineUnavailable
from warren.engines import state_files
from warren.engines.local.linux import apparmor, systemd
from warren.engines.local.linux.cgroup_hierarchies import Search

_TIMEOUT_S = 60.0


def run_module(
    module: str, folder: str, config: dict[str, Any], log: IO[bytes], *, timeout_s: float = _TIMEOUT_S
) -> dict[str, Any]:
    """Run `python -m module folder` with `config` as JSON on its standard input; returns the JSON that it prints first.

    Its stderr goes to `log`, a named file. It may go on after it has printed. Raises EngineUnavailable when it prints
    nothing.
    """
    config = {**config, "starter": os.getpid(), "scope": "", "refusal": ""}
    program = (sys.executable, "-I", "-m", module, folder)
    if systemd.is_needed():
        scope = systemd.plan_scope(group_name(folder), f"Warren sandboxes of {folder}")
        if isinstance(scope, systemd.Scope):
            said_before = os.fstat(log.fileno()).st_size
            answer = _run((*scope.prefix, *program), {**config, "scope": scope.name}, log, timeout_s)
            if answer is not None:
                return answer
            scope = f"systemd gave no scope: {state_files.last_words(log.name, said_before)}"
        config["refusal"] = scope
    said_before = os.fstat(log.fileno()).st_size
    answer = _run(program, config, log, timeout_s)
    if answer is None:
        name = module.removesuffix(".main").rpartition(".")[2]
        raise EngineUnavailable(f"the {name} did not start: {state_files.last_words(log.name, said_before)}")
    return answer


def read_search(folder: str, config: dict[str, Any]) -> Search:
    """Return the search for control groups of the started module, from its configuration."""
    return Search(
        group_name(folder), starter=int(config["starter"]), scope=str(config["scope"]), refusal=str(config["refusal"])
    )


def group_name(folder: str) -> str:
    """Return the name of the control groups of this data folder."""
    # WHY not the inode alone: a folder on another disk may have the same one, and its sandboxes would be adopted.
    found = os.stat(folder)
    return f"warren-{found.st_ino:x}-{found.st_dev:x}"


def _run(command: tuple[str, ...], config: dict[str, Any], log: IO[bytes], timeout_s: float) -> dict[str, Any] | None:
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=log,
        start_new_session=True,
        cwd="/",
        # WHY between fork and exec: systemd-run and its children enter the profile, and this process does not.
        preexec_fn=apparmor.enter_on_exec if apparmor.is_needed() else None,  # noqa: PLW1509 - two system calls
    )
    try:
        said, _ = process.communicate(json.dumps(config).encode(), timeout_s)
    except subprocess.TimeoutExpired:
        # WHY the whole group: a keeper is a child of the started process, and holds the other end of its output.
        # SAFE BECAUSE: the started process leads the group and has not been waited for, so its pid is not reused.
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return None
    try:
        answer = json.loads(said)
    except ValueError:
        return None
    return answer if isinstance(answer, dict) else None
