"""Process runs: a bash command, a program with its arguments, or a fresh Python from the forkserver."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import subprocess
import time
from typing import TYPE_CHECKING, Any

from warren.guest.executions.cause import Ending
from warren.guest.executions.request import open_folder, relative_folder
from warren.guest.executions.run import Run
from warren.guest.files import scratch
from warren.guest.system import forking, landlock, processes
from warren.guest.wire import claims
from warren.guest.wire.frames import MAX_HEADER

if TYPE_CHECKING:
    import resource

    from warren.guest.agent import Agent
    from warren.guest.executions.execution import Execution


_RUN_SCRIPT = 'IFS= read -rd "" -u {fd} BASH_EXECUTION_STRING; exec {fd}<&-; eval "$BASH_EXECUTION_STRING"'
"""Runs a script with the names, line numbers and variables of `bash -c SCRIPT`.

WHY not that: the text would be an argument, and `pkill -f` in it would find the shell that runs it.
"""


class ProcessRun(Run):
    """A process in its own session. It ends with its exit status, even while another process holds its pipes."""

    def __init__(self, agent: Agent, execution: Execution) -> None:
        super().__init__(agent, execution)
        self._pid: int | None = None
        self._made = ""
        """The file of a script in the workspace, while it runs."""
        self._claim: int | None = None
        """Memory in which a script claims which exception ended it."""

    def start(self) -> None:
        """Start it. Raises Refused, with nothing started, when the request cannot be met."""
        cwd = open_folder(self.agent.boot.workspace, self.agent.workspace_fd, self.request.cwd or ".")
        try:
            if self.request.scratch and self.agent.boot.contained:
                scratch.make_empty(self.agent.loop, self.request.scratch)
            self.open_pipes()
            self.begin()
            if self.request.kind == "script":
                self._fork_script()
            else:
                self._spawn(cwd)
        finally:
            os.close(cwd)

    def send_interrupt(self) -> None:
        """Send SIGINT to its process group."""
        if self._pid is not None:
            processes.send_group(self._pid, signal.SIGINT)

    def send_kill(self) -> None:
        """Kill its group, its session, and in a sandbox all other processes that it started."""
        if self._pid is not None:
            processes.send_group(self._pid, signal.SIGKILL)
            processes.end(self._pid, self.execution.id, contained=self.agent.boot.contained)

    def _environment(self) -> dict[str, str]:
        return {**self.agent.env, **self.request.env, processes.MARK: self.execution.id}

    def _spawn(self, cwd: int) -> None:
        assert self.pipes is not None
        script = self._keep_script()
        argv = self.request.argv
        if script:
            # What follows the code of `-c` is $0, and then the arguments.
            named = ("bash", *argv) if argv else ()
            argv = ("bash", "-c", _RUN_SCRIPT.format(fd=script[0]), *named)
        stdin, stdout, stderr = self.pipes.theirs
        env = self._environment()

        def start() -> subprocess.Popen[bytes]:
            return subprocess.Popen(
                [_find_program(argv[0], env), *argv[1:]],
                stdin=stdin,
                stdout=stdout,
                stderr=stderr,
                env=env,
                pass_fds=script,
                start_new_session=True,
            )

        try:
            # SAFE BECAUSE: the agent has one thread and uses no relative path of its own.
            os.fchdir(cwd)
            process = landlock.call_inside(start, alone=self.request.kill_leftovers)
        except OSError as error:
            self._failed_to_start(argv[0], error)
            return
        finally:
            os.fchdir(self.agent.workspace_fd)
            self.pipes.close_theirs()
            for fd in script:
                os.close(fd)
        # The loop reaps; without this Popen would warn that the process is still running.
        process.returncode = 0
        forking.set_oom_score(forking.LIVE_OOM_SCORE, process.pid)
        self._watch(process.pid)

    def _keep_script(self) -> tuple[int, ...]:
        """Put the text of a shell script into a memory file, which bash reads; empty for a program."""
        if self.request.kind != "shell":
            return ()
        memory = os.memfd_create("script", os.MFD_CLOEXEC)
        with open(memory, "wb", closefd=False) as file:
            file.write(self.request.code.encode())
        os.lseek(memory, 0, os.SEEK_SET)
        return (memory,)

    def _fork_script(self) -> None:
        assert self.pipes is not None
        asked = time.monotonic()
        cwd = os.path.join(
            self.agent.boot.workspace, relative_folder(self.agent.boot.workspace, self.request.cwd or ".")
        )
        header: dict[str, Any] = {"mode": "script", "env": self._environment(), "cwd": cwd, "argv": self.request.argv}
        if self.request.kill_leftovers:
            header["alone"] = True
        if self.request.echo == "stdout":
            header["echo"] = "stdout"
        if self.request.label:
            header["label"] = self.request.label
        if self.request.figures and self.agent.boot.contained:
            header["figures"] = self.request.figures
        self._claim = os.memfd_create("claim", os.MFD_CLOEXEC)
        theirs = [os.dup(self._claim), *self.pipes.theirs]
        self.pipes.theirs.clear()
        if self.request.file and self._take(self.request.file):
            self._made = self.request.file
            header["file"] = os.path.join(self.agent.boot.workspace, self._made)

        def spawned(pid: int | None, note: str | None) -> None:
            if pid is None:
                self._failed_to_start("warren", OSError(errno.EAGAIN, note or "no process could be made"))
            else:
                if note is not None:
                    self.execution.notes.append(note)
                self._watch(pid, asked)

        self.agent.forkserver.spawn(header, self.request.code.encode(), theirs, spawned)

    def _take(self, name: str) -> bool:
        """Make the empty file of a script; False where the name is taken, and that file stays as it is."""
        # WHY not in the script: the agent removes it in the end, and must not remove a file of another program.
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        try:
            made = os.open(name, flags, dir_fd=self.agent.workspace_fd)
        except OSError:
            return False
        with contextlib.suppress(OSError):
            os.fchmod(made, 0o644)
        os.close(made)
        return True

    def _remove_made(self) -> None:
        if self._made:
            with contextlib.suppress(OSError):
                os.unlink(self._made, dir_fd=self.agent.workspace_fd)

    def _watch(self, pid: int, since: float | None = None) -> None:
        self._pid = pid
        self.agent.loop.on_exit(pid, self._exited, since)
        if self.deadline.asked is not None:
            self.send_kill()
        elif self.deadline.interrupted:
            self.send_interrupt()

    def _exited(self, status: int, usage: resource.struct_rusage) -> None:
        assert self._pid is not None
        assert self.pipes is not None
        self.deadline.cancel()
        if self.deadline.asked is not None or self.request.kill_leftovers:
            # A forced end kills the whole tree, also processes that ignored the interrupt.
            processes.end(self._pid, self.execution.id, contained=self.agent.boot.contained)
            self.agent.end_later(self.execution.id)
        self._pid = None
        self._remove_made()
        self.pipes.finish()
        if status:
            self.free_memory()
        ending = Ending(exit_code=os.waitstatus_to_exitcode(status), error=self._read_claim())
        self.conclude(ending, (usage.ru_utime + usage.ru_stime) * 1000, **self._collect())

    def _read_claim(self) -> dict[str, str] | None:
        if self._claim is None:
            return None
        try:
            # By position: the program shares the open file, and may have moved its offset.
            return claims.read_error(os.pread(self._claim, MAX_HEADER, 0))
        finally:
            os.close(self._claim)
            self._claim = None

    def _collect(self) -> dict[str, Any]:
        if not self.request.collect or not self.agent.boot.contained:
            return {}
        entries, complete = scratch.collect(self.request.collect)
        return {"collected": entries, "collected_complete": complete}

    def _failed_to_start(self, name: str, error: OSError) -> None:
        """End as a shell ends when it cannot start a program."""
        assert self.pipes is not None
        self.write("stderr", f"{name}: {error.strerror}\n".encode("utf-8", "replace"))
        self._remove_made()
        self.pipes.abandon()
        self._read_claim()
        self.conclude(Ending(exit_code=127 if isinstance(error, FileNotFoundError) else 126), 0.0)


def _find_program(name: str, env: dict[str, str]) -> str:
    """Look up a program on its own PATH, not on the agent's."""
    if "/" in name:
        return name
    for folder in env.get("PATH", os.defpath).split(":"):
        path = os.path.join(folder or ".", name)
        if os.access(path, os.X_OK) and os.path.isfile(path):
            return path
    raise FileNotFoundError(errno.ENOENT, "command not found")
