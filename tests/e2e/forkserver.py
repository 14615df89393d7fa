"""A process that has imported the command line and the service, and forks for each command: see `forked.py`.

The child goes on below as `python -c "from warren.cli.main import main; main()"` would after its imports, and ends as
the interpreter ends. It has no descriptor but the three that it was given.
"""

from __future__ import annotations

import array
import contextlib
import gc
import importlib
import json
import os
import pkgutil
import select
import signal
import socket
import sys

_PACKET = 1 << 20
_MOST_FDS = 3
_LATE = (
    "anyio._backends._asyncio",
    "anyio._core._signals",
    "httpcore",
    "httpx",
    "pydantic.type_adapter",
    "typer._adapters",
    "typer._click.decorators",
    "uvicorn.lifespan.off",
    "uvicorn.protocols.http.httptools_impl",
    "uvloop",
    "warren.bootstrap.app",
    "warren.core.service",
    "warren.engines.bare.engine",
    "warren.engines.local.engine",
    "warren.gateway.app",
    "warren.gateway.ops.logs",
    "warren.gateway.server.local_socket",
    "warren.gateway.server.protocol",
    "warren.gateway.server.websocket_protocol",
    "warren.sdk",
    "warren.sdk.public",
    "warren.stores.sqlite",
)


def serve(listener: socket.socket) -> list[str]:
    """Fork for each connection, and say there how the child ended. Returns in a child, with its arguments.

    Ends at the end of standard input.
    """
    waiting: dict[int, tuple[int, socket.socket]] = {}
    poll = select.poll()
    poll.register(listener, select.POLLIN)
    poll.register(0, select.POLLIN)
    while True:
        for fd, _ in poll.poll():
            if fd == 0:
                sys.exit()
            if fd != listener.fileno():
                pid, answers = waiting.pop(fd)
                poll.unregister(fd)
                os.close(fd)
                _, status = os.waitpid(pid, 0)
                _answer(answers, {"code": os.waitstatus_to_exitcode(status)})
                answers.close()
                continue
            answers, _ = listener.accept()
            request, fds = _receive(answers)
            if not request:
                answers.close()
                continue
            pid = os.fork()
            if pid == 0:
                return _become(json.loads(request), fds)
            for each in fds:
                os.close(each)
            pidfd = os.pidfd_open(pid)
            waiting[pidfd] = (pid, answers)
            poll.register(pidfd, select.POLLIN)
            _answer(answers, {"pid": pid})


def _receive(answers: socket.socket) -> tuple[bytes, list[int]]:
    request, control, _, _ = answers.recvmsg(_PACKET, socket.CMSG_SPACE(4 * _MOST_FDS))
    fds = array.array("i")
    for _, _, data in control:
        fds.frombytes(data)
    return request, list(fds)


def _answer(answers: socket.socket, said: dict[str, int]) -> None:
    with contextlib.suppress(OSError):  # the test may have forgotten its child
        answers.send(json.dumps(said).encode())


def _become(request: dict[str, object], fds: list[int]) -> list[str]:
    if request["session"]:
        os.setsid()
    for target, fd in enumerate(fds):
        os.dup2(fd, target)
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    # What an interpreter makes of its three descriptors where no language is set.
    sys.stdin = open(0, encoding="utf-8", errors="surrogateescape", closefd=False)  # noqa: SIM115 - for good
    is_terminal = os.isatty(1)
    sys.stdout = open(  # noqa: SIM115 - for good
        1, "w", buffering=1 if is_terminal else -1, encoding="utf-8", errors="surrogateescape", closefd=False
    )
    sys.stderr = open(2, "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115
    os.environ.clear()
    os.environ.update(request["env"])  # type: ignore[call-overload]  # text by text
    os.chdir(str(request["cwd"]))
    os.umask(int(str(request["umask"])))
    arguments = request["arguments"]
    assert isinstance(arguments, list)
    return ["-c", *arguments]


def import_commands() -> None:
    """Import what commands and the service import, also what they import only once they are asked for something."""
    for name in _LATE:
        importlib.import_module(name)
    for each in pkgutil.walk_packages(warren.cli.__path__, "warren.cli."):
        if not each.name.endswith("__main__"):
            importlib.import_module(each.name)


if __name__ == "__main__":
    sys.path[0] = ""
    import warren.cli
    from warren.cli.main import main

    import_commands()
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    gc.freeze()
    sys.argv = serve(socket.socket(fileno=int(sys.argv[1])))
    signal.signal(signal.SIGINT, signal.default_int_handler)
    main()
