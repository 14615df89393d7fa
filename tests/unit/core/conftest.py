"""What the tests of the core share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import anyio
import pytest

from unit.core.estate import Estate
from unit.core.workshop import work
from warren.core.policy.policy import Policy
from warren.stores.memory import MemoryStore

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from unit.core.workshop import Tell, Workshop
    from warren.domain.values import Image

    Serve = Callable[..., None]


@pytest.fixture
def serve(tmp_path: Path, images_dir: str, python_image: Image) -> Serve:
    """Run a scenario over real sandboxes of the bare engine; keyword arguments are the operator's policy."""

    def run(scenario: Callable[[Estate], Awaitable[None]], **policy: Any) -> None:
        async def go() -> None:
            estate = Estate(str(tmp_path), images_dir, Policy(image=python_image.name, **policy), store=MemoryStore())
            async with estate.open():
                try:
                    await scenario(estate)
                finally:
                    with anyio.CancelScope(shield=True):
                        await estate.clean()

        anyio.run(go)

    return run


@pytest.fixture
def tell(tmp_path: Path, images_dir: str) -> Tell:
    """Return what tells a story in a workshop, with choices of its policy."""

    def told(story: Callable[[Workshop], Awaitable[None]], **choices: Any) -> None:
        work(str(tmp_path), images_dir, story, **choices)

    return told
