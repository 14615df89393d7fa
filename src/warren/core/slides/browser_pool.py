"""Sandboxes with a started browser: each is for one deck, and then gone.

They are in no store, and no client can name one: after a crash, recovery destroys what the store does not know.
"""

from __future__ import annotations

import contextlib
import json
import logging
import time
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import anyio

from warren.core.sandboxes.transitions import explained
from warren.domain.errors import Error, NotFound, RenderFailed, SandboxLost
from warren.domain.values import Echo, ExecKind, ExecRequest, Handle, SandboxSpec, Storage, new_id

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator

    from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

    from warren.core.agent.client import AgentClient
    from warren.core.images.cache import ImageCache
    from warren.core.policy.slides import RenderPolicy
    from warren.core.sandboxes.connections import AgentConnections
    from warren.domain.values import Event, Image
    from warren.engines.base import Engine

START_S = 60.0
"""For a browser to be ready; on an idle machine it takes half a second."""
_PROGRAM = "import sys\nfrom warren.render import job\nsys.exit(job.main(['--warm']))\n"
_MAX_LINE = 64 << 10
_MAX_LINES = 10_000
_LOOK_S = 5.0
_BACK_OFF_S = 30.0

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class BrowserSandbox:
    """A sandbox whose browser waits for a deck."""

    handle: Handle
    image: Image
    agent: AgentClient
    says: AsyncGenerator[dict[str, Any], None]
    """What the program inside says, one thing at a time. It is hostile: a deck may have taken it over."""
    words: MemoryObjectSendStream[bytes] = field(repr=False)
    """What it is told."""
    heard: MemoryObjectReceiveStream[bytes] = field(repr=False)

    async def tell(self, path: str) -> None:
        """Tell the program which job it is for."""
        await self.words.send(f"{path}\n".encode())

    async def close(self) -> None:
        """Stop listening to it."""
        self.words.close()
        self.heard.close()
        await self.says.aclose()


class BrowserPool:
    """Makes such sandboxes, keeps a few ready while they are wanted, and removes each after its use."""

    def __init__(
        self,
        engine: Engine,
        connections: AgentConnections,
        images: ImageCache,
        policy: RenderPolicy,
        program: str | None = None,
    ) -> None:
        self._engine = engine
        self._connections = connections
        self._images = images
        self._policy = policy
        self._program = program or _PROGRAM
        self._ready: deque[BrowserSandbox] = deque()
        self._dead: list[Handle] = []
        self._used_at = -policy.warm_s
        self._changed = anyio.Event()

    @property
    def ready(self) -> int:
        """How many wait for a deck."""
        return len(self._ready)

    @contextlib.asynccontextmanager
    async def one(self) -> AsyncIterator[BrowserSandbox]:
        """Have one for the body alone. Raises NotFound for an image that is not built, and what the engine says."""
        self._used_at = time.monotonic()
        image = await self._images.get(self._policy.image)
        browser = await self._take(image) or await self._make(image)
        try:
            yield browser
        finally:
            with anyio.CancelScope(shield=True):
                await self._retire(browser)

    async def run(self) -> None:
        """Keep some ready after the first use, for as long as they are wanted; remove what was used."""
        while True:
            self._changed = anyio.Event()
            pause = _LOOK_S
            try:
                await self._bury()
                await self._sweep()
                if self._is_wanted and len(self._ready) < self._policy.warm:
                    self._ready.append(await self._make(await self._images.get(self._policy.image)))
                    continue
            except Exception as error:  # noqa: BLE001 - without one ready everything works, only slower
                _log.warning("render.unready", extra={"reason": str(error)}, exc_info=not isinstance(error, Error))
                pause = _BACK_OFF_S
            with anyio.move_on_after(pause):
                await self._changed.wait()

    async def drain(self) -> None:
        """Remove them all."""
        with anyio.CancelScope(shield=True):
            while self._ready:
                await self._retire(self._ready.popleft())
            try:
                await self._bury()
            except Error as error:
                # The next start finds what is left.
                _log.warning("render.undrained", extra={"reason": str(error)})

    @property
    def _is_wanted(self) -> bool:
        return time.monotonic() - self._used_at < self._policy.warm_s

    async def _take(self, image: Image) -> BrowserSandbox | None:
        while self._ready:
            browser = self._ready.popleft()
            self._changed.set()
            if browser.agent.lost is None and browser.image.digest == image.digest:
                return browser
            await self._retire(browser)
        return None

    async def _make(self, image: Image) -> BrowserSandbox:
        """Make a sandbox and wait until its browser is ready."""
        spec = SandboxSpec(id=new_id("sbx"), image=image, limits=self._policy.limits, storage=Storage.EPHEMERAL)
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

    async def _retire(self, browser: BrowserSandbox) -> None:
        """Give it up; nobody has to wait until it is removed."""
        await browser.close()
        self._dead.append(browser.handle)
        self._changed.set()

    async def _sweep(self) -> None:
        """Take out what died, and what nobody has wanted for long or was made from an earlier build."""
        try:
            digest = (await self._images.get(self._policy.image)).digest
        except NotFound:
            digest = ""
        for browser in list(self._ready):
            if not self._is_wanted or browser.agent.lost is not None or browser.image.digest != digest:
                self._ready.remove(browser)
                await self._retire(browser)
        await self._bury()

    async def _bury(self) -> None:
        while self._dead:
            # From the front: one that cannot be removed goes to the end, and keeps nobody else waiting.
            handle = self._dead.pop(0)
            try:
                with anyio.CancelScope(shield=True):
                    await self._connections.drop(handle.sandbox_id)
                    await self._engine.destroy(handle)
            except BaseException:
                self._dead.append(handle)
                raise


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
    return BrowserSandbox(handle, image, agent, _listen(agent.stream(request, receive)), send, receive)


async def _listen(events: AsyncGenerator[Event, None]) -> AsyncGenerator[dict[str, Any], None]:
    """Yield what the program says, line by line. Raises RenderFailed when it ends, or says what cannot be."""
    rest, count = b"", 0
    async with contextlib.aclosing(events):
        async for event in events:
            if event.result is not None:
                raise RenderFailed(event.result.hint or "the renderer ended", reason=_reason(event.result.cause))
            if event.kind != "stdout":
                continue
            *lines, rest = (rest + event.data).split(b"\n")
            count += len(lines)
            if event.skipped or len(rest) > _MAX_LINE or count > _MAX_LINES:
                raise RenderFailed("the renderer says too much: it was ended")
            for line in lines:
                yield _parse(line)
    raise SandboxLost("the connection to the renderer broke")


def _reason(cause: str) -> str:
    return {"oom": "memory", "timeout": "timeout"}.get(cause, "failed")


def _parse(line: bytes) -> dict[str, Any]:
    try:
        said = json.loads(line) if len(line) <= _MAX_LINE else None
    except (ValueError, RecursionError):
        said = None
    if not isinstance(said, dict):
        raise RenderFailed("the renderer said something that is not JSON: it was ended")
    return said
