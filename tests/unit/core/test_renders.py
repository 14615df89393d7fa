"""Background renders: deletion leaves nothing behind, and none stays unfinished."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import anyio
import pytest

from unit.core.estate import ANN, Estate
from warren.blobs.filesystem import Blobs
from warren.core.files.stored import StoredFiles
from warren.core.policy.policy import Policy, RenderPolicy
from warren.core.slides.browser_pool import BrowserPool
from warren.core.slides.job import NewRender
from warren.core.slides.renders import Renders
from warren.domain.errors import Conflict, NotFound, StoreError
from warren.domain.records import AuditQuery, RenderStatus
from warren.stores.sqlite.store import SqliteStore

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from warren.domain.records import Render, StoredFile

_PROGRAM = """
import json, sys
print('{"type": "ready"}', flush=True)
sys.stdin.readline()
open("deck/out.zip", "wb").write(b"x" * 1000)
json.dump({"ok": True, "slides": 1}, open("deck/result.json", "w"))
print('{"type": "done"}', flush=True)
"""
"""Stands for the browser: what it makes is not looked at here."""


class PausingStore(SqliteStore):
    """A store that does one thing only when it is told to go on."""

    def __init__(self, data_dir: str) -> None:
        super().__init__(data_dir)
        self.reached: dict[str, anyio.Event] = {}
        self.may_go: dict[str, anyio.Event] = {}
        self.refuses_ends = False

    def pause(self, *names: str) -> None:
        for name in names:
            self.reached[name], self.may_go[name] = anyio.Event(), anyio.Event()

    async def _pass(self, name: str) -> None:
        if name in self.reached:
            self.reached[name].set()
            await self.may_go[name].wait()

    async def add_file(self, file: StoredFile, *, own_bytes: int = 0, all_bytes: int = 0) -> None:
        await super().add_file(file, own_bytes=own_bytes, all_bytes=all_bytes)
        await self._pass("added")

    async def keep_render(self, render: Render) -> bool:
        if render.finished_at is not None:
            await self._pass("kept")
            if self.refuses_ends:
                raise StoreError("the disk is full")
        return await super().keep_render(render)

    async def render(self, render_id: str) -> Render | None:
        found = await super().render(render_id)
        await self._pass("read")
        return found


class Studio(Estate):
    """Renders over the real parts, with another program than the browser's inside."""

    def __init__(self, folder: str, images_dir: str, store: PausingStore) -> None:
        policy = Policy(image="python")
        super().__init__(folder, images_dir, policy, store=store)
        self.pausing = store
        self.blobs = Blobs(os.path.join(folder, "blobs"))
        self.rendering = RenderPolicy(image="python", warm=0, per_minute=0)
        self.files = StoredFiles(store, self.blobs, self.audit, policy)
        self.browsers = BrowserPool(
            self.engine, self.store, self.connections, self.images, self.rendering, program=_PROGRAM
        )
        self.renders = self.make_renders()

    def make_renders(self) -> Renders:
        return Renders(self.browsers, self.pausing, self.files, self.audit, self.rendering)

    async def finish(self, render_id: str) -> None:
        """Wait until it is no longer being made."""
        async for _ in self.renders.follow(ANN, render_id):
            pass

    async def check_nothing_is_left(self) -> None:
        assert await self.store.files(None) == ()
        assert await self.blobs.sizes() == {}


@pytest.fixture
def tell(tmp_path: Path, images_dir: str) -> Callable[..., None]:
    def told(story: Callable[[Studio], Awaitable[None]]) -> None:
        async def go() -> None:
            studio = Studio(str(tmp_path), images_dir, PausingStore(str(tmp_path)))
            async with studio.open():
                try:
                    with anyio.fail_after(60):
                        async with studio.renders:
                            await story(studio)
                finally:
                    with anyio.CancelScope(shield=True):
                        await studio.browsers.drain()
                        await studio.clean()

        anyio.run(go)

    return told


@pytest.mark.usefixtures("python_image")
@pytest.mark.parametrize("moment", ["added", "kept"])
def test_a_render_that_is_deleted_while_it_is_stored_leaves_no_file(tell: Callable[..., None], moment: str) -> None:
    async def story(studio: Studio) -> None:
        studio.pausing.pause(moment)
        render = await studio.renders.start(ANN, NewRender(html="x"))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(studio.finish, render.id)
            await studio.pausing.reached[moment].wait()
            await studio.renders.delete(ANN, render.id)
            studio.pausing.may_go[moment].set()

        with pytest.raises(NotFound):
            await studio.renders.get(ANN, render.id)
        await studio.check_nothing_is_left()

    tell(story)


@pytest.mark.usefixtures("python_image")
def test_a_render_that_is_done_while_its_deletion_looks_leaves_no_file(tell: Callable[..., None]) -> None:
    async def story(studio: Studio) -> None:
        studio.pausing.pause("kept")
        render = await studio.renders.start(ANN, NewRender(html="x"))
        async with anyio.create_task_group() as tasks:
            async with anyio.create_task_group() as making:
                making.start_soon(studio.finish, render.id)
                await studio.pausing.reached["kept"].wait()
                studio.pausing.pause("read")
                tasks.start_soon(studio.renders.delete, ANN, render.id)
                await studio.pausing.reached["read"].wait()
                studio.pausing.may_go["kept"].set()
            assert len(await studio.store.files(None)) == 1
            studio.pausing.may_go["read"].set()

        await studio.check_nothing_is_left()

    tell(story)


@pytest.mark.usefixtures("python_image")
@pytest.mark.parametrize("moment", ["added", "kept"])
def test_a_render_that_a_crash_interrupts_while_it_is_stored_is_lost_and_leaves_no_file(
    tell: Callable[..., None], moment: str
) -> None:
    async def story(studio: Studio) -> None:
        studio.pausing.pause(moment)
        render = await studio.renders.start(ANN, NewRender(html="x"))
        await studio.pausing.reached[moment].wait()
        with pytest.raises(Conflict):
            await studio.renders.result(ANN, render.id)
        assert len(await studio.store.files(None)) == 1
        # What the first would go on to do it never does: the next service finds what is on disk.
        del studio.pausing.reached[moment]
        async with studio.make_renders() as later:
            lost = await later.get(ANN, render.id)
            assert (lost.status, lost.reason) == (RenderStatus.FAILED, "lost")
            await studio.check_nothing_is_left()
        studio.pausing.may_go[moment].set()

    tell(story)


@pytest.mark.usefixtures("python_image")
def test_a_render_whose_end_cannot_be_written_is_given_up_later(tell: Callable[..., None]) -> None:
    async def story(studio: Studio) -> None:
        studio.pausing.refuses_ends = True
        render = await studio.renders.start(ANN, NewRender(html="x"))
        await studio.finish(render.id)
        assert (await studio.renders.get(ANN, render.id)).status is RenderStatus.RUNNING

        studio.pausing.refuses_ends = False
        studio.pausing.pause("kept")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(studio.renders.run)
            await studio.pausing.reached["kept"].wait()
            other = await studio.renders.start(ANN, NewRender(html="x"))
            studio.pausing.may_go["kept"].set()
            await studio.finish(other.id)
            tasks.cancel_scope.cancel()
        lost = await studio.renders.get(ANN, render.id)
        assert (lost.status, lost.reason) == (RenderStatus.FAILED, "lost")
        assert (await studio.renders.get(ANN, other.id)).status is RenderStatus.DONE

    tell(story)


@pytest.mark.usefixtures("python_image")
def test_the_record_names_the_sandbox_of_a_render(tell: Callable[..., None]) -> None:
    async def story(studio: Studio) -> None:
        async with studio.renders.render(ANN, NewRender(html="x")) as made:
            assert made.slides == 1
        found = await studio.store.audit(AuditQuery(action="render.create"))
        assert found.items[0].entry.sandbox_id.startswith("sbx_")

    tell(story)
