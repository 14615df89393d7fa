"""Tool callbacks: of two concurrent registrations, one is in force as a whole."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio

from unit.core.estate import ANN, Estate, wait_until
from unit.core.meddling import MeddledStore, tell
from warren.core.callbacks.callbacks import NewCallbacks, ToolCallbacks
from warren.core.callbacks.targets import Targets
from warren.core.telemetry.counters import Counters

if TYPE_CHECKING:
    from pathlib import Path

    from warren.domain.records import Callbacks
    from warren.domain.values import Image

URL = "http://127.0.0.1:9/tools"


class CallbacksStore(MeddledStore):
    """A store that lets another caller act before the first callbacks are kept."""

    async def keep_callbacks(self, callbacks: Callbacks) -> None:
        await self.let_others_act()
        await super().keep_callbacks(callbacks)


def test_of_two_who_offer_tools_at_once_the_module_and_the_record_are_the_same_ones(
    tmp_path: Path, images_dir: str, python_image: Image
) -> None:
    async def scenario(estate: Estate, store: CallbacksStore) -> None:
        callbacks = ToolCallbacks(estate.sandboxes, store, estate.audit, Targets(("127.0.0.1:9",)), Counters())
        sandbox = await estate.create()
        is_done = anyio.Event()
        paths: set[str] = set()

        async def register(tool: str) -> None:
            paths.add(await callbacks.register(ANN, sandbox.id, NewCallbacks(url=URL, token="t", tools={tool: "."})))

        async def register_second() -> None:
            await register("second")
            is_done.set()

        async def overtake() -> None:
            tasks.start_soon(register_second)
            # Until the other has done all that it can do now.
            await wait_until(lambda: is_done.is_set() or callbacks.turns.users(sandbox.id) == 2)

        store.meanwhile = overtake
        async with anyio.create_task_group() as tasks:
            await register("first")
            await is_done.wait()
        (kept,) = await store.callbacks()
        (path,) = paths
        module = await anyio.Path(path).read_text()
        assert [tool for tool in ("first", "second") if tool in module] == list(kept.tools)
        assert str(kept.port) in module

    tell(CallbacksStore(str(tmp_path)), str(tmp_path), images_dir, python_image.name, scenario)
