"""Slide renders: in the foreground, or in the background with a record of their progress."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import time
import uuid
from typing import TYPE_CHECKING, Any, Self

import anyio

from warren.core.concurrency.steps import StepLog
from warren.core.policy.policy import check_may
from warren.core.slides.job import DeckFailed, Findings, NewRender, Rendered, RenderStep, conduct
from warren.core.telemetry.counters import Counters
from warren.domain.errors import Conflict, Error, NotFound, Overloaded, QuotaExceeded, RenderFailed, StoreError
from warren.domain.records import Render, RenderStatus, Scope
from warren.domain.values import new_id

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Callable

    from warren.core.audit.log import Audit
    from warren.core.files.stored import StoredFiles
    from warren.core.policy.policy import RenderPolicy
    from warren.core.slides.browser_pool import BrowserPool
    from warren.domain.records import Caller, Owner, StoredFile
    from warren.stores.base import Store

_RETRY_S = 1.0
_LOOK_S = 300.0
_MOST_STEPS = 1000
_BACKGROUND_BYTES = 4
"""Decks of the largest size that may wait in memory for a background render."""
_NO_FINDINGS = Findings()

_log = logging.getLogger(__name__)


class _Following(StepLog[RenderStep]):
    """The steps of a background render of this service so far."""

    def __init__(self, owner: Owner) -> None:
        super().__init__(_MOST_STEPS)
        self.owner = owner
        self.scope = anyio.CancelScope()


class Renders:
    """Renders decks, a few at a time. Background renders run between `async with`; leaving ends them."""

    def __init__(
        self,
        browsers: BrowserPool,
        store: Store,
        stored_files: StoredFiles,
        audit: Audit,
        policy: RenderPolicy,
        *,
        observer: Counters | None = None,
    ) -> None:
        self.policy = policy
        self.active = 0
        self.ended = (observer or Counters()).renders
        self._browsers = browsers
        self._store = store
        self._stored_files = stored_files
        self._audit = audit
        self._slots = anyio.Semaphore(max(1, policy.at_once))
        # One slot is never the background's: foreground callers must not wait for its whole queue.
        self._background = anyio.Semaphore(max(1, policy.at_once - 1))
        self._following: dict[str, _Following] = {}
        self._held_bytes = 0

    async def __aenter__(self) -> Self:
        self._tasks = anyio.create_task_group()
        await self._tasks.__aenter__()
        await self._give_up()
        return self

    async def __aexit__(self, *_raised: object) -> None:
        self._tasks.cancel_scope.cancel()
        await self._tasks.__aexit__(None, None, None)

    async def run(self) -> None:
        """Remove expired renders, and fail abandoned ones, until the service stops."""
        while True:
            try:
                await self._store.remove_renders(expired_at=time.time())
                await self._give_up()
            except StoreError as error:
                _log.warning("render.remove_failed", extra={"reason": str(error)})
            await anyio.sleep(_LOOK_S)

    @contextlib.asynccontextmanager
    async def render(self, caller: Caller, new: NewRender) -> AsyncIterator[Rendered]:
        """Render a deck; its archive can be read within the body.

        Raises InvalidRequest, TooLarge, QuotaExceeded, RenderFailed, and Overloaded when all slots are taken.
        """
        await self._admit(caller, new)
        try:
            with anyio.fail_after(self.policy.wait_s):
                await self._slots.acquire()
        except TimeoutError:
            raise Overloaded("renderer is busy, please retry shortly", retry_after_s=_RETRY_S) from None
        try:
            async with self._rendered(caller, new, lambda _step: None) as rendered:
                yield rendered
        finally:
            self._slots.release()

    async def start(self, caller: Caller, new: NewRender) -> Render:
        """Start a background render. Raises as `render`, and Overloaded when too many wait."""
        await self._admit(caller, new)
        owner = caller.principal.owner
        if sum(each.owner == owner for each in self._following.values()) >= self.policy.own_waiting:
            raise QuotaExceeded(
                f"{self.policy.own_waiting} renders of yours are not done: wait for one", retry_after_s=_RETRY_S
            )
        room = _BACKGROUND_BYTES * (self.policy.files_bytes + self.policy.html_chars)
        if len(self._following) >= self.policy.waiting or self._held_bytes + new.size > room:
            raise Overloaded("too many renders wait: try again when some are done", retry_after_s=_RETRY_S)
        now = time.time()
        render = Render(
            id=new_id("rnd"),
            owner=owner,
            status=RenderStatus.QUEUED,
            version=new.version or self.policy.version,
            name=new.name,
            created_at=now,
            expires_at=now + self.policy.keep_s,
            file_id=str(uuid.uuid4()),
        )
        # Counted before the first await: concurrent requests would all pass a later check.
        self._following[render.id] = _Following(owner)
        self._held_bytes += new.size
        try:
            await self._store.add_render(render)
        except BaseException:
            self._forget(new, render)
            raise
        self._tasks.start_soon(self._run, caller, new, render)
        return render

    async def get(self, caller: Caller, render_id: str) -> Render:
        """Return a render of the caller's. Raises NotFound, also for another's and for an expired one."""
        check_may(caller, Scope.READ)
        render = await self._store.render(render_id)
        if render is None or render.owner != caller.principal.owner or render.expires_at <= time.time():
            raise NotFound(f"there is no render {render_id[:64]}")
        return render

    async def list(self, caller: Caller) -> tuple[Render, ...]:
        """Return the caller's renders, newest first."""
        check_may(caller, Scope.READ)
        now = time.time()
        return tuple(each for each in await self._store.renders(caller.principal.owner) if each.expires_at > now)

    async def follow(self, caller: Caller, render_id: str) -> AsyncGenerator[RenderStep, None]:
        """Yield the progress of a render from its beginning to its end. Raises NotFound."""
        await self.get(caller, render_id)
        following = self._following.get(render_id)
        if following is not None:
            async with contextlib.aclosing(following.follow()) as steps:
                async for step in steps:
                    yield step

    async def result(self, caller: Caller, render_id: str) -> StoredFile:
        """Return the archive of a render. Raises NotFound, Conflict while it is not done, and RenderFailed."""
        render = await self.get(caller, render_id)
        if render.status is RenderStatus.FAILED:
            raise RenderFailed(render.error or "rendering failed", reason=render.reason or "failed")
        if render.file_id is None or render.status is not RenderStatus.DONE:
            raise Conflict(f"render {render_id} is not done: follow its events, or ask again later")
        return await self._stored_files.get(caller, render.file_id)

    async def delete(self, caller: Caller, render_id: str) -> None:
        """Cancel a render that is not done, and remove its result. Raises NotFound."""
        check_may(caller, Scope.RUN)
        render = await self.get(caller, render_id)
        following = self._following.get(render_id)
        if following is not None:
            following.scope.cancel()
        await self._store.remove_render(render_id)
        if render.file_id is not None:
            with contextlib.suppress(NotFound):
                await self._stored_files.delete(caller, render.file_id)
        self._audit.note(caller, "render.delete", render_id=render_id)
        await self._audit.settle()

    async def _admit(self, caller: Caller, new: NewRender) -> None:
        check_may(caller, Scope.RUN)
        self._audit.check_writable()
        new.check(self.policy)
        most, owner = self.policy.per_minute, caller.principal.owner
        if most:
            taken = await self._store.take(f"renders\0{owner.tenant}\0{owner.subject}", capacity=most, per_s=most / 60)
            if not taken.allowed:
                raise QuotaExceeded(
                    f"a principal may render {most} decks a minute: wait", retry_after_s=taken.retry_after_s
                )

    @contextlib.asynccontextmanager
    async def _rendered(
        self, caller: Caller, new: NewRender, on_step: Callable[[RenderStep], None]
    ) -> AsyncIterator[Rendered]:
        noted: dict[str, Any] = {"version": new.version or self.policy.version, "bytes_in": new.size}
        since, outcome, sandbox_id = time.monotonic(), "abandoned", ""
        self.active += 1
        try:
            async with self._browsers.one() as browser:
                sandbox_id = browser.handle.sandbox_id
                with _timed(self.policy.timeout_s):
                    rendered = await conduct(browser, new, self.policy, on_step)
                noted |= {"slides": rendered.slides, "bytes_out": rendered.content.length}
                noted["degraded"] = len(rendered.degraded)
                try:
                    yield rendered
                finally:
                    rendered.content.close()
            outcome = "ok"
        except Error as error:
            outcome = error.reason if isinstance(error, RenderFailed) else error.code
            raise
        finally:
            self.active -= 1
            ended = {"ok": "successful", "timeout": "timed_out", "page_hung": "timed_out"}.get(outcome, "failed")
            self.ended.count(ended, time.monotonic() - since)
            noted["duration_ms"] = round((time.monotonic() - since) * 1000)
            self._audit.note(caller, "render.create", outcome=outcome, sandbox_id=sandbox_id, **noted)
            await self._audit.settle()

    async def _run(self, caller: Caller, new: NewRender, render: Render) -> None:
        following = self._following[render.id]
        try:
            with following.scope:
                async with self._background, self._slots:
                    render = dataclasses.replace(render, status=RenderStatus.RUNNING)
                    await self._store.keep_render(render)
                    render = await self._finish(caller, new, render, following)
                with anyio.CancelScope(shield=True):
                    if not await self._store.keep_render(render):
                        await self._discard(render)
        except Exception as error:  # noqa: BLE001 - it runs beside everything else
            _log.error("render.failed", extra={"render_id": render.id, "error": type(error).__name__})
        finally:
            self._forget(new, render)

    def _forget(self, new: NewRender, render: Render) -> None:
        self._held_bytes -= new.size
        self._following.pop(render.id).end()

    async def _finish(self, caller: Caller, new: NewRender, render: Render, following: _Following) -> Render:
        name, keep_s, file_id = f"{new.name}.zip", self.policy.keep_s, render.file_id or ""
        try:
            async with self._rendered(caller, new, following.note) as made:
                # Timed as well: the content comes from a program that a deck may have taken over.
                with _timed(self.policy.timeout_s):
                    file = await self._stored_files.add(caller, name, made.content, ttl_s=keep_s, file_id=file_id)
                assert file is not None
                return dataclasses.replace(
                    render,
                    status=RenderStatus.DONE,
                    slides=made.slides,
                    degraded=tuple((each.slide, each.why) for each in made.degraded),
                    missing=made.findings.missing,
                    script_errors=made.findings.script_errors,
                    finished_at=time.time(),
                    expires_at=file.expires_at,
                )
        except BaseException as error:
            await self._discard(render)
            if not isinstance(error, Error):
                raise
            reason = error.reason if isinstance(error, RenderFailed) else error.code
            return _failed(
                render, reason, str(error), error.findings if isinstance(error, DeckFailed) else _NO_FINDINGS
            )

    async def _discard(self, render: Render) -> None:
        """Remove the result of a render, if there is one."""
        if render.file_id is not None:
            with anyio.CancelScope(shield=True):
                await self._stored_files.discard(render.file_id)

    async def _give_up(self) -> None:
        """Fail renders that no service works on: one was killed, or could not write the end."""
        # In this order: a render that begins or ends meanwhile is not mistaken for an abandoned one.
        known, began = frozenset(self._following), time.time()
        for render in await self._store.unfinished_renders():
            if render.id not in known and render.created_at < began:
                why = "the service ended while it was rendered: try again"
                await self._discard(render)
                await self._store.keep_render(_failed(render, "lost", why))


def _failed(render: Render, reason: str, error: str, findings: Findings = _NO_FINDINGS) -> Render:
    return dataclasses.replace(
        render,
        status=RenderStatus.FAILED,
        reason=reason,
        error=error,
        missing=findings.missing,
        script_errors=findings.script_errors,
        finished_at=time.time(),
    )


@contextlib.contextmanager
def _timed(seconds: float) -> Any:
    try:
        with anyio.fail_after(seconds):
            yield
    except TimeoutError:
        raise RenderFailed(f"render timeout exceeded after {seconds:g} seconds", reason="timeout") from None
