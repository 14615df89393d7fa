"""Stores in which another caller acts at the very moment that a test is about."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import anyio

from unit.core.estate import Estate
from warren.core.policy.policy import Policy
from warren.stores.sqlite.store import SqliteStore

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


class Meddled:
    """Subclasses call `let_others_act` where another caller may come between."""

    meanwhile: Callable[[], Awaitable[object]] | None = None
    """What they do there, once."""

    async def let_others_act(self) -> None:
        """Wait for what the test has another caller do, if it has."""
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile is not None:
            await meanwhile()


class MeddledStore(Meddled, SqliteStore):
    """A store of that kind."""


S = TypeVar("S", bound=MeddledStore)


def tell(store: S, folder: str, images_dir: str, image: str, scenario: Callable[[Estate, S], Awaitable[None]]) -> None:
    """Have a scenario happen in an estate with this store, and leave nothing behind."""

    async def story() -> None:
        estate = Estate(folder, images_dir, Policy(image=image), store=store)
        async with estate.open():
            try:
                await scenario(estate, store)
            finally:
                with anyio.CancelScope(shield=True):
                    await estate.clean()

    anyio.run(story)
