"""Running a process: a bash command, a program with its arguments, or a fresh Python forked by the nursery."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import time
from typing import TYPE_CHECKING, Any

from warren.guest import forking, processes
from warren.guest.explain import Ending
from warren.guest.request import open_folder, relative_folder
from warren.guest.run import Run

if TYPE_CHECKING:
    import resource

    from warren.guest.agent import Agent
    from warren.guest.execution import Execution


class ProcessRun(Run):
    """A process in its own session. It has ended when the operating system says so, whoever still holds its pipes."""

    def __init__(self, agent: Agent, execution: Execution) -> None:
        super().__init__(agent, execution)
        self._pid: int | None = None

    def start(self) -> None:
        """Start it. Raises Refused when the request cannot be met; nothing has happened then."""
        cwd = open_folder(self.agent.boot.workspace, self.agent.workspace_fd, self.request.cwd or ".")
        try:
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
        """Kill its group, its session, and in a sandbox whatever else it started."""
        if self._pid is not None:
            processes.send_group(self._pid, signal.SIGKILL)
            processes.end(self._pid, self.execution.id, contained=self.agent.boot.contained)

    def _environment(self) -> dict[str, str]:
        return {**self.agent.env, **self.request.env, processes.MARK: self.execution.id}

    def _spawn(self, cwd: int) -> None:
        assert self.pipes is not None
        argv = self.request.argv if self.request.kind == "argv" else ["bash", "-c", self.request.code]
        stdin, stdout, stderr = self.pipes.theirs
        env = self._environment()
        try:
            # SAFE BECAUSE: the agent has one thread and uses no relative path of its own.
            os.fchdir(cwd)
            process = subprocess.Popen(
                [_find_program(argv[0], env), *argv[1:]],
                stdin=stdin,
                stdout=stdout,
                stderr=stderr,
                env=env,
                close_fds=True,
                start_new_session=True,
            )
        except OSError as error:
            self._failed_to_start(argv[0], error)
            return
        finally:
            os.fchdir(self.agent.workspace_fd)
            self.pipes.close_theirs()
        # The loop reaps; without this Popen would warn about a process that it thinks is still running.
        process.returncode = 0
        forking.set_oom_score(forking.LIVE_OOM_SCORE, process.pid)
        self._watch(process.pid)

    def _fork_script(self) -> None:
        assert self.pipes is not None
        asked = time.monotonic()
        cwd = os.path.join(
            self.agent.boot.workspace, relative_folder(self.agent.boot.workspace, self.request.cwd or ".")
        )
        header: dict[str, Any] = {"mode": "script", "env": self._environment(), "cwd": cwd, "argv": self.request.argv}
        if self.request.echo == "stdout":
            header["echo"] = True
        if self.request.file:
            header["file"] = os.path.join(self.agent.boot.workspace, self.request.file)
        theirs = [os.dup(self.agent.null_fd), *self.pipes.theirs]
        self.pipes.theirs.clear()

        def spawned(pid: int | None, note: str | None) -> None:
            if pid is None:
                self._failed_to_start("warren", OSError(errno.EAGAIN, note or "no process could be made"))
            else:
                if note is not None:
                    self.execution.notes.append(note)
                self._watch(pid, asked)

        self.agent.nursery.spawn(header, self.request.code.encode(), theirs, spawned)

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
            # A forced end takes the whole tree along, also what ignored the interrupt.
            processes.end(self._pid, self.execution.id, contained=self.agent.boot.contained)
            self.agent.end_later(self.execution.id)
        self._pid = None
        self.pipes.finish(self.agent.leftovers)
        if status:
            self.free_memory()
        self.conclude(Ending(exit_code=processes.exit_code(status)), (usage.ru_utime + usage.ru_stime) * 1000)

    def _failed_to_start(self, name: str, error: OSError) -> None:
        """End as a shell ends when it cannot start a program."""
        assert self.pipes is not None
        self.write("stderr", f"{name}: {error.strerror}\n".encode("utf-8", "replace"))
        self.pipes.abandon()
        self.conclude(Ending(exit_code=127 if isinstance(error, FileNotFoundError) else 126), 0.0)


def _find_program(name: str, env: dict[str, str]) -> str:
    """Look a program up on the program's own PATH, not on ours."""
    if "/" in name:
        return name
    for folder in env.get("PATH", os.defpath).split(":"):
        path = os.path.join(folder or ".", name)
        if os.access(path, os.X_OK) and os.path.isfile(path):
            return path
    raise FileNotFoundError(errno.ENOENT, "command not found")
