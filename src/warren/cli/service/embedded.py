"""The embedded engine for one command: opened from the settings, one sandbox made, and the sandbox gone at the end."""

from __future__ import annotations

import contextlib
import os
import secrets
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

import anyio

from warren.bootstrap.app import build_catalog, build_engine
from warren.cli.options import Choice
from warren.cli.terminal.progress import build_with_progress
from warren.core.agent.client import AgentClient
from warren.domain.errors import NotFound
from warren.domain.values import Handle, SandboxSpec
from warren.engines import procfs
from warren.settings import Settings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from warren.domain.values import Image, Limits
    from warren.engines.base import Engine

_PREFIX = "run_"
_HELD_BY = {"memory_bytes": ("--memory", "memory"), "cpus": ("--cpus", "cpu")}
"""By limit: the option that asks for it, and the layer that holds it."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """Everything a sandbox needs, found out before one is made."""

    settings: Settings
    choice: Choice
    image: Image
    limits: Limits


@contextlib.asynccontextmanager
async def opened_engine(settings: Settings, choice: Choice) -> AsyncIterator[Engine]:
    """Open the engine for the length of a block. What it keeps warm lives on, for the next command."""
    engine = _build_engine(settings, choice)
    await engine.open()
    try:
        yield engine
    finally:
        with anyio.CancelScope(shield=True):
            await engine.close()


def _build_engine(settings: Settings, choice: Choice) -> Engine:
    chosen = {"engine": choice.engine or settings.engine, "allow_bare": choice.allow_bare or settings.allow_bare}
    return build_engine(settings.model_copy(update=chosen))


@contextlib.asynccontextmanager
async def linked_sandbox(prepared: Prepared) -> AsyncIterator[AgentClient]:
    """Make a sandbox and connect to it, for the length of a block; then destroy it, whatever happened."""
    async with opened_engine(prepared.settings, prepared.choice) as engine:
        await _sweep(engine)
        _say_what_is_not_in_force(engine, prepared.choice)
        image, choice = prepared.image, prepared.choice
        gpus = image.gpus if choice.gpus is None else choice.gpus
        spec = SandboxSpec(id=new_owned_id(), image=image, limits=prepared.limits, env=choice.env, gpus=gpus)
        # Known before it is made: a signal may come while it is being made.
        handle = Handle(engine.name, spec.id)
        try:
            handle = await engine.create(spec)
            async with AgentClient(await engine.connect(handle)) as agent:
                yield agent
        finally:
            with anyio.CancelScope(shield=True):
                await engine.destroy(handle)


def _say_what_is_not_in_force(engine: Engine, choice: Choice) -> None:
    """Tell of a limit that was asked for and that no layer holds: the operator gave that layer up."""
    layers = getattr(engine, "layers", None)
    for limit, (option, layer) in _HELD_BY.items():
        if layers is not None and limit in choice.limits and layer not in layers:
            print(f"warren: {option} is not in force: WARREN_OPTIONAL_LAYERS gives up {layer}", file=sys.stderr)


def prepare(choice: Choice) -> Prepared:
    """Read the settings, check the limits, and have the image ready, building it first when it is not.

    Not a coroutine: a build takes a minute, and Ctrl-C must end it at once.
    """
    settings = Settings.load()
    limits = choice.build_limits(settings.limits.build())
    image = ensure_image(settings, choice.image or settings.image, choice)
    return Prepared(settings, choice, image, limits)


def ensure_image(settings: Settings, name: str, choice: Choice | None = None) -> Image:
    """Return an image, building it first when it is not built. Raises NotFound for one that nobody knows."""
    catalog = build_catalog(settings)
    catalog.spec(name)
    try:
        return catalog.get(name)
    except NotFound:
        # A mistake in the settings is told alone.
        _build_engine(settings, choice or Choice())
        # Said first: on a cold machine the check alone takes a second, and nobody should wait for nothing that long.
        said = f"warren: image {name} is not built yet: checking this host, then building it once, a minute or two"
        print(said, file=sys.stderr, flush=True)
        try_engine(settings, choice or Choice())
        return build_with_progress(catalog, name)


def try_engine(settings: Settings, choice: Choice) -> None:
    """Find out that an engine cannot work here before time is spent on an image for it."""

    async def open_and_close() -> None:
        async with opened_engine(settings, choice):
            pass

    anyio.run(open_and_close)


async def retire_engine(settings: Settings, with_sandboxes: bool) -> None:
    """End what the local engine keeps warm, and its sandboxes if asked to; nothing happens where nothing is."""
    from warren.engines.local.engine import LocalEngine
    from warren.engines.local.probe import layers as probe

    # What ends sandboxes needs no layer: they must be stoppable where they could not be made any more.
    optional = probe.NAMES if with_sandboxes else settings.optional_layers
    engine = LocalEngine(settings.data_dir, optional_layers=optional, debug=settings.debug)
    if with_sandboxes:
        await engine.open()
        async for handle in engine.handles():
            await engine.stop(handle)
    await engine.retire()


def new_owned_id() -> str:
    """Make a sandbox id that says which process it belongs to, so that a killed command's sandbox can be found."""
    return f"{_PREFIX}{_owner(os.getpid())}z{secrets.token_hex(4)}"


async def _sweep(engine: Engine) -> None:
    """Destroy the sandboxes of commands that were killed before they could do so."""
    async for handle in engine.handles():
        if is_orphan(handle.sandbox_id):
            await engine.destroy(handle)


def is_orphan(sandbox_id: str) -> bool:
    """Whether a command of this pid namespace made it and is gone; of other namespaces we cannot tell."""
    owner, _, _ = sandbox_id.removeprefix(_PREFIX).partition("z")
    if not sandbox_id.startswith(_PREFIX) or not owner.endswith(f"x{_namespace()}"):
        return False
    return _owner(int(owner.partition("y")[0], 16)) != owner


def _owner(pid: int) -> str:
    return f"{pid:x}y{procfs.start_time(pid):x}x{_namespace()}"


def _namespace() -> str:
    return f"{os.stat('/proc/self/ns/pid').st_ino:x}"
