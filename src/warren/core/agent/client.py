"""Agent client: runs code in one sandbox, follows it, and handles its kernels, terminals, ports and files."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from warren.core.agent.events import Shown, parse_event
from warren.core.agent.streams import ALL_CONNECTIONS, ByteStream, Unread
from warren.core.agent.terminals import Terminal, TerminalClient
from warren.core.agent.values import Kernel, get_int, get_objects, get_str, parse_kernel
from warren.guest.wire.frames import CHUNK, WINDOW, ProtocolError
from warren.guest.wire.run_request import encode_run

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable, Mapping

    from warren.core.agent.streams import AgentStream
    from warren.domain.values import Event, ExecRequest, ExecResult
    from warren.engines.base import Channel
    from warren.guest.wire.frames import Header


__all__ = ["AgentClient", "ByteStream", "Terminal", "TunnelStream"]


class TunnelStream(ByteStream):
    """A connection that a program inside made to a port we listen on."""

    def __init__(self, stream: AgentStream, listener: str, host: str, port: int) -> None:
        super().__init__(stream)
        self.listener = listener
        self.host = host
        self.port = port


class AgentClient(TerminalClient):
    """One connection to one sandbox's agent: use it with `async with`, or `await AgentClient.open(channel, tasks)`."""

    def __init__(self, channel: Channel, unread: Unread = ALL_CONNECTIONS) -> None:
        super().__init__(channel, unread)
        self.on_tunnel: dict[str, Callable[[TunnelStream], Awaitable[None]]] = {}
        """By listener: called in a task of ours for each connection from inside. Without a handler it is refused."""

    async def run(
        self,
        request: ExecRequest,
        *,
        stdin: bytes | AsyncIterable[bytes] | None = None,
        on_event: Callable[[Event], None] | None = None,
    ) -> ExecResult:
        """Run something and return its result. If the caller is cancelled it runs on: `attach` finds it."""
        stream = await self._start_run(request, stdin)
        shown, end = Shown(), stream.close
        try:
            while (event := await self._next_event(stream, request.id, shown)) is not None:
                if on_event is not None:
                    on_event(event)
                if event.result is not None:
                    end = stream.release
                    return event.result
        finally:
            end()
        raise self.break_off(ProtocolError("an execution ended without a result"))

    def stream(
        self, request: ExecRequest, stdin: bytes | AsyncIterable[bytes] | None = None
    ) -> AsyncGenerator[Event, None]:
        """Run something and yield its events; the result is the last. Close it if you leave early."""
        return self._events(functools.partial(self._start_run, request, stdin), request.id)

    def attach(self, exec_id: str, after: int = 0, *, follow: bool = True) -> AsyncGenerator[Event, None]:
        """Yield events after number `after`, live ones too unless `follow` is False. Close it if you leave early."""
        asked = {"exec": exec_id, "after": after} if follow else {"exec": exec_id, "after": after, "follow": False}
        return self._events(functools.partial(self.request, "attach", asked), exec_id)

    async def ack(self, exec_id: str) -> None:
        """Let the agent forget a finished execution."""
        await self.call("ack", {"exec": exec_id})

    def ack_soon(self, exec_id: str) -> None:
        """As `ack`, without waiting and whether or not the agent knows it."""
        self.tell("ack", {"exec": exec_id})

    async def interrupt(self, exec_id: str) -> None:
        """Send SIGINT to an execution."""
        await self.call("interrupt", {"exec": exec_id})

    async def kill(self, exec_id: str) -> None:
        """Kill an execution; a kernel is rolled back."""
        await self.call("kill", {"exec": exec_id})

    async def configure(
        self, *, env: Mapping[str, str] | None = None, limits: Mapping[str, float] | None = None
    ) -> None:
        """Change the environment and limits of later kernels and commands."""
        await self.call("configure", {"env": dict(env or {}), "limits": dict(limits or {})})

    async def kernels(self) -> tuple[Kernel, ...]:
        """List the kernels."""
        header, _ = await self.call("kernels")
        return self.checked(lambda: tuple(parse_kernel(one) for one in get_objects(header, "kernels")))

    async def create_kernel(self, kernel: str) -> None:
        """Start one more kernel."""
        await self.call("kernel.create", {"kernel": kernel})

    async def restart_kernel(self, kernel: str) -> None:
        """Start a kernel afresh; its variables are gone."""
        await self.call("kernel.restart", {"kernel": kernel})

    async def fork_kernel(self, kernel: str, to: str) -> None:
        """Copy a kernel with all its variables."""
        await self.call("kernel.fork", {"kernel": kernel, "to": to})

    async def rollback_kernel(self, kernel: str, cells: int = 1) -> int:
        """Undo the last cells of a kernel; return how many were undone."""
        header, _ = await self.call("kernel.rollback", {"kernel": kernel, "cells": cells})
        return self.checked(get_int, header, "cells_back")

    async def delete_kernel(self, kernel: str) -> None:
        """End a kernel."""
        await self.call("kernel.delete", {"kernel": kernel})

    async def connect_port(self, port: int, host: str = "127.0.0.1", *, window: int = WINDOW) -> ByteStream:
        """Connect to a port that a program inside listens on. Raises NotFound when nothing does."""
        stream = await self.request("tunnel.connect", {"port": port, "host": host}, window=window)
        try:
            header, _ = await stream.next()
        except BaseException:
            stream.close()
            raise
        if header["t"] != "event" or header.get("kind") != "connected":
            raise self.break_off(ProtocolError("a tunnel that is neither connected nor refused"))
        return ByteStream(stream)

    async def listen_port(self, port: int, listener: str) -> int:
        """Hand connections to a port inside to `on_tunnel[listener]`; return the port, chosen when it was 0."""
        header, _ = await self.call("tunnel.listen", {"port": port, "listener": listener})
        return self.checked(get_int, header, "port")

    def opened(self, stream: AgentStream, header: Header) -> None:
        """Hand a connection from inside to the handler of its listener. Raises ProtocolError."""
        if header.get("op") != "tunnel":
            raise ProtocolError("the agent opened something that is not a tunnel")
        listener, host, port = get_str(header, "listener"), get_str(header, "host"), get_int(header, "port")
        handler = self.on_tunnel.get(listener)
        if handler is None:
            self.forget(stream)
        else:
            window, first = header.get("window"), header.get("first")
            # An agent of an older version names no window, and sends more.
            if type(window) is int and type(first) is int and 0 < first <= window <= WINDOW:
                stream.narrow(window, first)
            self.serve(lambda stream: handler(TunnelStream(stream, listener, host, port)), stream)

    async def _start_run(self, request: ExecRequest, stdin: bytes | AsyncIterable[bytes] | None) -> AgentStream:
        code = request.code.encode("utf-8", "surrogatepass")
        parameters = encode_run(request, has_stdin=stdin is not None)
        if isinstance(stdin, bytes) and len(stdin) <= WINDOW:
            pieces = tuple(stdin[at : at + CHUNK] for at in range(0, max(1, len(stdin)), CHUNK))
            stream = await self.request("run", parameters, code, pieces)
        else:
            stream = await self.request("run", parameters, code)
            if stdin is not None:
                self.feed(stream, stdin)
        stream.is_paced = request.paced
        return stream

    async def _events(self, start: Callable[[], Awaitable[AgentStream]], exec_id: str) -> AsyncGenerator[Event, None]:
        stream = await start()
        shown, end = Shown(), stream.close
        try:
            while (event := await self._next_event(stream, exec_id, shown)) is not None:
                if event.result is not None:
                    end = stream.release
                yield event
                if event.result is not None:
                    return
        finally:
            end()

    async def _next_event(self, stream: AgentStream, exec_id: str, shown: Shown) -> Event | None:
        """Wait for the next event of an execution that has displayed `shown`; None at its end."""
        while True:
            header, payload = await stream.next()
            if header["t"] == "ok" and header.get("kind") != "result":
                return None
            if header["t"] in {"event", "ok"}:
                return self.checked(parse_event, header, payload, exec_id, shown)
