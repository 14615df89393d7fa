"""The embedded engine for one command: opened from the settings, one sandbox made, and the sandbox gone at the end."""

from __future__ import annotations

import contextlib
import os
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import anyio

from warren.bootstrap.app import build_catalog, build_engine
from warren.cli.errors import check_platform
from warren.cli.options import Choice, check_machine
from warren.cli.quick import tickets
from warren.cli.quick.owner import is_orphan, new_owned_id
from warren.cli.terminal.progress import build_with_progress
from warren.core.agent.client import AgentClient
from warren.domain.errors import Error, NotFound
from warren.domain.values import Handle, SandboxSpec
from warren.settings import Settings

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from warren.domain.values import Image, Limits
    from warren.engines.base import Engine

_HELD_BY = {"memory_bytes": ("--memory", "memory"), "cpus": ("--cpus", "cpu")}
"""By limit: the option that asks for it, and the layer that holds it."""
_PATIENCE_S = 10.0
"""How long a keeper that is alive may take to remove a sandbox."""
_UNREACHABLE = {"PIP_RETRIES": "0", "UV_HTTP_RETRIES": "0", "npm_config_fetch_retries": "0"}
"""Without a service there is no egress: installers fail at once instead of asking for a name six times."""


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
async def linked_sandbox(prepared: Prepared) -> AsyncIterator[tuple[AgentClient, Engine]]:
    """Make a sandbox and connect to it, for the length of a block; then destroy it, whatever happened."""
    async with opened_engine(prepared.settings, prepared.choice) as engine:
        await _sweep(engine)
        for line in _list_limits_not_in_force(engine, prepared.choice):
            print(line, file=sys.stderr)
        spec = _build_spec(prepared)
        # Known before it is made: a signal may come while it is being made.
        handle = Handle(engine.name, spec.id)
        try:
            handle = await engine.create(spec)
            async with AgentClient(await engine.connect(handle)) as agent:
                yield agent, engine
        finally:
            await _destroy(engine, handle)


def remove(sandbox_id: str) -> None:
    """Destroy the sandbox of a quick command whose keeper ended: the next keeper has adopted it."""
    anyio.run(_remove, sandbox_id)


async def _remove(sandbox_id: str) -> None:
    try:
        async with opened_engine(Settings.load(), Choice()) as engine:
            await _destroy(engine, Handle(engine.name, sandbox_id))
    except Error as exc:
        _say_left(str(exc))


async def _destroy(engine: Engine, handle: Handle) -> None:
    """Destroy a sandbox, also while the command is cancelled. A failure does not cost the program's exit code."""
    try:
        with anyio.move_on_after(_PATIENCE_S, shield=True) as waiting:
            await engine.destroy(handle)
    except Error as exc:
        _say_left(str(exc))
    if waiting.cancelled_caught:
        _say_left("the keeper does not answer")


def _say_left(why: str) -> None:
    print(f"warren: a sandbox is left to the next command: {why}", file=sys.stderr)


def _build_spec(prepared: Prepared) -> SandboxSpec:
    image, choice = prepared.image, prepared.choice
    gpus = image.gpus if choice.gpus is None else choice.gpus
    return SandboxSpec(
        id=new_owned_id(),
        image=image,
        limits=prepared.limits,
        common_env={name: value for name, value in _UNREACHABLE.items() if name not in image.env},
        env=choice.env,
        gpus=gpus,
    )


def _list_limits_not_in_force(engine: Engine, choice: Choice) -> list[str]:
    """Return a sentence for each limit that was asked for and that no layer holds: the operator gave that layer up."""
    layers = getattr(engine, "layers", None)
    return [
        f"warren: {option} is not in force: WARREN_OPTIONAL_LAYERS gives up {layer}"
        for limit, (option, layer) in _HELD_BY.items()
        if layers is not None and limit in choice.limits and layer not in layers
    ]


def save_ticket(engine: Engine, prepared: Prepared, asked: Mapping[str, Any], run: dict[str, Any]) -> None:
    """Leave a ticket for the next command that asks for the same, where the engine can serve one without settings."""
    describe, spec = getattr(engine, "describe_create", None), _build_spec(prepared)
    if describe is None or spec.gpus:
        return
    del run["exec"]
    said = _list_limits_not_in_force(engine, prepared.choice)
    found = build_catalog(prepared.settings).spec(prepared.choice.image or prepared.settings.image)
    beside = (found.path.removesuffix(".toml") + ending for ending in (".lock", ".npm.json"))
    record = os.path.join(prepared.image.path, "image.json")
    sources = (found.path, *beside, record, *prepared.settings.image_dirs)
    tickets.save(asked, {**describe(spec), "run": run, "said": said}, sources)


def prepare(choice: Choice) -> Prepared:
    """Read the settings, check the limits, and have the image ready, building it first when it is not.

    Not a coroutine: a build takes a minute, and Ctrl-C must end it at once.
    """
    check_platform()
    check_machine(choice)
    settings = Settings.load()
    limits = choice.build_limits(settings.limits.build())
    image = ensure_image(settings, choice.image or settings.image, choice)
    return Prepared(settings, choice, image, limits)


def ensure_image(settings: Settings, name: str, choice: Choice | None = None) -> Image:
    """Return an image, building it first when it is not built. Raises NotFound for an unknown one."""
    catalog = build_catalog(settings)
    catalog.spec(name)
    try:
        return catalog.get(name)
    except NotFound:
        # A mistake in the settings is reported alone.
        _build_engine(settings, choice or Choice())
        # Said first: on a cold machine the check alone takes a second.
        said = f"warren: image {name} is not built yet: checking this host, then building it once, a minute or two"
        print(said, file=sys.stderr, flush=True)
        anyio.run(_try_engine, settings, choice or Choice())
        return build_with_progress(catalog, name)


async def _try_engine(settings: Settings, choice: Choice) -> None:
    """Find out that an engine cannot work here before time is spent on an image for it."""
    async with opened_engine(settings, choice):
        pass


async def _sweep(engine: Engine) -> None:
    """Destroy the sandboxes of commands that were killed before they could do so."""
    async for handle in engine.handles():
        if is_orphan(handle.sandbox_id):
            await _destroy(engine, handle)
