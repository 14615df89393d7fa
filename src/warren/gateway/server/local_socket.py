"""The way in for this machine: a socket file that only its owner and root can open, and that asks for no key."""

from __future__ import annotations

import os
import socket
import struct
from typing import TYPE_CHECKING, Any

from warren.gateway.api.auth import LOCAL, Auth
from warren.gateway.server.protocol import Guard, GuardedProtocol

if TYPE_CHECKING:
    import asyncio

    from warren.domain.records import Principal

_REFUSED = (
    b"HTTP/1.1 403 Forbidden\r\ncontent-type: text/plain; charset=utf-8\r\n"
    b"content-length: 51\r\nconnection: close\r\n\r\nOnly the user who runs the service and root use it."
)


class LocalAuth(Auth):
    """Takes whoever got in for the one who runs the service: the file's rights, and the peer's, have been checked."""

    def __init__(self) -> None:
        """Ask for nothing."""

    async def identify(self, *_args: Any, **_kwargs: Any) -> Principal:
        """Say who asks."""
        return LOCAL

    def opened_to(self, _anybody: Principal) -> Auth:
        """Ask for no more."""
        return self


class LocalProtocol(GuardedProtocol):
    """One connection of a program of this machine."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        """Let in who runs the service, and root."""
        super().connection_made(transport)
        pid, uid = peer(transport.get_extra_info("socket"))
        # For the audit record: there is no address, but there is a user.
        self.client = (f"local uid {uid}", pid)
        # WHY: the rights of the file say the same, until somebody changes them.
        if uid not in {0, os.geteuid()}:
            transport.write(_REFUSED)
            transport.close()


def build_local_protocol(guard: Guard) -> type[LocalProtocol]:
    """Build the class that a server makes one of for each connection."""
    return type("Local", (LocalProtocol,), {"guard": guard})


def peer(connection: socket.socket) -> tuple[int, int]:
    """Return process and user at the other end, as the kernel knows them; process 0 is one of another namespace."""
    pid, uid, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    return pid, uid
