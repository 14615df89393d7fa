"""MCP over standard input and output: one message a line, and nothing else on standard output.

Not the library's own: it reads in a thread that cannot be ended while the client is silent, so that a command could
not stop.
"""

from __future__ import annotations

import contextlib
import os
import stat
from typing import TYPE_CHECKING

import anyio
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from anyio.abc import ObjectReceiveStream, ObjectSendStream

    Incoming = ObjectReceiveStream[SessionMessage | Exception]
    Outgoing = ObjectSendStream[SessionMessage]

MAX_LINE_BYTES = 16 << 20
_PIECE = 65_536
_SAFE_WRITE = 4096
"""A pipe that is ready takes this many bytes without blocking."""


@contextlib.contextmanager
def claimed_descriptors() -> Iterator[tuple[int, int]]:
    """Take over standard input and output: other readers get end of file, other prints go to standard error.

    They are not restored: nothing but the protocol belongs on them.
    """
    reader, writer = (os.dup(number) for number in (0, 1))
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    try:
        yield reader, writer
    finally:
        os.close(reader)
        os.close(writer)


@contextlib.asynccontextmanager
async def stdio_streams(reader: int, writer: int) -> AsyncIterator[tuple[Incoming, Outgoing]]:
    """Open streams of messages over two descriptors."""
    to_server, from_client = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    to_client, from_server = anyio.create_memory_object_stream[SessionMessage](0)

    async def read() -> None:
        async with to_server:
            async for line in _lines(reader):
                with contextlib.suppress(anyio.BrokenResourceError):
                    await to_server.send(_parse(line))

    async def write() -> None:
        async with from_server:
            async for message in from_server:
                text = message.message.model_dump_json(by_alias=True, exclude_unset=True)
                if not await _write(writer, text.encode("utf-8", "replace") + b"\n"):
                    break

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(read)
        tasks.start_soon(write)
        yield from_client, to_client
        tasks.cancel_scope.cancel()


def _parse(line: bytes) -> SessionMessage | Exception:
    try:
        return SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False))
    except ValueError as exc:
        return exc


async def _lines(descriptor: int) -> AsyncIterator[bytes]:
    """Yield lines; one that is too long is dropped."""
    # WHY: epoll refuses regular files, which are always ready.
    is_file = stat.S_ISREG(os.fstat(descriptor).st_mode)
    pending = bytearray()
    is_too_long = False
    while True:
        if is_file:
            await anyio.lowlevel.checkpoint()
        else:
            await anyio.wait_readable(descriptor)
        piece = os.read(descriptor, _PIECE)
        if not piece:
            return
        *whole, rest = piece.split(b"\n")
        for part in whole:
            pending += part
            if pending.strip() or is_too_long:
                yield b"" if is_too_long else bytes(pending)
            pending.clear()
            is_too_long = False
        pending += rest
        if len(pending) > MAX_LINE_BYTES:
            is_too_long = True
            pending.clear()


async def _write(descriptor: int, data: bytes) -> bool:
    """Write everything without blocking the loop; False once the reader is gone."""
    is_file = stat.S_ISREG(os.fstat(descriptor).st_mode)
    view = memoryview(data)
    while view:
        try:
            if not is_file:
                await anyio.wait_writable(descriptor)
            view = view[os.write(descriptor, view[:_SAFE_WRITE]) :]
        except OSError:
            return False
    return True
