"""The service inside a command, for as long as that takes: where none runs, sandboxes can still be made and kept.

It listens on the socket of the data folder, so that commands that come meanwhile use it too, and ends after them.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
from typing import TYPE_CHECKING

import anyio
import anyio.lowlevel

from warren.bootstrap.app import build_service
from warren.cli.service.listening import build_server, local_socket, socket_path

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from warren.cli.service.server import Server
    from warren.settings import Settings

_TICK_S = 0.005
_ACCEPTING = 8
"""Rounds of the loop in which those are let in who connected before the socket had no name; it takes four."""


@contextlib.asynccontextmanager
async def embedded_service(settings: Settings) -> AsyncIterator[None]:
    """Serve on the socket of the data folder, which the caller holds, for the length of a block."""
    if not settings.debug:
        # Logs are for the operator of a service.
        logging.getLogger("warren").setLevel(logging.ERROR)
    # A pool of one command would be filled for nothing.
    settings = settings.model_copy(update={"pool": settings.pool.model_copy(update={"size": 0})})
    async with build_service(settings) as service:
        with local_socket(settings.data_dir) as local:
            server = build_server(service, settings, local, takes_signals=False)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(server.serve, [])
                try:
                    while not server.started:  # noqa: ASYNC110 - uvicorn gives no event for it
                        await anyio.sleep(0.001)
                    yield
                finally:
                    try:
                        await _let_others_finish(settings.data_dir, server)
                    finally:
                        for each in server.servers:
                            each.close()
                        tasks.cancel_scope.cancel()


async def _let_others_finish(data_dir: str, server: Server) -> None:
    """Wait for the commands that found us; later ones find no socket, and wait until the folder is free."""
    with contextlib.suppress(OSError):
        os.unlink(socket_path(data_dir))
    for _ in range(_ACCEPTING):
        await anyio.lowlevel.checkpoint()
    with anyio.move_on_after(1):
        await _wait_for_connections(server)
        return
    print("warren: other commands still use the engine of this one; it ends with them", file=sys.stderr)
    await _wait_for_connections(server)


async def _wait_for_connections(server: Server) -> None:
    # Not for requests: a command makes several, and between two there is none.
    while not all(map(_is_idle, server.server_state.connections)):  # noqa: ASYNC110 - uvicorn gives no event for it
        await anyio.sleep(_TICK_S)


def _is_idle(connection: object) -> bool:
    """Whether something was asked on a connection, and all of it answered: commands hold one without a word besides."""
    cycle = getattr(connection, "cycle", None)
    return cycle is not None and cycle.response_complete
