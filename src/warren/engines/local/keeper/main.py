"""The keeper: the only privileged process. Makes roots, control groups, id maps and workspaces; runs no foreign code.

The engine starts it as `python -I -m warren.engines.local.keeper.main DATA_DIR`. It outlives the engine, and the next
engine connects to it. It speaks frames of the wire on a socket that only its own user can reach, and imports nothing of
an image.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
import resource
import signal
import sys
from typing import TYPE_CHECKING, Any

from warren.domain.errors import Error, InvalidRequest
from warren.engines import state_files, unix_sockets
from warren.engines.local import spawn
from warren.engines.local.keeper.sandboxes import Sandboxes
from warren.guest.wire.frames import CHUNK, Decoder, ProtocolError, encode

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from warren.guest.wire.frames import Header

IDLE_S = 600.0
"""A keeper without sandboxes and connections ends after this time, with its zygotes."""
_RETRY_S = 0.01


class Keeper:
    """Serves engines over a unix socket; sandboxes.py has the operations."""

    def __init__(self, sandboxes: Sandboxes, idle_s: float = IDLE_S) -> None:
        self._sandboxes = sandboxes
        self._idle_s = idle_s
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()
        self._ended = asyncio.Event()
        self._is_terminated = False
        self._operations: dict[str, Callable[[Header], Awaitable[Header]]] = {
            "create": self._sandboxes.create,
            "start": self._sandboxes.start,
            "stop": self._sandboxes.stop,
            "destroy": self._sandboxes.destroy,
            "resize": self._sandboxes.resize,
            "usage": self._sandboxes.usage,
            "list": self._sandboxes.list_all,
            "retire": self._retire,
        }

    async def serve(self, path: str) -> None:
        """Serve until retired, terminated or idle; return at once where another keeper serves."""
        lock = await _lock_socket(path)
        if lock is None:
            _tell_starter(None)
            return
        await self._sandboxes.open()
        listener = unix_sockets.listen(path)
        server = await asyncio.start_unix_server(self._connected, sock=listener, limit=CHUNK)
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, self._terminate)
        _tell_starter(None)
        idle = asyncio.create_task(self._watch_idle())
        await self._ended.wait()
        idle.cancel()
        # Not `async with`: since Python 3.12 that waits for connected engines, and they wait for our end.
        server.close()
        # WHY: where the data folder was deleted and made again, its files, this socket too, are of another keeper.
        is_ours = _is_in_place(lock, path)
        # From here on engines start another keeper, which waits until this one has ended.
        if is_ours:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=5)
        if self._is_terminated:
            await self._sandboxes.stop_all()
        await self._sandboxes.close(is_displaced=not is_ours)
        for writer in self._writers:
            writer.close()
        while self._writers:
            await asyncio.sleep(0)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        decoder = Decoder()
        _send(writer, {"t": "hello", **self._sandboxes.describe(), "pid": os.getpid()})
        try:
            while data := await reader.read(CHUNK):
                if self._ended.is_set():
                    # WHY: no keeper would own a sandbox made now. The engine is disconnected, and calls the next one.
                    continue
                for header, payload in decoder.feed(data):
                    task = asyncio.create_task(self._answer(writer, header, payload))
                    self._tasks.add(task)
                    task.add_done_callback(self._tasks.discard)
        except (OSError, ProtocolError):
            pass
        finally:
            self._writers.discard(writer)
            writer.close()

    async def _answer(self, writer: asyncio.StreamWriter, header: Header, payload: bytes) -> None:
        answer: Header = {"t": "ok", "id": header.get("id")}
        try:
            operation = self._operations.get(str(header.get("op")), _refuse)
            answer |= await operation(json.loads(payload) if payload else {})
        except Error as error:
            answer |= {"t": "err", "code": error.code, "message": str(error)}
        except Exception as error:  # noqa: BLE001  (without an answer the engine waits for ever)
            answer |= {"t": "err", "code": "start_failed", "message": f"{type(error).__name__}: {error}"}
        if not writer.is_closing():
            _send(writer, answer)

    async def _retire(self, _params: Header) -> Header:
        """End the keeper and its zygotes, not the sandboxes: another keeper adopts them."""
        asyncio.get_running_loop().call_soon(self._ended.set)
        return {}

    def _terminate(self) -> None:
        """End, with all sandboxes: the machine shuts down, or their scope is stopped."""
        self._is_terminated = True
        self._ended.set()

    async def _watch_idle(self) -> None:
        idle = 0.0
        while idle < self._idle_s:
            await asyncio.sleep(self._idle_s / 20)
            with contextlib.suppress(OSError):
                state_files.trim(2)
            busy = self._writers or self._sandboxes.is_busy
            idle = 0.0 if busy else idle + self._idle_s / 20
        self._ended.set()


async def _lock_socket(path: str) -> int | None:
    """Wait until an ending keeper has ended: what it still removes would be ours, groups and all.

    Returns the lock; None when another serves, whose starter was cancelled or killed before this one was started.
    """
    # Never closed: it ends with this process.
    lock = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    while True:
        try:
            # WHY not flock: this lock belongs to this process alone, also while a forked child has the descriptor.
            fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            with contextlib.suppress(OSError):
                unix_sockets.connect_socket(path).close()
                return None
            await asyncio.sleep(_RETRY_S)
        else:
            return lock


def _is_in_place(lock: int, path: str) -> bool:
    """Whether the lock is that of the socket at `path`, not that of a folder that was there before."""
    try:
        return os.path.samestat(os.fstat(lock), os.stat(f"{path}.lock"))
    except FileNotFoundError:
        return False


async def _refuse(_params: Header) -> Header:
    raise InvalidRequest("the keeper has no such operation")


def _send(writer: asyncio.StreamWriter, header: Header) -> None:
    # A large body goes as payload, not in the header: only `list` grows with the number of sandboxes.
    body = header.pop("body", None)
    payload = b"" if body is None else json.dumps(body).encode()
    with contextlib.suppress(OSError):
        writer.writelines(bytes(part) for part in encode(header, payload))


def _tell_starter(error: Header | None) -> None:
    """Report the result of the start on standard output, and close it."""
    print(json.dumps({"error": error}), flush=True)
    os.dup2(2, 1)


def main(argv: list[str]) -> int:
    """Run the keeper of the data folder in `argv`; the configuration comes as JSON on standard input."""
    config: dict[str, Any] = json.loads(sys.stdin.read())
    if os.fork():
        # WHY: init adopts and reaps the keeper, so no engine has to wait for its end.
        os._exit(0)
    os.umask(0o077)
    # Each running sandbox holds one descriptor, so this bounds the number of sandboxes.
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)
    sandboxes = Sandboxes(
        argv[1],
        optional_layers=frozenset(config["optional_layers"]),
        search=spawn.read_search(argv[1], config),
        debug=bool(config["debug"]),
    )
    try:
        asyncio.run(Keeper(sandboxes).serve(os.path.join(argv[1], "keeper.sock")))
    except Error as error:
        _tell_starter({"code": error.code, "message": str(error)})
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
