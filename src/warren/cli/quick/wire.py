"""Frames over a socket that blocks, and the signals that end the wait for them."""

from __future__ import annotations

import json
import os
import select
import signal
import socket

from warren.engines.unix_sockets import short_path
from warren.guest.wire.frames import Decoder, ProtocolError, encode

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from warren.guest.wire.frames import Frame, Header

_RECEIVE_BYTES = 1 << 18
_PATIENCE_S = 10.0
"""How long a keeper that is alive may take for a greeting, and to remove a sandbox."""
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Stopped(Exception):
    """A signal ended the command."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.exit_code = 128 + number


class Gone(Exception):
    """The other end closed the connection, or sent what it must not."""


class Signals:
    """SIGINT, SIGTERM and SIGHUP as bytes in a pipe, which every wait can watch; not those that `nohup` ignores."""

    def __init__(self) -> None:
        self._read, self._write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        heard = [each for each in _ENDING if signal.getsignal(each) is not signal.SIG_IGN]
        self._before = {each: signal.signal(each, lambda _number, _frame: None) for each in heard}
        signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)

    def fileno(self) -> int:
        """Return the descriptor that a signal makes readable."""
        return self._read

    def take(self) -> list[int]:
        """Return the signals since the last call."""
        try:
            return list(os.read(self._read, 64))
        except BlockingIOError:
            return []

    def close(self) -> None:
        """Restore the handlers."""
        signal.set_wakeup_fd(-1)
        for number, handler in self._before.items():
            signal.signal(number, handler)
        os.close(self._read)
        os.close(self._write)


class Wire:
    """One connection to a keeper or an agent."""

    def __init__(self, path: str, signals: Signals) -> None:
        self._decoder = Decoder()
        self._answers: dict[int, Frame] = {}
        self._next_id = 1
        self._signals = signals
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            with short_path(path) as short:
                self.socket.connect(short)
            self.hello: Header = self._wait(0, _PATIENCE_S)[0]
        except BaseException:
            self.socket.close()
            raise

    def request(self, op: str, header: Header, payload: bytes = b"") -> int:
        """Send a request and return its number. Raises Gone."""
        number, self._next_id = self._next_id, self._next_id + 2
        self.send({"t": "req", "id": number, "op": op, **header}, payload)
        return number

    def ask(self, op: str, parameters: dict[str, Any]) -> int:
        """Send a request to a keeper, which reads parameters from the payload. Raises Gone."""
        return self.request(op, {}, json.dumps(parameters).encode())

    def send(self, header: Header, payload: bytes | memoryview = b"") -> None:
        """Send a frame. Raises Gone."""
        try:
            self.socket.sendall(b"".join(encode(header, payload)))
        except OSError as exc:
            raise Gone from exc

    def receive(self) -> list[Frame]:
        """Return the frames of one read, which blocks until there is something. Raises Gone."""
        try:
            data = self.socket.recv(_RECEIVE_BYTES)
            if data:
                return list(self._decoder.feed(data))
        except (OSError, ProtocolError) as exc:
            raise Gone from exc
        raise Gone

    def answer(self, number: int) -> None:
        """Wait for an answer. Raises Gone, Stopped, and the error that it stands for."""
        header, _ = self._wait(number)
        if header["t"] == "err":
            from warren.domain.errors import StartFailed, by_code

            raise (by_code(str(header.get("code"))) or StartFailed)(str(header.get("message")))

    def last_answer(self, number: int) -> Frame:
        """Return an answer to wait for whatever signals come, but not for long. Raises Gone and TimeoutError."""
        return self._wait(number, _PATIENCE_S, is_shielded=True)

    def _wait(self, number: int, timeout_s: float | None = None, *, is_shielded: bool = False) -> Frame:
        watched: list[Any] = [self.socket] if is_shielded else [self.socket, self._signals]
        while number not in self._answers:
            ready = select.select(watched, [], [], timeout_s)[0]
            if self._signals in ready:
                raise Stopped(self._signals.take()[0])
            if not ready:
                raise TimeoutError
            # The greeting is the one frame without a number.
            self._answers.update((frame[0].get("id", 0), frame) for frame in self.receive())
        return self._answers.pop(number)
