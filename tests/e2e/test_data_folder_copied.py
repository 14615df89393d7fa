"""A copy of a data folder, a backup that is looked into for example, has no hold on the sandboxes of the original."""

from __future__ import annotations

import os
import shutil
import subprocess
from typing import TYPE_CHECKING

import anyio

from e2e.story import Story, run
from warren.engines import procfs

if TYPE_CHECKING:
    from pathlib import Path

    from warren.domain.values import Image


def _leave_out_sockets(folder: str, names: list[str]) -> list[str]:
    return [name for name in names if name.endswith((".sock", ".lock")) or os.path.ismount(f"{folder}/{name}")]


def _copy(source: str, target: str) -> None:
    """Copy a file with its holes: a sandbox's disk is gigabytes of them."""
    subprocess.run(["cp", "--archive", source, target], check=True)


def test_sandboxes_outlive_a_keeper_of_a_copy_of_their_data_folder(tmp_path: Path, python_image: Image) -> None:
    async def tell() -> list[bytes]:
        original, copy = Story(tmp_path / "original", python_image), Story(tmp_path / "copy", python_image)
        try:
            handles = [await original.engine.create(original.spec())]
            shutil.copytree(original.folder, copy.folder, ignore=_leave_out_sockets, copy_function=_copy)
            handles.append(await original.engine.create(original.spec()))
            zygote = original.zygote_pid
            await copy.engine.open()
            copied = [handle async for handle in copy.engine.handles()]
            for handle in copied:
                await copy.engine.destroy(handle)
            assert copied == handles[:1]
            assert procfs.read(zygote) is not None
            return [(await run(original.engine, handle, "print(6 * 7)")).stdout for handle in handles]
        finally:
            await copy.clean()
            await original.clean()

    assert anyio.run(tell) == [b"42\n", b"42\n"]
