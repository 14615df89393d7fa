"""`warren serve`: the service, from nothing to an address and a key that work."""

from __future__ import annotations

import contextlib
import fcntl
import gc
import math
import os
import resource
import signal
import socket
import sys
import time
from typing import TYPE_CHECKING, Annotated

import typer

from warren.cli.options import AllowBare, EngineName, ImageName
from warren.errors import ConfigError, NotFound

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

    import uvicorn

    from warren.core.service import Service
    from warren.settings import Settings

_OPEN_FILES = 65_536

EXAMPLES = """\b
Examples:
  warren serve
  warren serve --port 9000 --data-dir ./data
  warren serve --no-auth            # on this machine only, for trying things out
  WARREN_POOL_SIZE=8 warren serve
"""


def serve(
    *,
    host: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="Address to listen on; 127.0.0.1 unless set.")
    ] = None,
    port: Annotated[int | None, typer.Option(metavar="N", help="Port to listen on; 8000 unless set.")] = None,
    data_dir: Annotated[
        str | None, typer.Option(metavar="DIR", help="Where images, workspaces and records are kept.")
    ] = None,
    no_auth: Annotated[bool, typer.Option("--no-auth", help="Ask for no key; refused unless on loopback.")] = False,
    image: ImageName = None,
    engine: EngineName = None,
    allow_bare: AllowBare = False,
) -> int:
    """Serve sandboxes over HTTP. The first start builds the default image, which takes a minute, and makes a key.

    Every setting is in docs/reference/settings.md; a flag wins over the environment, and that over warren.toml.
    """
    from warren.gateway.auth import check_no_auth
    from warren.settings import Settings

    settings = Settings.load(
        flags={
            "serve.host": host,
            "serve.port": port,
            "serve.auth": False if no_auth else None,
            "data_dir": data_dir,
            "image": image,
            "engine": engine,
            "allow_bare": True if allow_bare else None,
        }
    )
    if not settings.serve.auth:
        check_no_auth(settings.serve.host)
    with only_one(settings.data_dir):
        # First what can be refused at once: an image takes a minute.
        listener = _bind(settings.serve.host, settings.serve.port)
        _prepare_image(settings)
        return _run(settings, listener)


@contextlib.contextmanager
def only_one(data_dir: str) -> Iterator[None]:
    """Hold the data folder: two services on one would undo each other's work."""
    try:
        os.makedirs(data_dir, 0o755, exist_ok=True)
        lock = os.open(os.path.join(data_dir, "service.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as exc:
        raise ConfigError(f"{data_dir} cannot be written: {exc.strerror}. Choose another with --data-dir") from exc
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # Only for the sentence below: a full disk is for the store to explain.
        with contextlib.suppress(OSError):
            os.ftruncate(lock, 0)
            os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)
        yield
    except BlockingIOError:
        pid = os.pread(lock, 32, 0).decode().strip() or "another process"
        raise ConfigError(
            f"{data_dir} is served already, by process {pid}. Stop it, or choose another folder with --data-dir"
        ) from None
    finally:
        os.close(lock)


def _prepare_image(settings: Settings) -> None:
    from warren.app import build_catalog
    from warren.cli.embedded import try_engine
    from warren.cli.options import Choice
    from warren.cli.progress import build_with_progress

    catalog = build_catalog(settings)
    for name in {settings.image, *settings.pool.images}:
        try:
            catalog.get(name)
        except NotFound:
            catalog.spec(name)
            try_engine(settings, Choice())
            print(f"Building image {name}; this is done once.", file=sys.stderr)
            build_with_progress(catalog, name)


def _bind(host: str, port: int) -> socket.socket:
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


def _run(settings: Settings, listener: socket.socket) -> int:
    import anyio

    from warren.gateway.logs import configure_logs

    configure_logs(debug=settings.debug)
    anyio.run(_serve, settings, listener, backend_options={"use_uvloop": True})
    return 0


async def _serve(settings: Settings, listener: socket.socket) -> None:
    import anyio
    import uvicorn

    from warren.app import build_service
    from warren.gateway.app import build_app
    from warren.gateway.protocol import Guard, build_protocol

    listener.listen(2048)
    async with build_service(settings) as service:
        config = uvicorn.Config(
            build_app(service, settings),
            http=build_protocol(Guard(connections=_raise_open_files() // 2)),
            ws="none",
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
        # What is loaded by now stays: looking through it for garbage again and again would hold up requests.
        gc.collect()
        gc.freeze()
        server = _build_server(config, service, settings.serve.drain_s)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_announce, server, service, settings, listener)
            await server.serve(sockets=[listener])
            tasks.cancel_scope.cancel()


def _raise_open_files() -> int:
    """Allow this process as many open files as it may have, and say how many: each sandbox and each client is one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = _OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, _OPEN_FILES)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, most), hard))
    return most


async def _announce(server: uvicorn.Server, service: Service, settings: Settings, listener: socket.socket) -> None:
    """Print where the service is, the first key, once, and a line that can be pasted."""
    import anyio

    # Not before it serves: whoever reads this may stop it at once, and a signal would end it without a farewell.
    while not server.started:  # noqa: ASYNC110 - uvicorn gives no event for it
        await anyio.sleep(0.005)
    host, port = listener.getsockname()[:2]
    address = f"http://{f'[{host}]' if ':' in host else host}:{port}"
    print(f"Warren is at {address}  (API: {address}/docs)")
    header = ""
    if settings.serve.auth:
        secret = await service.keys.ensure_first_key()
        if secret is not None:
            print(f"Your API key, shown this once: {secret}")
        header = f' -H "Authorization: Bearer {secret or "$WARREN_API_KEY"}"'
        if secret is None:
            print("Keys: `warren keys list` shows them, `warren keys create NAME` makes another.")
    else:
        print("No key is asked for: whoever reaches this address may run code.")
    body = '{"code": "print(1 + 1)"}'
    print(f"Try: curl {address}/api/v1/run{header} -H 'Content-Type: application/json' -d '{body}'", flush=True)


def _build_server(config: uvicorn.Config, service: Service, drain_s: float) -> uvicorn.Server:
    """Build a server that answers what is under way before it stops, and that meanwhile says that it is not ready."""
    import logging

    import uvicorn

    log = logging.getLogger(__name__)

    class Server(uvicorn.Server):
        drained_by = math.inf
        has_said_so = False

        def handle_exit(self, sig: int, _frame: FrameType | None) -> None:
            # WHY: not as uvicorn does it, which raises the signal again as soon as it has stopped listening: that
            # would end us before the service has written down what it still has to write.
            self.force_exit = self.should_exit and sig == signal.SIGINT
            if not self.should_exit:
                self.drained_by = time.monotonic() + drain_s
            self.should_exit = True
            service.drain()

        async def on_tick(self, counter: int) -> bool:
            is_ending = await super().on_tick(counter)
            is_busy = bool(self.server_state.tasks) and time.monotonic() < self.drained_by
            # Not where the signal comes in: that may be in the middle of another line.
            if self.should_exit and not self.has_said_so:
                self.has_said_so = True
                waits = {
                    "requests": len(self.server_state.tasks),
                    "wait_s": drain_s,
                    "hint": "Ctrl-C again ends it now",
                }
                log.info("service.stopping", extra=waits if is_busy else {})
            return is_ending and (self.force_exit or not is_busy)

    return Server(config)
