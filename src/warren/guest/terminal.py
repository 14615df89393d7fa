"""PTY terminals: a program on a pseudo-terminal, its scroll-back, and any number of streams attached to it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import struct
import termios
from collections import deque
from typing import TYPE_CHECKING, Any, NoReturn

from warren.guest import processes
from warren.guest.forking import LIVE_OOM_SCORE, close_all_but, set_dumpable, set_oom_score
from warren.guest.loop import READ, WRITE
from warren.guest.parameters import Refused, get_env, get_name, get_number, get_strings, get_text
from warren.guest.request import open_folder
from warren.guest.streams import BUSY_BACKLOG
from warren.guest.wire import CHUNK

if TYPE_CHECKING:
    import resource
    from collections.abc import Callable

    from warren.guest.agent import Agent
    from warren.guest.streams import Stream

SCROLLBACK = 256 << 10
MAX_TERMINALS = 32
HANGUP_GRACE_S = 1.0


class Viewer:
    """One attached stream. A slow one falls behind and then skips to the scroll-back; it never holds the program."""

    def __init__(self, terminal: Terminal, stream: Stream) -> None:
        self._terminal = terminal
        self._stream = stream
        self._position = max(0, terminal.written - len(terminal.scrollback))
        stream.on_data = lambda data: terminal.type(stream, data)
        stream.on_credit = self.pump
        stream.on_close = lambda: terminal.detach(self)

    def pump(self) -> None:
        """Send what it has not seen, as far as credit goes, and when it has seen all the answer."""
        terminal, stream = self._terminal, self._stream
        start = terminal.written - len(terminal.scrollback)
        self._position = max(self._position, start)
        while self._position < terminal.written and stream.credit > 0 and not stream.closed:
            if stream.connection.backlog >= BUSY_BACKLOG:
                stream.connection.on_drained.add(self.pump)
                return
            at = self._position - start
            data = bytes(terminal.scrollback[at : at + min(CHUNK, stream.credit)])
            self._position += len(data)
            stream.send(data)
        if self._position == terminal.written and terminal.exit_code is not None:
            terminal.detach(self)
            stream.reply({"exit_code": terminal.exit_code})


class Terminal:
    """One program on a pseudo-terminal."""

    def __init__(self, agent: Agent, name: str, pid: int, master: int) -> None:
        self._agent = agent
        self._name = name
        self._pid = pid
        self._master: int | None = master
        self._viewers: list[Viewer] = []
        self._typed: deque[tuple[Stream, bytes]] = deque()
        self.scrollback = bytearray()
        self.written = 0
        """Bytes its program has written in all."""
        self.exit_code: int | None = None
        os.set_blocking(master, False)
        agent.loop.watch(master, READ, self._ready)
        agent.loop.on_exit(pid, self._exited)

    def attach(self, stream: Stream) -> None:
        """Show a stream the scroll-back and then what follows, and let it type."""
        viewer = Viewer(self, stream)
        self._viewers.append(viewer)
        viewer.pump()

    def detach(self, viewer: Viewer) -> None:
        """Let go of a stream; the program runs on."""
        if viewer in self._viewers:
            self._viewers.remove(viewer)

    def type(self, stream: Stream, data: bytes) -> None:
        """Queue what a stream typed; the stream's window bounds it."""
        self._typed.append((stream, data))
        self._write()

    def resize(self, columns: int, rows: int) -> None:
        """Tell the program its new size."""
        if self._master is not None:
            set_size(self._master, columns, rows)

    def hang_up(self) -> None:
        """End the program as a closed window would, and kill it if that is not enough."""
        processes.send_group(self._pid, signal.SIGHUP)
        self._agent.loop.call_later(HANGUP_GRACE_S, self._kill)

    def _kill(self) -> None:
        if self._master is not None:
            processes.send_group(self._pid, signal.SIGKILL)
            processes.end(self._pid, None, contained=self._agent.boot.contained)

    def _ready(self, events: int) -> None:
        if events & WRITE:
            self._write()
        if events & READ:
            self._read()

    def _read(self) -> bool:
        if self._master is None:
            return False
        try:
            data = os.read(self._master, 64 << 10)
        except BlockingIOError:
            return False
        except OSError:
            data = b""
        if not data:
            # Every program has closed it; its exit follows, and until then there is nothing to read.
            self._agent.loop.unwatch(self._master)
            return False
        self.written += len(data)
        self.scrollback += data
        if len(self.scrollback) > SCROLLBACK:
            del self.scrollback[: len(self.scrollback) - SCROLLBACK]
        for viewer in list(self._viewers):
            viewer.pump()
        return True

    def _write(self) -> None:
        while self._typed and self._master is not None:
            stream, data = self._typed[0]
            try:
                done = os.write(self._master, data)
            except BlockingIOError:
                self._agent.loop.watch(self._master, READ | WRITE, self._ready)
                return
            except OSError:
                done = len(data)
            stream.consumed(done)
            if done < len(data):
                self._typed[0] = (stream, data[done:])
            else:
                self._typed.popleft()
        if self._master is not None:
            self._agent.loop.watch(self._master, READ, self._ready)

    def _exited(self, status: int, _usage: resource.struct_rusage) -> None:
        assert self._master is not None
        # Bounded: a background process may write to the terminal for ever.
        for _ in range(16):
            if not self._read():
                break
        self._agent.loop.unwatch(self._master)
        os.close(self._master)
        self._master = None
        self._agent.terminals.pop(self._name, None)
        self.exit_code = processes.exit_code(status)
        for viewer in list(self._viewers):
            viewer.pump()


def set_size(master: int, columns: int, rows: int) -> None:
    """Set the size of a terminal."""
    fcntl.ioctl(master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


def _open(agent: Agent, stream: Stream, params: dict[str, Any], _payload: bytes) -> None:
    name = get_name(params, "terminal")
    argv = get_strings(params, "argv") or ["bash", "-i"]
    columns, rows = _size(params)
    env = {"TERM": "xterm-256color", **agent.env, **get_env(params)}
    if name in agent.terminals:
        raise Refused("conflict", f"terminal {name} exists already")
    if len(agent.terminals) >= MAX_TERMINALS:
        raise Refused("conflict", f"there are {MAX_TERMINALS} terminals already: close one")
    cwd = open_folder(agent.boot.workspace, agent.workspace_fd, get_text(params, "cwd", "."))
    master, slave = os.openpty()
    try:
        set_size(master, columns, rows)
        pid = os.fork()
        if pid == 0:
            _become(argv, env, cwd, slave)
    except OSError as error:
        os.close(master)
        raise Refused("conflict", f"the terminal could not be started: {error.strerror}") from error
    finally:
        os.close(slave)
        os.close(cwd)
    terminal = agent.terminals[name] = Terminal(agent, name, pid, master)
    terminal.attach(stream)


def _become(argv: list[str], env: dict[str, str], cwd: int, slave: int) -> NoReturn:
    """Turn the forked child into the program; nothing of the agent may be left open or ignored."""
    try:
        os.setsid()
        fcntl.ioctl(slave, termios.TIOCSCTTY, 0)
        os.fchdir(cwd)
        for target in (0, 1, 2):
            os.dup2(slave, target)
        close_all_but((0, 1, 2))
        set_dumpable(True)
        signal.set_wakeup_fd(-1)
        for number in signal.valid_signals():
            with contextlib.suppress(OSError, ValueError):
                signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        set_oom_score(LIVE_OOM_SCORE)
        os.execvpe(argv[0], argv, env)  # noqa: S606  # a program for the user, by argument list
    except BaseException as error:
        os.write(2, f"{argv[0]}: {error}\r\n".encode("utf-8", "replace"))
    finally:
        os._exit(127)


def _attach(agent: Agent, stream: Stream, params: dict[str, Any], _payload: bytes) -> None:
    _find(agent, params).attach(stream)


def _resize(agent: Agent, stream: Stream, params: dict[str, Any], _payload: bytes) -> None:
    _find(agent, params).resize(*_size(params))
    stream.reply()


def _close(agent: Agent, stream: Stream, params: dict[str, Any], _payload: bytes) -> None:
    _find(agent, params).hang_up()
    stream.reply()


def _find(agent: Agent, params: dict[str, Any]) -> Terminal:
    name = get_name(params, "terminal")
    found = agent.terminals.get(name)
    if found is None:
        raise Refused("not_found", f"there is no terminal {name}")
    return found


def _size(params: dict[str, Any]) -> tuple[int, int]:
    return get_number(params, "cols", 80, low=1, high=1000), get_number(params, "rows", 24, low=1, high=1000)


OPERATIONS: dict[str, Callable[[Agent, Stream, dict[str, Any], bytes], None]] = {
    "terminal.open": _open,
    "terminal.attach": _attach,
    "terminal.resize": _resize,
    "terminal.close": _close,
}
