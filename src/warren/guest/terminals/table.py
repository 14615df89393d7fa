"""The terminals of a sandbox by name, and the operations on them."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import termios
from typing import TYPE_CHECKING, Any, NoReturn

from warren.guest.executions.request import open_folder
from warren.guest.system import landlock
from warren.guest.system.forking import LIVE_OOM_SCORE, close_all_but, set_dumpable, set_oom_score
from warren.guest.terminals.terminal import Terminal, set_size
from warren.guest.wire.parameters import Refused, get_env, get_flag, get_name, get_number, get_strings, get_text

if TYPE_CHECKING:
    from collections.abc import Callable

    from warren.guest.agent import Agent
    from warren.guest.wire.streams import Stream

MAX_TERMINALS = 32
_ENV = {"TERM": "xterm-256color", "PS1": r"sandbox:\w\$ "}


def _list(agent: Agent, stream: Stream, _params: dict[str, Any], _payload: bytes) -> None:
    stream.reply({"terminals": [terminal.describe() for terminal in agent.terminals.values()]})


def _open(agent: Agent, stream: Stream, params: dict[str, Any], payload: bytes) -> None:
    name = get_name(params, "terminal")
    if name in agent.terminals and get_flag(params, "attach", default=False):
        _attach(agent, stream, params, payload)
        return
    argv = get_strings(params, "argv") or ["bash", "-i"]
    columns, rows = _size(params)
    env = {**_ENV, **agent.env, **get_env(params)}
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
    terminal = agent.terminals[name] = Terminal(agent, name, pid, master, argv[0])
    terminal.attach(stream)


def _become(argv: list[str], env: dict[str, str], cwd: int, slave: int) -> NoReturn:
    """Turn the forked child into the program; no descriptor or ignored signal of the agent may be left."""
    try:
        os.setsid()
        landlock.enter()
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
    terminal = _find(agent, params)
    if "cols" in params or "rows" in params:
        terminal.resize(*_size(params))
    terminal.attach(stream)


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
    "terminals": _list,
    "terminal.open": _open,
    "terminal.attach": _attach,
    "terminal.resize": _resize,
    "terminal.close": _close,
}
