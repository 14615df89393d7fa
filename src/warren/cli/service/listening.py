"""What listens: the address of the service, its socket for this machine, and the server over both."""

from __future__ import annotations

import contextlib
import os
import socket
from typing import TYPE_CHECKING

from warren.domain.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator

    import uvicorn
    from starlette.types import ASGIApp

    from warren.cli.service.server import Server
    from warren.core.service import Service
    from warren.gateway.server.protocol import Guard, GuardedProtocol
    from warren.settings import Settings

_OPEN_FILES = 65_536


def bind_address(host: str, port: int) -> socket.socket:
    """Take the address. Nobody is let in yet: who connected now would wait for as long as an image takes."""
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[
            0
        ]
        listener = socket.socket(family, kind)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
    except OSError as exc:
        raise ConfigError(f"cannot listen on {host} port {port}: {exc.strerror}. Choose another with --port") from exc
    return listener


@contextlib.contextmanager
def local_socket(data_dir: str) -> Iterator[socket.socket]:
    """Listen on the socket of a data folder that we hold, for the length of a block."""
    from warren.engines.unix_sockets import listen

    path = socket_path(data_dir)
    try:
        listener = listen(path)
    except OSError as exc:
        raise ConfigError(f"there can be no socket at {path}: {exc.strerror}. Choose another --data-dir") from exc
    try:
        with listener:
            yield listener
    finally:
        with contextlib.suppress(OSError):
            os.unlink(path)


def socket_path(data_dir: str) -> str:
    """Say where the socket of a data folder is."""
    return os.path.join(data_dir, "warren.sock")


def build_server(service: Service, settings: Settings, local: socket.socket, *, takes_signals: bool = True) -> Server:
    """Build the server of an open service: for those with a key, and on the local socket for those without."""
    from warren.cli.service.server import Server
    from warren.gateway.app import build_app, build_metrics
    from warren.gateway.server.local_socket import LocalAuth, build_local_protocol
    from warren.gateway.server.protocol import Guard, build_protocol

    guard, metrics = Guard(connections=_raise_open_files() // 2), build_metrics(service, settings)
    public, private = (
        build_app(service, settings, metrics=metrics),
        build_app(service, settings, metrics=metrics, auth=LocalAuth()),
    )
    return Server(
        _configure(public, build_protocol(guard), guard),
        _configure(private, build_local_protocol(guard), guard),
        local,
        service,
        drain_s=settings.serve.drain_s,
        takes_signals=takes_signals,
    )


def _configure(app: ASGIApp, protocol: type[GuardedProtocol], guard: Guard) -> uvicorn.Config:
    import uvicorn

    from warren.gateway.server.websocket_protocol import MESSAGE_BYTES, PING_S, build_websocket_protocol

    return uvicorn.Config(
        app,
        http=protocol,
        ws=build_websocket_protocol(guard),
        ws_max_size=MESSAGE_BYTES,
        ws_ping_interval=PING_S,
        ws_ping_timeout=PING_S,
        # What is compressed together with a secret says something of it, and a terminal's output is small anyway.
        ws_per_message_deflate=False,
        lifespan="off",
        access_log=False,
        log_config=None,
        server_header=False,
        # WHY: a client says in these headers what it likes, and the audit record has its address.
        proxy_headers=False,
        timeout_graceful_shutdown=1,
        # Longer than clients and proxies keep theirs: who closes first must not be us, in the middle of a request.
        timeout_keep_alive=75,
    )


def _raise_open_files() -> int:
    """Allow this process as many open files as it may have, and say how many: each sandbox and each client is one."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = _OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, _OPEN_FILES)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, most), hard))
    return most
