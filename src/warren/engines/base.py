"""The engine seam: an engine makes sandboxes and moves bytes; the guest does the work."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from warren.domain.errors import InvalidRequest

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from warren.domain.gpus import Gpu
    from warren.domain.values import Handle, Limits, SandboxSpec, Usage

ENGINES = {"local": "warren.engines.local.engine:LocalEngine", "bare": "warren.engines.bare.engine:BareEngine"}


class Channel(Protocol):
    """A duplex byte stream to one agent."""

    async def send(self, data: bytes) -> None:
        """Send all of `data`, also when the caller is cancelled meanwhile: half a frame would end the connection.

        Raises SandboxLost when the sandbox is gone.
        """

    async def receive(self) -> bytes:
        """Return the next bytes, or b"" when the sandbox is gone."""

    async def aclose(self) -> None:
        """Close our end. The sandbox lives on. Safe to call twice."""


class Engine(Protocol):
    """Makes, reaches and removes sandboxes. Knows nothing of owners, quotas, expiry, languages or HTTP.

    Methods that take a handle raise SandboxLost when that sandbox does not exist (any more), except `destroy`.
    """

    name: str

    @property
    def reach(self) -> str:
        """What this engine can connect to: a data folder, a daemon, a cluster. Known once it is open.

        Engines of one name and one reach have the same sandboxes; it is never empty, and outlives the process.
        """

    @property
    def has_own_network(self) -> bool:
        """Whether sandboxes have only their own loopback, so that egress rules hold; known once it is open."""

    async def open(self) -> None:
        """Start, and adopt earlier sandboxes. Raises EngineUnavailable, which names missing layer and remedy."""

    async def close(self) -> None:
        """Release everything. Sandboxes live on."""

    async def create(self, spec: SandboxSpec) -> Handle:
        """Make a running sandbox whose agent answers.

        Raises Conflict when the id exists or the requested GPUs are missing, StartFailed (with nothing left behind)
        when it cannot be made, EngineUnavailable when a layer of isolation cannot be applied, Unsupported when it
        requests GPUs from an engine without any.
        """

    async def connect(self, handle: Handle) -> Channel:
        """Open one more channel to the agent; any number at once, from any process."""

    async def resize(self, handle: Handle, limits: Limits) -> None:
        """Apply other limits to a running sandbox. Raises Unsupported where the engine cannot."""

    async def stop(self, handle: Handle) -> str | None:
        """End its processes and free its memory; a persistent workspace stays. Stopping a stopped one is fine.

        Returns a sentence when not all of the workspace could be kept, which a full host disk can do.
        """

    async def start(self, handle: Handle, spec: SandboxSpec) -> Handle:
        """Run a stopped persistent sandbox again, with its workspace. Raises Conflict when it is running."""

    async def destroy(self, handle: Handle) -> None:
        """Remove it, workspace and all. Idempotent: a missing sandbox counts as removed."""

    async def usage(self, handle: Handle) -> Usage:
        """Measure it from outside."""

    def handles(self) -> AsyncIterator[Handle]:
        """List all sandboxes of this engine, running, stopped and half-made, including those of an earlier process.

        Each handle has the storage of its sandbox, and the `store_id` of the spec that made it or started it last.
        """


@runtime_checkable
class HasGpus(Protocol):
    """An engine that knows the GPUs of its host."""

    async def gpus(self) -> tuple[Gpu, ...]:
        """List the GPUs for sandboxes, including unusable ones with the reason."""


def load_engine(name: str) -> type[Engine]:
    """Import the engine class of that name; nothing else of any engine is imported."""
    target = ENGINES.get(name)
    if target is None:
        raise InvalidRequest(f"unknown engine {name!r}: choose one of {', '.join(sorted(ENGINES))}")
    module, _, attribute = target.partition(":")
    engine: type[Engine] = getattr(importlib.import_module(module), attribute)
    return engine
