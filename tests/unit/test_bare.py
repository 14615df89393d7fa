"""The bare engine where it differs from others: it must be asked for, and its records are all it has."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import anyio
import pytest

from warren.domain.errors import EngineUnavailable, StartFailed
from warren.domain.values import Handle, Image, SandboxSpec, new_id
from warren.engines import procfs
from warren.engines.bare.engine import BareEngine
from warren.engines.bare.sandbox import find_interpreter

if TYPE_CHECKING:
    from pathlib import Path


def test_it_refuses_to_open_unless_allowed_and_names_the_flag(tmp_path: Path) -> None:
    with pytest.raises(EngineUnavailable, match="--allow-bare"):
        anyio.run(BareEngine(str(tmp_path)).open)

    assert os.listdir(tmp_path) == []


def test_a_half_made_sandbox_is_listed_and_can_be_destroyed(tmp_path: Path) -> None:
    handle = Handle("bare", new_id("sbx"))

    async def story() -> None:
        engine = BareEngine(str(tmp_path), allow=True)
        await engine.open()
        os.mkdir(tmp_path / "bare" / handle.sandbox_id)
        assert [found async for found in engine.handles()] == [handle]
        await engine.stop(handle)
        await engine.destroy(handle)
        assert [found async for found in engine.handles()] == []

    anyio.run(story)


def test_an_agent_that_cannot_start_says_why_and_leaves_nothing(tmp_path: Path) -> None:
    os.makedirs(tmp_path / "image" / "venv" / "lib" / "python3.99")
    os.makedirs(tmp_path / "prefix" / "bin")
    program = tmp_path / "prefix" / "bin" / "python3.99"
    program.write_text("#!/bin/sh\necho this interpreter is broken >&2\nexit 3\n")
    program.chmod(0o755)
    image = Image(
        name="broken", digest="1" * 32, path=str(tmp_path / "image"), interpreter_prefix=str(tmp_path / "prefix")
    )
    spec = SandboxSpec(id=new_id("sbx"), image=image)

    async def story() -> None:
        engine = BareEngine(str(tmp_path), allow=True)
        await engine.open()
        with pytest.raises(StartFailed, match="this interpreter is broken"):
            await engine.create(spec)
        assert [found async for found in engine.handles()] == []

    anyio.run(story)
    assert procfs.find(f"WARREN_SANDBOX={spec.id}".encode()) == []


def test_processes_are_found_by_their_mark_and_ancestry_and_all_are_killed() -> None:
    mark = new_id("mrk")
    code = "import subprocess; subprocess.Popen(['env', '-i', 'sleep', '600']); print('up', flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", code],
        env={"MARK": mark, "PATH": "/usr/bin:/bin"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        found = procfs.find(f"MARK={mark}".encode())
        assert process.pid in {p.pid for p in found}
        assert len(found) == 2

        assert procfs.kill_all(f"MARK={mark}".encode())
        assert process.wait(60) == -9
    assert procfs.find(f"MARK={mark}".encode()) == []


def test_a_process_that_ended_is_not_there() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        pid = process.pid

    assert procfs.read(pid) is None
    assert procfs.read(os.getpid()) is not None


def test_what_an_interpreter_reads_as_it_starts_is_never_half_written(tmp_path: Path) -> None:
    """A reader that has it open sees the former text, and an unchanged text is not written."""
    (tmp_path / "image" / "venv" / "lib" / "python3.11").mkdir(parents=True)

    def prepare(prefix: str) -> str:
        image = Image(name="own", digest="0" * 64, path=str(tmp_path / "image"), interpreter_prefix=prefix)
        return find_interpreter(str(tmp_path), SandboxSpec(id=new_id("sbx"), image=image))

    config = os.path.join(os.path.dirname(os.path.dirname(prepare("/one"))), "pyvenv.cfg")
    os.utime(config, ns=(1, 1))
    prepare("/one")
    is_untouched = os.stat(config).st_mtime_ns == 1
    with open(config) as opened:
        prepare("/another")
        before = opened.read()
    with open(config) as file:
        after = file.read()

    assert is_untouched
    assert (before.splitlines()[0], after.splitlines()[0]) == ("home = /one/bin", "home = /another/bin")
