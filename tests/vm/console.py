"""A terminal of the guest, over a socket of qemu: what is typed, what is awaited, and commands with their ends."""

from __future__ import annotations

import dataclasses
import re
import secrets
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import socket

_LAST_LINES = 30
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]|\r")


class Silence(AssertionError):
    """What was awaited did not come; the last lines of the terminal say what came instead."""


@dataclasses.dataclass(frozen=True)
class Result:
    """How a command in the guest ended."""

    command: str
    code: int
    output: str
    """What it wrote, on standard output and standard error."""
    took_s: float

    def __str__(self) -> str:
        return f"$ {self.command}\n{self.output}\n[{self.code} after {self.took_s:.1f} s]"


class Console:
    """A serial port of the guest, with a user logged in."""

    def __init__(self, link: socket.socket, log_path: str, user: str, patience: float) -> None:
        self.user = user
        self._patience = patience
        self._link = link
        self._log_path = log_path
        self._seen = b""
        self._screen = b""
        self._is_left = False

    def type(self, text: str) -> None:
        """Type as a user would."""
        self._link.sendall(text.encode())

    def expect(self, pattern: str, within_s: float) -> re.Match[str]:
        """Wait until what was written since the last time matches; longer where the guest is slow."""
        wanted = re.compile(pattern.encode())
        within_s *= self._patience
        until = time.monotonic() + within_s
        while not (found := wanted.search(self._seen)):
            self._link.settimeout(max(0.05, until - time.monotonic()))
            try:
                data = self._link.recv(65536)
            except TimeoutError:
                raise Silence(self._describe(f"{pattern!r} did not come within {within_s:.0f} s")) from None
            if not data:
                raise Silence(self._describe(f"the machine is gone, and {pattern!r} did not come"))
            with open(self._log_path, "ab") as log:
                log.write(data)
            self._seen += data
            self._screen = (self._screen + data)[-16384:]
        before, self._seen = self._seen[: found.end()], self._seen[found.end() :]
        text = re.search(pattern, before.decode("utf-8", "replace"))
        assert text is not None
        return text

    def settle(self, within_s: float) -> None:
        """Wait for the shell of a fresh login, and make it one that says nothing but what commands write."""
        self.expect(rf"{self.user}@warren-vm:[^\n]*[#$] ", within_s)
        # WHY: without line editing the terminal itself reads lines, and repeats nothing.
        quiet = "set +o emacs +o vi +o history; stty -echo cols 200; PS1= PS2=; export SYSTEMD_PAGER= SYSTEMD_COLORS=0"
        only_root = "; dmesg -n 1; kill -s RTMIN+21 1" if self.user == "root" else ""
        self.type(f"{quiet}{only_root}; echo set''tled\n")
        self.expect(r"settled\r?\n", within_s)

    def run(self, command: str, within_s: float = 20) -> Result:
        """Run a command in the login shell; it may have several lines, and sees no standard input."""
        if self._is_left:
            raise Silence(f"{self.user}'s terminal was left in the middle of a command")
        mark = f"end-{secrets.token_hex(4)}"
        began_at = time.monotonic()
        self._seen = b""
        self.type(f"{{ {command}\n}} </dev/null 2>&1; code=$?; echo; echo {mark[:4]}''{mark[4:]}:$code\n")
        try:
            found = self.expect(rf"(?s)(.*?)\r?\n{mark}:(\d+)\r?\n", within_s)
        except Silence as exc:
            self.type("\x03\n")
            raise Silence(f"in the guest, as {self.user}: {command}\n{exc}") from None
        except BaseException:
            # Who is in a hurry does not wait for it to end.
            self._is_left = True
            raise
        output = _ESCAPES.sub("", found[1]).strip("\n")
        ended = Result(command, int(found[2]), output, time.monotonic() - began_at)
        shown = " ".join(command.split())[:90]
        print(f"  {self.user}: {shown} [{ended.code} after {ended.took_s:.1f} s]", flush=True)
        return ended

    def _describe(self, what: str) -> str:
        lines = _ESCAPES.sub("", self._screen.decode("utf-8", "replace")).splitlines()[-_LAST_LINES:]
        return "\n".join([f"{what}; the last lines of the terminal:", *(f"  | {line}" for line in lines)])
