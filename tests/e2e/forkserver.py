"""A process that has imported the command line and the service, and forks for each command: see `forked.py`.

The child goes on below as `python -c "from warren.cli.main import main; main()"` would after its imports, and ends as
the interpreter ends. It has no descriptor but the three that it was given.
"""

from __future__ import annotations

import array
import contextlib
import gc
import json
import os
import select
import signal
import socket
import sys

_PACKET = 1 << 20
_MOST_FDS = 4


def serve(requests: socket.socket) -> list[str]:
    """Fork for each request, and say how each child ended. Returns in a child, with its arguments."""
    waiting: dict[int, tuple[int, socket.socket]] = {}
    poll = select.poll()
    poll.register(requests, select.POLLIN)
    while True:
        for fd, _ in poll.poll():
            if fd != requests.fileno():
                pid, answers = waiting.pop(fd)
                poll.unregister(fd)
                os.close(fd)
                _, status = os.waitpid(pid, 0)
                _answer(answers, {"code": os.waitstatus_to_exitcode(status)})
                answers.close()
                continue
            request, fds = _receive(requests)
            if not request:
                sys.exit()
            pid = os.fork()
            if pid == 0:
                return _become(json.loads(request), fds[:3])
            for each in fds[:3]:
                os.close(each)
            answers = socket.socket(fileno=fds[3])
            pidfd = os.pidfd_open(pid)
            waiting[pidfd] = (pid, answers)
            poll.register(pidfd, select.POLLIN)
            _answer(answers, {"pid": pid})


def _receive(requests: socket.socket) -> tuple[bytes, list[int]]:
    request, control, _, _ = requests.recvmsg(_PACKET, socket.CMSG_SPACE(4 * _MOST_FDS))
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
    arguments = request["arguments"]
    assert isinstance(arguments, list)
    return ["-c", *arguments]


if __name__ == "__main__":
    sys.path[0] = ""
    import uvicorn.protocols.http.httptools_impl
    import uvloop

    import warren.bootstrap.app
    import warren.cli.app
    import warren.cli.service.embedded
    import warren.core.service
    import warren.gateway.app
    from warren.cli.main import main

    del uvicorn, uvloop, warren
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    gc.freeze()
    sys.argv = serve(socket.socket(fileno=int(sys.argv[1])))
    signal.signal(signal.SIGINT, signal.default_int_handler)
    main()
