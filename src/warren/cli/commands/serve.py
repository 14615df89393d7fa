"""`warren serve`: the service, from nothing to an address and a key that work."""

from __future__ import annotations

import gc
import os
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Annotated

import typer

from warren.cli.options import AllowBare, AsJson, EngineName, ImageName, option

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

    from warren.cli.service.daemon import Announcement
    from warren.cli.service.data_lock import DataLock
    from warren.cli.service.server import Server
    from warren.core.service import Service
    from warren.settings import Settings

EXAMPLES = """\b
Examples:
  warren serve
  warren serve --port 9000 --data-dir ./data
  warren serve --daemon             # in the background; `warren status` shows it, `warren stop` ends it
  warren serve --no-auth            # on this machine only, for trying things out
  WARREN_POOL_SIZE=8 warren serve
"""


def serve(
    *,
    host: Annotated[str | None, option("ADDRESS", "Address to listen on; 127.0.0.1 unless set.")] = None,
    port: Annotated[int | None, option("N", "Port to listen on; 8000 unless set.")] = None,
    data_dir: Annotated[str | None, option("DIR", "Data folder: images, workspaces and records.")] = None,
    no_auth: Annotated[bool, typer.Option("--no-auth", help="Require no key; refused unless on loopback.")] = False,
    image: ImageName = None,
    engine: EngineName = None,
    allow_bare: AllowBare = False,
    daemon: Annotated[
        bool, typer.Option("--daemon", help="Run in the background with a log file; return when ready.")
    ] = False,
    log_file: Annotated[
        str | None, option("FILE", "Log file of a daemon; service.log in the data folder unless set.")
    ] = None,
    as_json: AsJson = False,
    detached: Annotated[
        bool, typer.Option("--detached", hidden=True, help="Run as the process that --daemon starts.")
    ] = False,
) -> int:
    """Serve sandboxes over HTTP. The first start builds the default image, which takes a minute, and makes a key.

    Every setting is in docs/reference/settings.md; a flag wins over the environment, and that over warren.toml.
    """
    from warren.cli.service.daemon import print_as_json, print_as_text
    from warren.cli.service.data_lock import only_one
    from warren.cli.service.listening import bind_address
    from warren.settings import Settings

    flags = {
        "serve.host": host,
        "serve.port": port,
        "serve.auth": False if no_auth else None,
        "data_dir": data_dir,
        "image": image,
        "engine": engine,
        "allow_bare": True if allow_bare else None,
    }
    if log_file is not None and not (daemon or detached):
        raise typer.BadParameter("--log-file is for --daemon; without it, the log goes to standard error.")
    settings = Settings.load(flags=flags)
    _check(settings)
    if daemon:
        from warren.cli.service.daemon import leave_behind

        # Here and not by the child: a person is looking now, and it may take a minute.
        _prepare_image(settings)
        return leave_behind(settings, flags, log_file, as_json=as_json)
    with only_one(settings.data_dir) as lock:
        # First what can be refused at once: an image takes a minute.
        listener = bind_address(settings.serve.host, settings.serve.port)
        _prepare_image(settings)
        tell = print_as_json if detached or as_json else print_as_text
        return _run(_Serving(settings, listener, lock, tell, log_file if detached else None))


def _check(settings: Settings) -> None:
    """Refuse what can be refused now, before an image takes a minute, or a daemon is on its own."""
    from warren.bootstrap.app import build_policy, build_tokens
    from warren.cli.service.guard import refuse_risks

    refuse_risks(settings)
    build_policy(settings)
    build_tokens(settings.jwt)


def _prepare_image(settings: Settings) -> None:
    from warren.cli.service.embedded import ensure_image

    for name in {settings.image, *settings.pool.images}:
        ensure_image(settings, name)


@dataclass(frozen=True, slots=True)
class _Serving:
    settings: Settings
    listener: socket.socket
    lock: DataLock
    tell: Callable[[Announcement], None]
    log: str | None
    """The log file of a service in the background."""


def _run(serving: _Serving) -> int:
    import anyio

    from warren.gateway.ops.logs import configure_logs

    log = serving.settings.log
    configure_logs(debug=serving.settings.debug, form=log.format, level=log.level)
    # Not for every interpreter and system; asyncio's own loop does the same, more slowly.
    anyio.run(_serve, serving, backend_options={"use_uvloop": find_spec("uvloop") is not None})
    return 0


async def _serve(serving: _Serving) -> None:
    import anyio

    from warren.bootstrap.app import build_service
    from warren.cli.service.listening import build_server, local_socket

    settings = serving.settings
    serving.listener.listen(2048)
    async with build_service(settings) as service:
        with local_socket(settings.data_dir) as local:
            server = build_server(service, settings, local)
            # Loaded modules stay: a garbage collector that walks them again and again would hold up requests.
            gc.collect()
            gc.freeze()
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(_announce, serving, service, server)
                await server.serve(sockets=[serving.listener])
                tasks.cancel_scope.cancel()


async def _announce(serving: _Serving, service: Service, server: Server) -> None:
    """Say where the service is, once it can be used, and also stopped."""
    import anyio

    from warren.cli.service.daemon import Announcement
    from warren.cli.service.data_lock import SERVICE
    from warren.gateway.pages.documents import has_docs

    # Not before it serves: a reader may stop it at once, and a signal would end it before its last records.
    while not server.started:  # noqa: ASYNC110 - uvicorn gives no event for it
        await anyio.sleep(0.005)
    host, port = serving.listener.getsockname()[:2]
    address = f"http://{f'[{host}]' if ':' in host else host}:{port}"
    serving.lock.note(SERVICE, address=address, log=serving.log or "")
    asks = serving.settings.serve.auth
    # In production output is logged, and a key is made by hand before the first start.
    secret = await service.keys.ensure_first_key() if asks and serving.settings.env != "production" else None
    serving.tell(Announcement(address, asks, secret, os.getpid(), serving.log, has_docs(serving.settings)))
    if serving.log is not None:
        # Further output goes to the log: the process that started us has read its line.
        os.dup2(2, 1)
