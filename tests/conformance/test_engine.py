"""Every engine check over every engine."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from warren.domain.errors import EngineUnavailable
from warren.domain.values import Handle, Image, SandboxSpec, new_id
from warren.engines.bare.engine import BareEngine
from warren.engines.local.engine import LocalEngine
from warren.engines.local.linux.host import describe
from warren.testing.engine_checks import CHECKS, Subject, perform

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from warren.engines.base import Engine

ROOTLESS = os.geteuid() != 0
NEEDS_ROOT = ("cpu", "memory", "disk") if ROOTLESS else ()
"""Layers that an ordinary user does without here: two need a delegated control group, one a loop device."""

KNOWN_GAPS = {
    ("bare", "check_out_of_memory_rolls_back"): "the bare engine enforces no limits",
    ("bare", "check_what_a_program_leaves_is_collected"): "its programs share the /tmp of the host",
    ("bare", "check_a_program_finds_its_folders_empty"): "its programs share the /tmp of the host",
    ("bare", "check_of_very_many_files_some_are_collected"): "its programs share the /tmp of the host",
}
if ROOTLESS and not describe().user_manager:
    KNOWN_GAPS |= {
        ("local", "check_out_of_memory_rolls_back"): "memory is bounded by a control group, which only root has here",
        ("local", "check_resize_applies"): "memory is bounded by a control group, which only root has here",
    }

pytestmark = pytest.mark.every_engine

HOST_IMAGE = Image(name="host", digest="0" * 32, path="", interpreter_prefix=sys.base_prefix)
"""No image at all: the interpreter that runs these tests, which only the bare engine takes."""


class Bench:
    """One engine, its data folder, and what only a test of it knows: where the pid of an agent is written."""

    def __init__(self, name: str, data_dir: str, image: Image) -> None:
        self.name = name
        self.data_dir = data_dir
        self._image = image

    def make_engine(self) -> Engine:
        if self.name == "bare":
            return BareEngine(self.data_dir, allow=True)
        return LocalEngine(self.data_dir, optional_layers=NEEDS_ROOT)

    def make_spec(self, **fields: Any) -> SandboxSpec:
        return SandboxSpec(**{"id": new_id("sbx"), "image": self._image, **fields})

    async def kill_agent(self, handle: Handle) -> None:
        folder = "bare" if self.name == "bare" else "local/sandboxes"
        record = anyio.Path(self.data_dir, folder, handle.sandbox_id, "record.json")
        os.kill(json.loads(await record.read_text())["pid"], signal.SIGKILL)

    async def run(self, check: Callable[[Subject], Awaitable[None]]) -> None:
        engine = self.make_engine()
        await engine.open()
        try:
            await perform(check, Subject(engine, self.make_spec, self.make_engine, self.kill_agent))
        finally:
            await engine.close()

    async def try_to_open(self) -> None:
        engine = self.make_engine()
        await engine.open()
        await engine.close()

    async def clean(self) -> list[str]:
        """End what the engine keeps, and name the sandboxes that were left."""
        engine = self.make_engine()
        await engine.open()
        left = [handle async for handle in engine.handles()]
        for handle in left:
            await engine.destroy(handle)
        await engine.close()
        if isinstance(engine, LocalEngine):
            await engine.retire()
        return [handle.sandbox_id for handle in left]


def leftovers(data_dir: str) -> list[str]:
    """Name the processes, mounts and loop devices that have to do with a data folder."""
    found = []
    for pid in (name for name in os.listdir("/proc") if name.isdigit() and int(name) != os.getpid()):
        for what in ("cmdline", "environ"):
            with contextlib.suppress(OSError):
                seen = Path(f"/proc/{pid}/{what}").read_bytes()
                found += [f"{what} of process {pid}"] if data_dir.encode() in seen else []
    found += [line for line in Path("/proc/mounts").read_text().splitlines() if data_dir in line]
    for backing in Path("/sys/block").glob("loop*/loop/backing_file"):
        with contextlib.suppress(OSError):
            found += [str(backing)] if data_dir in backing.read_text() else []
    return found


@pytest.fixture(scope="module", params=["bare", "local"])
def bench(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    name = request.param
    image = HOST_IMAGE if name == "bare" else request.getfixturevalue("python_image")
    bench = Bench(name, str(tmp_path_factory.mktemp(name)), image)
    try:
        anyio.run(bench.try_to_open)
    except EngineUnavailable as exc:
        pytest.skip(str(exc))
    yield bench
    assert anyio.run(bench.clean) == []
    deadline = time.monotonic() + 60
    while (left := leftovers(bench.data_dir)) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert left == []


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_engine(bench: Bench, check: Callable[[Subject], Awaitable[None]], request: pytest.FixtureRequest) -> None:
    reason = KNOWN_GAPS.get((bench.name, check.__name__))
    if reason is not None:
        request.applymarker(pytest.mark.xfail(reason=reason, strict=True))
    anyio.run(bench.run, check)


def test_known_gaps_name_real_checks() -> None:
    assert {name for _, name in KNOWN_GAPS} <= {check.__name__ for check in CHECKS}
