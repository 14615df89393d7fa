"""TCP tunnels through the wire: to ports inside the sandbox, and from listeners inside it to the gateway.

Loopback only. A sandbox has no other network; the gateway decides which connections go further.
"""

from __future__ import annotations

import errno
import ipaddress
import os
import socket
from typing import TYPE_CHECKING

from warren.guest.system.loop import READ, WRITE, nothing
from warren.guest.wire.frames import WINDOW
from warren.guest.wire.parameters import Refused, get_number, get_text, invalid
from warren.guest.wire.pump import Inflow, Outflow

if TYPE_CHECKING:
    from collections.abc import Callable

    from warren.guest.agent import Agent
    from warren.guest.system.loop import Loop
    from warren.guest.wire.frames import Header
    from warren.guest.wire.streams import Connection, Stream

_Address = ipaddress.IPv4Address | ipaddress.IPv6Address

CONNECT_SECONDS = 10.0
MAX_LISTENERS = 64
MAX_TUNNELS = 512
_NARROWEST = 16 << 10


class Tunnel:
    """One TCP connection joined to one stream, each direction closed on its own."""

    def __init__(self, loop: Loop, sock: socket.socket, stream: Stream, on_end: Callable[[], None]) -> None:
        self._loop = loop
        self._socket = sock
        self._stream = stream
        self._on_end = on_end
        self._directions = 2
        self._unwritten: OSError | None = None
        self._inflow = Inflow(loop, sock.fileno(), stream, self._all_written)
        # A second descriptor: the loop keeps one watch for each, and the two directions wait for different things.
        self._read_fd = os.dup(sock.fileno())
        stream.on_data, stream.on_eof, stream.on_close = self._inflow.write, self._inflow.finish, self._close
        self._outflow = Outflow(loop, self._read_fd, stream, self._all_read)

    def _all_written(self, error: OSError | None) -> None:
        if error is None:
            try:
                self._socket.shutdown(socket.SHUT_WR)
            except OSError as failed:
                error = failed
        if error is not None and self._directions == 2:
            # It takes no more data, but data it sent before may be unread: the refusal of a server, for instance.
            self._unwritten = error
            error = None
        self._direction_ended(error)

    def _all_read(self, error: OSError | None) -> None:
        if error is None:
            self._stream.send_eof()
        self._direction_ended(error or self._unwritten)

    def _direction_ended(self, error: OSError | None) -> None:
        self._directions -= 1
        if self._stream.closed:
            return
        if error is not None:
            self._stream.fail("conflict", f"the connection broke: {error.strerror}")
        elif self._directions == 0:
            self._stream.reply({"sent": self._outflow.sent, "received": self._inflow.received})
        else:
            return
        self._close()

    def _close(self) -> None:
        if self._read_fd < 0:
            return
        self._inflow.stop()
        self._outflow.stop()
        os.close(self._read_fd)
        self._read_fd = -1
        self._socket.close()
        self._on_end()


class Listener:
    """A port inside whose connections become streams to the gateway connection that requested it last."""

    def __init__(self, loop: Loop, name: str, port: int) -> None:
        self.name = name
        self.window = self.first = WINDOW
        """The first credit on each of its connections: the gateway's, and ours."""
        self.owner: Connection | None = None
        self._loop = loop
        self._open = 0
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        try:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._socket.bind(("127.0.0.1", port))
            self._socket.listen(128)
        except OSError:
            self._socket.close()
            raise
        self.port: int = self._socket.getsockname()[1]
        loop.watch(self._socket.fileno(), READ, self._accept)

    def _accept(self, _events: int) -> None:
        try:
            sock, (host, port) = self._socket.accept()
        except OSError as error:
            if error.errno in {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}:
                # It would be ready again at once, and keep the loop busy.
                self._loop.unwatch(self._socket.fileno())
                self._loop.call_later(0.1, lambda: self._loop.watch(self._socket.fileno(), READ, self._accept))
            return
        if self.owner is None or self.owner.closed or self._open >= MAX_TUNNELS:
            sock.close()
            return
        self._open += 1
        # The second of two small pieces must not wait for the acknowledgement of the first.
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sizes = {"window": self.window, "first": self.first}
        stream = self.owner.open({"op": "tunnel", "listener": self.name, "host": host, "port": port, **sizes})
        stream.narrow(self.window, self.first)
        _join(self._loop, sock, stream, self._ended)

    def _ended(self) -> None:
        self._open -= 1


def _join(loop: Loop, sock: socket.socket, stream: Stream, on_end: Callable[[], None]) -> None:
    try:
        Tunnel(loop, sock, stream, on_end)
    except OSError as error:
        sock.close()
        stream.fail("conflict", f"the connection cannot be served: {error.strerror}")
        on_end()


class _Connecting:
    """A pending connection to a port inside."""

    def __init__(self, loop: Loop, stream: Stream, address: _Address, port: int) -> None:
        self._loop = loop
        self._stream = stream
        self._port = port
        family = socket.AF_INET if address.version == 4 else socket.AF_INET6
        self._socket = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._timer = loop.call_later(CONNECT_SECONDS, lambda: self._give_up(errno.ETIMEDOUT))
        stream.on_close = self._close
        code = self._socket.connect_ex((str(address), port))
        if code in {0, errno.EINPROGRESS}:
            loop.watch(self._socket.fileno(), WRITE, self._decided)
        else:
            self._give_up(code)

    def _decided(self, _events: int) -> None:
        code = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            self._give_up(code)
            return
        self._loop.unwatch(self._socket.fileno())
        self._timer.cancel()
        self._stream.event({"kind": "connected"})
        # Connections to the inside are not counted.
        _join(self._loop, self._socket, self._stream, nothing)

    def _give_up(self, code: int) -> None:
        self._close()
        why = f"nothing answers on port {self._port} inside the sandbox: {os.strerror(code)}"
        self._stream.fail("not_found", why)

    def _close(self) -> None:
        self._loop.unwatch(self._socket.fileno())
        self._timer.cancel()
        self._socket.close()


def _connect(agent: Agent, stream: Stream, header: Header, _payload: bytes) -> None:
    port = get_number(header, "port", low=1, high=65_535)
    address = _loopback(get_text(header, "host", "127.0.0.1"))
    try:
        _Connecting(agent.loop, stream, address, port)
    except OSError as error:
        raise Refused("conflict", f"no connection can be made now: {error.strerror}") from error


def _listen(agent: Agent, stream: Stream, header: Header, _payload: bytes) -> None:
    listener = _find_listener(agent, header)
    listener.owner = stream.connection
    listener.window = get_number(header, "window", WINDOW, low=_NARROWEST, high=WINDOW)
    listener.first = get_number(header, "first", listener.window, low=1, high=listener.window)
    stream.reply({"port": listener.port})


def _find_listener(agent: Agent, header: Header) -> Listener:
    """Return the listener of that name, opened if there is none. Raises Refused."""
    port = get_number(header, "port", low=0, high=65_535)
    name = get_text(header, "listener", longest=64)
    listener = agent.listeners.get(name)
    if listener is None:
        if len(agent.listeners) >= MAX_LISTENERS:
            raise Refused("conflict", f"there are {MAX_LISTENERS} listeners already")
        try:
            listener = agent.listeners[name] = Listener(agent.loop, name, port)
        except OSError as error:
            raise Refused("conflict", f"port {port} inside the sandbox cannot be used: {error.strerror}") from error
    if port not in {0, listener.port}:
        raise Refused("conflict", f"listener {name!r} is on port {listener.port} already")
    return listener


def _loopback(host: str) -> _Address:
    try:
        address = ipaddress.ip_address("127.0.0.1" if host == "localhost" else host)
    except ValueError:
        address = None
    if address is None or not address.is_loopback:
        raise invalid("host must be 127.0.0.1, ::1 or localhost: tunnels reach only the sandbox itself")
    return address


OPERATIONS: dict[str, Callable[[Agent, Stream, Header, bytes], None]] = {
    "tunnel.connect": _connect,
    "tunnel.listen": _listen,
}
