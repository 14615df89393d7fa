"""Hand a command to the fork server of a test process, and end as the command ends: see `forked.py`.

Run as a program, with the server's address and the command's arguments, it is `warren` on the `PATH` of a shell.
Standard library only, and little of it: a shell starts one of these for each command.
"""

import array
import json
import os
import signal
import socket
import sys


def ask(address: str, request: dict[str, object], fds: list[int]) -> socket.socket:
    """Ask for a child with these three descriptors; its pid and then its exit code come over the connection."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        connection.connect(address)
        control = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))]
        connection.sendmsg([json.dumps(request).encode()], control)
    except BaseException:
        connection.close()
        raise
    return connection


def main() -> None:
    """Stand for the command: pass signals on to it, and end with its exit code or by its signal."""
    forwarded = [
        each for each in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM) if signal.getsignal(each) is not signal.SIG_IGN
    ]
    signal.pthread_sigmask(signal.SIG_BLOCK, forwarded)
    mask = os.umask(0)
    request = {"arguments": sys.argv[2:], "env": dict(os.environ), "cwd": os.getcwd(), "session": False, "umask": mask}
    connection = ask(sys.argv[1], request, [0, 1, 2])
    pid = json.loads(connection.recv(1000))["pid"]
    for each in forwarded:
        signal.signal(each, lambda number, _: os.kill(pid, number))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, forwarded)
    code = json.loads(connection.recv(1000))["code"]
    if code < 0:
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    # Not `sys.exit`: the command has flushed these descriptors, and a closed one is no failure of its own.
    os._exit(code)


if __name__ == "__main__":
    main()
