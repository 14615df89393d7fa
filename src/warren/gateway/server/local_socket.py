"""The local socket: a file that only its owner and root can open, without keys."""

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
    from warren.gateway.api.auth import Door

_REFUSED = (
    b"HTTP/1.1 403 Forbidden\r\ncontent-type: text/plain; charset=utf-8\r\n"
    b"content-length: 51\r\nconnection: close\r\n\r\nOnly the user who runs the service and root use it."
)


class LocalAuth(Auth):
    """Every peer is the operator: the kernel has checked the file's rights, and `LocalProtocol` the peer's uid."""

    def __init__(self) -> None:
        """Require nothing."""

    async def identify(self, *_args: Any, **_kwargs: Any) -> Principal:
        """Return the operator."""
        return LOCAL

    def opened_to(self, _door: Door) -> Auth:
        """Return itself: no key is needed anyway."""
        return self


class LocalProtocol(GuardedProtocol):
    """One connection of a program of this machine."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        """Accept the user who runs the service, and root."""
        super().connection_made(transport)
        pid, uid = peer(transport.get_extra_info("socket"))
        # The audit record has the user in place of an address.
        self.client = (f"local uid {uid}", pid)
        # WHY: the rights of the file say the same, until they are changed.
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
