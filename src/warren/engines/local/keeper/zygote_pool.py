"""Zygote pool: one zygote for each image, and for each driver of sandboxes with GPUs, started on demand."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Any

from warren.engines.local.keeper.zygote_launch import Launch
from warren.engines.local.keeper.zygotes import Zygote

if TYPE_CHECKING:
    from collections.abc import Callable

    from warren.engines.local.linux.cgroups import Cgroups
    from warren.engines.local.linux.devices import Needs


class ZygotePool:
    """The zygotes of one data folder. `on_end(key)` is called when one is found dead."""

    def __init__(
        self,
        folder: str,
        cgroups: Cgroups,
        guest_path: str,
        *,
        find_base_uid: Callable[[str], int | None],
        shared_path: str | None,
        on_end: Callable[[str], None],
    ) -> None:
        self._folder = folder
        self._cgroups = cgroups
        self._guest_path = guest_path
        self._version = os.path.basename(guest_path)
        self._find_base_uid = find_base_uid
        self._shared_path = shared_path
        self._on_end = on_end
        self._zygotes: dict[str, Zygote] = {}
        self._opening: dict[str, asyncio.Lock] = {}

    @property
    def groups(self) -> set[str]:
        """Names of the control groups in which zygotes wait."""
        return {zygote.waiting_in for zygote in self._zygotes.values()}

    async def adopt_all(self) -> None:
        """Connect to the zygotes that an earlier keeper left; those of another version are ended."""
        zygotes = {key: self._new(key) for key in os.listdir(self._folder)}
        # At once: a silent one must not keep the others waiting.
        adopted = await asyncio.gather(*(zygote.adopt(self._version) for zygote in zygotes.values()))
        self._zygotes |= {
            key: zygote for (key, zygote), is_ours in zip(zygotes.items(), adopted, strict=True) if is_ours
        }

    def find_ready(self, key: str) -> Zygote | None:
        """Return a running zygote, or None."""
        zygote = self._zygotes.get(key)
        return zygote if zygote is not None and zygote.is_ready else None

    async def get(self, image: dict[str, Any], env: dict[str, str], needs: Needs | None) -> Zygote:
        """Return the zygote of an image, starting one if there is none; all its sandboxes have `env`."""
        key = image["digest"] if needs is None else f"{image['digest']}-{needs.key}"
        async with self._opening.setdefault(key, asyncio.Lock()):
            zygote = self._zygotes.get(key)
            if zygote is None or not zygote.is_ready:
                if zygote is not None:
                    await zygote.close(kill=True)
                zygote = self._new(key)
                await zygote.start(
                    Launch(
                        image=image,
                        env=env,
                        guest_path=self._guest_path,
                        version=self._version,
                        base_uid=self._find_base_uid(image["name"]),
                        shared_path=self._shared_path,
                        driver=None if needs is None else needs.driver,
                    )
                )
                self._zygotes[key] = zygote
            return zygote

    async def close(self) -> None:
        """End all zygotes; the sandboxes they made run on."""
        for zygote in self._zygotes.values():
            await zygote.close(kill=True)

    def _new(self, key: str) -> Zygote:
        zygote = Zygote(os.path.join(self._folder, key), self._cgroups)
        zygote.on_end = lambda: self._on_end(key)
        return zygote
