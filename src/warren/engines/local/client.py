"""Keeper client: the engine's end of the keeper's socket. Any number of requests at once."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
from typing import TYPE_CHECKING, Any

from warren.domain.errors import EngineUnavailable, StartFailed, by_code
from warren.engines import unix_sockets
from warren.guest.wire.frames import Decoder, ProtocolError, encode

if TYPE_CHECKING:
    from warren.guest.wire.frames import Header

_HELLO_TIMEOUT_S = 10.0


class KeeperGone(EngineUnavailable):
    """The keeper ended before it answered; the next keeper adopts its sandboxes."""


class KeeperClient:
    """A connection to a keeper. Answers are matched to requests by id."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._ids = itertools.count(1, 2)
        self._waiting: dict[int, asyncio.Future[Header]] = {}
        self._hello: asyncio.Future[Header] = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._read())
        self.hello: Header = {}

    @classmethod
    async def connect(cls, path: str) -> KeeperClient:
        """Connect and wait for its greeting. Raises OSError when no keeper listens."""
        client = cls(*await asyncio.open_unix_connection(sock=unix_sockets.connect_socket(path)))
        try:
            client.hello = await asyncio.wait_for(asyncio.shield(client._hello), _HELLO_TIMEOUT_S)
        except (TimeoutError, KeeperGone) as error:
            await client.aclose()
            raise ConnectionResetError("the keeper does not greet") from error
        return client

    @property
    def is_open(self) -> bool:
        """Whether the keeper is connected."""
        return not self._task.done()

    async def call(self, op: str, **params: Any) -> Header:
        """Request one operation. Raises the error of the keeper's answer, or KeeperGone."""
        number = next(self._ids)
        answer: asyncio.Future[Header] = asyncio.get_running_loop().create_future()
        if not self.is_open:
            raise KeeperGone("the keeper is gone")
        self._waiting[number] = answer
        payload = json.dumps(params).encode()
        self._writer.writelines(bytes(part) for part in encode({"t": "req", "id": number, "op": op}, payload))
        try:
            reply = await answer
        finally:
            self._waiting.pop(number, None)
        if reply["t"] == "err":
            raise (by_code(str(reply.get("code"))) or StartFailed)(str(reply.get("message")))
        return reply

    async def aclose(self) -> None:
        """Close the connection; the keeper goes on."""
        self._task.cancel()
        await asyncio.wait([self._task])
        self._writer.close()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()

    async def _read(self) -> None:
        decoder = Decoder()
        try:
            while data := await self._reader.read(1 << 18):
                for header, payload in decoder.feed(data):
                    self._take(header, payload)
        except (OSError, ProtocolError):
            pass
        finally:
            for future in (self._hello, *self._waiting.values()):
                if not future.done():
                    future.set_exception(KeeperGone("the keeper ended before it answered; try again"))
            # No task may wait for the greeting any more; this marks its exception as retrieved.
            if self._hello.done() and not self._hello.cancelled():
                self._hello.exception()

    def _take(self, header: Header, payload: bytes) -> None:
        if payload:
            header["body"] = json.loads(payload)
        future = self._hello if header["t"] == "hello" else self._waiting.get(header.get("id", 0))
        if future is not None and not future.done():
            future.set_result(header)
