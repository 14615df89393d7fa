"""The pool of browsers: sandboxes with a started browser, each for one deck."""

from __future__ import annotations

import contextlib
import json
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import anyio

from warren.core.sandboxes.transitions import explained
from warren.core.sandboxes.warm_pool import WarmPool, WarmSandbox
from warren.domain.errors import RenderFailed, SandboxLost
from warren.domain.values import Echo, ExecKind, ExecRequest, Handle, SandboxSpec, Storage, new_id

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Iterable

    from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

    from warren.core.agent.client import AgentClient
    from warren.core.images.cache import ImageCache
    from warren.core.policy.policy import RenderPolicy
    from warren.core.sandboxes.connections import AgentConnections
    from warren.domain.values import Event, Image
    from warren.engines.base import Engine
    from warren.stores.base import Store

START_S = 60.0
"""Limit for a browser to be ready; on an idle machine it takes half a second."""
_PROGRAM = "import sys\nfrom warren.render import job\nsys.exit(job.main(['--warm']))\n"
_MAX_LINE = 64 << 10
_MAX_LINES = 10_000


@dataclass(frozen=True, slots=True)
class BrowserSandbox(WarmSandbox):
    """A sandbox whose browser waits for a deck."""

    says: AsyncGenerator[dict[str, Any], None]
    """The messages of the program inside, one at a time. They are hostile: a deck may have taken the program over."""
    words: MemoryObjectSendStream[bytes] = field(repr=False)
    """The standard input of the program."""
    heard: MemoryObjectReceiveStream[bytes] = field(repr=False)

    async def tell(self, path: str) -> None:
        """Send the program the path of its job."""
        await self.words.send(f"{path}\n".encode())

    async def close(self) -> None:
        """Stop listening to the program."""
        self.words.close()
        self.heard.close()
        await self.says.aclose()


class BrowserPool(WarmPool[BrowserSandbox]):
    """Sandboxes with a started browser, kept ready for `warm_s` after each use. Each serves one deck."""

    name = "browser_pool"
    storages = (Storage.EPHEMERAL,)

    def __init__(
        self,
        engine: Engine,
        store: Store,
        connections: AgentConnections,
        images: ImageCache,
        policy: RenderPolicy,
        *,
        program: str | None = None,
    ) -> None:
        super().__init__(engine, store, connections, images, policy.warm)
        self._policy = policy
        self._program = program or _PROGRAM
        self._used_at = -policy.warm_s

    @property
    def ready(self) -> int:
        """How many wait for a deck."""
        return sum(map(len, self._ready.values()))

    @contextlib.asynccontextmanager
    async def one(self) -> AsyncIterator[BrowserSandbox]:
        """Have one for the body alone. Raises NotFound for an image that is not built, and the engine's errors."""
        self._used_at = time.monotonic()
        image = await self._images.get(self._policy.image)
        browser = await self._take(image, Storage.EPHEMERAL) or await self._make(image, Storage.EPHEMERAL)
        try:
            yield browser
        finally:
            with anyio.CancelScope(shield=True):
                await self._retire(browser)

    def _wanted(self) -> Iterable[str]:
        return (self._policy.image,) if time.monotonic() - self._used_at < self._policy.warm_s else ()

    async def _make(self, image: Image, storage: Storage) -> BrowserSandbox:
        """Make a sandbox and wait until its browser is ready."""
        spec = SandboxSpec(
            id=new_id("sbx"),
            image=image,
            limits=self._policy.limits,
            storage=storage,
            store_id=self._store.identity,
        )
        handle = Handle(self._engine.name, spec.id)
        browser: BrowserSandbox | None = None
        try:
            with explained(), anyio.CancelScope(shield=True):
                await self._engine.create(spec)
            browser = _begin(handle, image, await self._connections.get(handle), self._program)
            await _wait_ready(browser)
        except BaseException:
            self._dead.append(handle)
            if browser is not None:
                with anyio.CancelScope(shield=True):
                    await browser.close()
            raise
        return browser


async def _wait_ready(browser: BrowserSandbox) -> None:
    try:
        with anyio.fail_after(START_S):
            first = await anext(browser.says)
    except TimeoutError:
        why = f"the browser was not ready within {START_S:g} seconds"
        raise RenderFailed(why, reason="browser_missing") from None
    if first.get("type") != "ready":
        why = f"the browser did not start: {str(first.get('error', ''))[:500]}"
        raise RenderFailed(why, reason="browser_missing")


def _begin(handle: Handle, image: Image, agent: AgentClient, program: str) -> BrowserSandbox:
    send, receive = anyio.create_memory_object_stream[bytes](4)
    request = ExecRequest(
        id=new_id("exe"),
        kind=ExecKind.SCRIPT,
        code=program,
        echo=Echo.NONE,
        label="render",
        scan_changes=False,
        checkpoint=False,
    )
    return BrowserSandbox(
        handle, image, Storage.EPHEMERAL, agent, _listen(agent.stream(request, receive)), send, receive
    )


async def _listen(events: AsyncGenerator[Event, None]) -> AsyncGenerator[dict[str, Any], None]:
    """Yield the program's messages, line by line. Raises RenderFailed when it ends or a message cannot be."""
    rest, count = b"", 0
    async with contextlib.aclosing(events):
        async for event in events:
            if event.result is not None:
                reason = {"oom": "memory", "timeout": "timeout"}.get(event.result.cause, "failed")
                raise RenderFailed(event.result.hint or "the renderer ended", reason=reason)
            if event.kind != "stdout":
                continue
            *lines, rest = (rest + event.data).split(b"\n")
            count += len(lines)
            if event.skipped or len(rest) > _MAX_LINE or count > _MAX_LINES:
                raise RenderFailed("the renderer says too much: it was ended")
            for line in lines:
                yield _parse(line)
    raise SandboxLost("the connection to the renderer broke")


def _parse(line: bytes) -> dict[str, Any]:
    try:
        said = json.loads(line) if len(line) <= _MAX_LINE else None
    except (ValueError, RecursionError):
        said = None
    if not isinstance(said, dict):
        raise RenderFailed("the renderer said something that is not JSON: it was ended")
    return said
