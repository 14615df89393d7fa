"""The command line as a person has it: a process with a data folder of its own, over every engine of this host."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

import anyio
import pytest

from e2e import forked
from e2e.serving import PROGRAM, RunningService
from e2e.story import Story, left_of
from warren.domain.errors import EngineUnavailable

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator
    from pathlib import Path

    from warren.domain.values import Image

STORY_DEADLINE_S = 60
ROOTLESS = os.geteuid() != 0
"""An ordinary user has no control group of its own here, so memory and processor time are not bounded."""


class Cli:
    """Runs `warren` with one engine and the `python` image."""

    def __init__(self, engine: str, data_dir: str, folder: Path) -> None:
        self.engine = engine
        self.data_dir = data_dir
        self.folder = folder
        self.env = {
            "PATH": os.defpath,
            "HOME": str(folder),
            "WARREN_DATA_DIR": data_dir,
            "WARREN_ENGINE": engine,
            "WARREN_ALLOW_BARE": "true",
            "WARREN_IMAGE": "python",
            "WARREN_OPTIONAL_LAYERS": "cpu,memory" if ROOTLESS else "",
        }

    def __call__(self, *arguments: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        return forked.run([*arguments], input=stdin, cwd=self.folder, env=self.env, timeout=100)

    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [*PROGRAM, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=self.folder,
            env=self.env,
            start_new_session=True,
        )

    def sandboxes(self) -> list[str]:
        """Name the folders of sandboxes that are on disk."""
        home = os.path.join(self.data_dir, "bare" if self.engine == "bare" else "local/sandboxes")
        return [name for name in os.listdir(home) if name.startswith(("run_", "sbx_"))] if os.path.isdir(home) else []


@pytest.fixture(scope="session", params=["bare", "local"])
def engine_data(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, images_dir: str, python_image: Image
) -> Iterator[tuple[str, str]]:
    """An engine's name and a data folder that has the images."""
    assert python_image.name == "python"
    folder = tmp_path_factory.mktemp(request.param)
    os.symlink(os.path.join(images_dir, "images"), folder / "images")
    probe = Cli(request.param, str(folder), folder)
    tried = probe("run", "-c", "print('ready')")
    if b"engine" in tried.stderr and tried.returncode == 1 and b"Traceback" not in tried.stderr:
        pytest.skip(tried.stderr.decode())
    assert tried.stdout == b"ready\n", tried.stderr.decode()
    yield request.param, str(folder)
    probe("stop-engine")
    assert probe.sandboxes() == []


@pytest.fixture
def warren(engine_data: tuple[str, str], tmp_path: Path) -> Iterator[Cli]:
    cli = Cli(*engine_data, tmp_path)
    yield cli
    assert cli.sandboxes() == []


@pytest.fixture
def tell(tmp_path: Path, python_image: Image) -> Callable[[Callable[[Story], Awaitable[None]]], None]:
    async def play(story_of: Callable[[Story], Awaitable[None]]) -> None:
        story = Story(tmp_path, python_image)
        try:
            await story.engine.open()
        except EngineUnavailable as error:
            pytest.skip(str(error))
        try:
            with anyio.fail_after(STORY_DEADLINE_S):
                await story_of(story)
        finally:
            await story.clean()
        assert left_of(tmp_path) == []

    return lambda story_of: anyio.run(play, story_of)


@pytest.fixture
def serve(tmp_path: Path, images_dir: str, python_image: Image) -> Iterator[Callable[..., RunningService]]:
    """Starts services on folders of their own; what they made is cleared away, and nothing may be left of it."""
    assert python_image.name == "python"
    services: list[RunningService] = []

    def prepare(engine: str = "local", *, folder: Path | None = None, **settings: object) -> RunningService:
        if engine == "local" and ROOTLESS:
            pytest.skip("the service is tested on the local engine as root: it keeps workspaces on disks of their own")
        services.append(RunningService(folder or tmp_path / f"data{len(services)}", images_dir, engine, **settings))
        return services[-1]

    yield prepare
    for service in services:
        service.clear()
