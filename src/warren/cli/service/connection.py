"""Which service a command talks to: the one that was named, the one of this machine, or one inside the command.

Commands import this module at the top; what costs time (anyio, httpx, pydantic) is imported when one runs.
"""

from __future__ import annotations

import contextlib
import os
import re
import socket
import time
from typing import TYPE_CHECKING, Any

from warren.cli.errors import check_platform
from warren.cli.options import check_machine
from warren.cli.service.data_lock import COMMAND, Held, find_holder, only_one
from warren.cli.service.listening import socket_path
from warren.domain.errors import ConfigError, Forbidden, InvalidRequest, NotFound
from warren.engines.unix_sockets import short_path

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from warren import AsyncClient, AsyncSandbox, Retries
    from warren.cli.options import Choice, Target
    from warren.cli.terminal.signals import Signals
    from warren.settings import Settings

_WHOLE = re.compile(r"sbx_[0-9a-f]{24}")
_PART = re.compile(r"sbx_[0-9a-z]+")
_SHOWN = 5
LOCAL = ("default", "local")
"""Whose sandboxes are that are made without a key."""
_PATIENCE_S = 20.0
_TICK_S = 0.05


def prepare_image(target: Target, choice: Choice) -> None:
    """Check a sandbox of this machine, and build its image if this command is about to make it and none is built.

    Not a coroutine: a build takes a minute, and Ctrl-C must end it at once.
    """
    if target.is_remote:
        return
    check_platform()
    check_machine(choice)
    settings = target.load_settings()
    if not is_served(settings.data_dir):
        from warren.cli.service.embedded import ensure_image

        ensure_image(settings, choice.image or settings.image)


def run_with_client(target: Target, work: Callable[[AsyncClient, Signals], Awaitable[int]]) -> int:
    """Do a command's work with a client of its service, and return its exit code; signals end it in order."""
    import anyio

    from warren import AsyncClient
    from warren.cli.terminal.signals import run_with_signals

    async def connect_and_work(signals: Signals) -> int:
        async with reachable(target) as url, AsyncClient(url, retries=_build_retries(target)) as client:
            return await work(client, signals)

    return anyio.run(run_with_signals, connect_and_work)


def run_with_sandbox(
    target: Target, name: str, work: Callable[[AsyncSandbox], Awaitable[int | None]], *, to_use: bool = True
) -> int:
    """Do a command's work with the sandbox that `name` means, and return its exit code."""

    async def find_and_work(client: AsyncClient, _signals: Signals) -> int:
        return await work(await find_sandbox(client, target, name, to_use=to_use)) or 0

    return run_with_client(target, find_and_work)


def _build_retries(target: Target) -> Retries:
    """Build retries that give up at once where nothing answers at an address: it is mistyped, or nothing serves it."""
    import httpx

    from warren import Retries

    class OfCommands(Retries):
        def after_break(self, request: Any, error: httpx.TransportError, tried: int) -> float | None:
            if isinstance(error, httpx.ConnectError):
                return None
            return Retries.after_break(self, request, error, tried)

    return OfCommands() if target.is_remote else Retries()


@contextlib.asynccontextmanager
async def reachable(target: Target, *, is_waited_for: bool = True) -> AsyncIterator[str]:
    """Find it, or be it, and say where it is. A command that is it waits for us, unless we can find the next."""
    if target.url is not None:
        yield target.url
        return
    check_platform()
    settings = target.load_settings()
    async with contextlib.AsyncExitStack() as held:
        yield f"unix:{await _find_or_serve(settings, held, is_waited_for)}"


async def _find_or_serve(settings: Settings, held: contextlib.AsyncExitStack, is_waited_for: bool) -> str:
    """Return the path of the service's socket once there is one. When it has to be us, it ends with `held`."""
    import anyio

    until = time.monotonic() + _PATIENCE_S
    while (path := _join(settings.data_dir, held, is_waited_for)) is None:
        try:
            held.enter_context(only_one(settings.data_dir, COMMAND))
        except Held:
            # It starts, or stops, or is a command that ends.
            if time.monotonic() > until:
                raise _explain_silence(settings.data_dir) from None
            await anyio.sleep(_TICK_S)
        else:
            from warren.cli.service.embedded_service import embedded_service

            await held.enter_async_context(embedded_service(settings))
            return held.enter_context(short_path(socket_path(settings.data_dir)))
    return path


def _join(data_dir: str, held: contextlib.AsyncExitStack, is_waited_for: bool) -> str | None:
    """Find the socket of a service that listens; None where none does. One that is a command's is there for `held`."""
    path = socket_path(data_dir)
    with contextlib.ExitStack() as joined:
        try:
            place = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except (FileNotFoundError, NotADirectoryError):
            return None
        joined.callback(os.close, place)
        presence = joined.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
        here = f"/proc/self/fd/{place}"
        if not _connect(presence, here, path):
            return None
        holder = find_holder(data_dir)
        if not is_waited_for or holder is None or holder.kind != COMMAND:
            # Not by descriptor: a service that is started again has another socket at the same path.
            return held.enter_context(short_path(path))
        # WHY: a command that serves takes its socket's name away when it is done, and waits for its connections.
        # We are from now on, and by descriptor its socket is found without a name.
        held.push(joined.pop_all())
        return here


def is_served(data_dir: str) -> bool:
    """Whether a service listens on the socket of a data folder."""
    path = socket_path(data_dir)
    with short_path(path) as short, socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        return _connect(probe, short, path)


def _connect(probe: socket.socket, where: str, path: str) -> bool:
    try:
        probe.connect(where)
    except (FileNotFoundError, ConnectionRefusedError, NotADirectoryError):
        return False
    except PermissionError:
        raise ConfigError(
            f"{path} is another user's service: name it with --url and have a key in WARREN_API_KEY"
        ) from None
    return True


def _explain_silence(data_dir: str) -> ConfigError:
    holder = find_holder(data_dir)
    who = "another process" if holder is None else holder.what
    return ConfigError(
        f"{who} holds {data_dir} but does not answer: it is starting or stopping, so try again in a moment"
    )


async def find_sandbox(client: AsyncClient, target: Target, text: str, *, to_use: bool = False) -> AsyncSandbox:
    """Find the one sandbox that is meant. Raises NotFound, and InvalidRequest where it may be one of several.

    Raises Forbidden where it cannot be used by who is asking, although they can see it and end it.
    """
    wanted = text if text.startswith("sbx_") else f"sbx_{text}"
    if _WHOLE.fullmatch(wanted):
        sandbox = await client.sandboxes.get(wanted)
    else:
        sandbox = await _search(client, target, text, wanted)
    owner = sandbox.info.owner
    if to_use and not target.is_remote and (owner.tenant, owner.subject) != LOCAL:
        raise Forbidden(
            f"sandbox {sandbox.id} is {owner.subject}'s, of the tenant {owner.tenant}, and only they use it: "
            "give --url, and their key in WARREN_API_KEY"
        )
    return sandbox


async def _search(client: AsyncClient, target: Target, text: str, wanted: str) -> AsyncSandbox:
    unknown = NotFound(f"there is no sandbox {text[:64]}: `warren ps` lists those there are")
    if not _PART.fullmatch(wanted):
        raise unknown
    found = [each async for each in client.sandboxes.all(everybody=not target.is_remote) if each.id.startswith(wanted)]
    if not found:
        raise unknown
    if len(found) > 1:
        ids = ", ".join(each.id for each in found[:_SHOWN])
        more = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
        raise InvalidRequest(f"{text} may be any of {ids}{more}: type more of the one you mean")
    return found[0]
