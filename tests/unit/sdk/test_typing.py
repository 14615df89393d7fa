"""What a user's type checker sees: the types of the client, without anything installed beside."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.rest("mypy starts from nothing: half a minute of processor time")

GOOD = """
from typing import assert_type

import warren
from warren import AsyncClient, Client

with Client("http://127.0.0.1:8000") as client, client.sandbox(memory_mb=256) as sandbox:
    assert_type(sandbox, warren.Sandbox)
    result = sandbox.run("1", timeout_seconds=3)
    assert_type(result.check(), warren.Result)
    assert_type(result.value, str | None)
    assert_type(client.run("1").files, tuple[warren.OutputFile, ...])
    for event in sandbox.stream("1"):
        assert_type(event, warren.Started | warren.Output | warren.Display | warren.Result)
    with sandbox.terminal() as terminal:
        assert_type(terminal.receive(), bytes)
    assert_type([each.id for each in client.sandboxes.all()], list[str])
    assert_type(client.audit().items, tuple[warren.AuditRow, ...])


async def main() -> None:
    async with AsyncClient() as client, client.sandbox() as sandbox:
        assert_type(await sandbox.run("1"), warren.Result)
        async for event in sandbox.stream("1"):
            if isinstance(event, warren.Output):
                assert_type(event.text, str)
        async with sandbox.files.open("x") as pieces:
            async for piece in pieces:
                assert_type(piece, bytes)
"""
BAD = """
import warren

with warren.Client() as client:
    client.run("1", timeout="3")
    client.sandboxes.create(memory_mb="much")
    client.nothing()
"""


@pytest.mark.timeout(600)  # a type checker that starts from nothing takes its time
def test_a_users_type_checker_knows_every_type_and_finds_mistakes(tmp_path: Path) -> None:
    (tmp_path / "good.py").write_text(GOOD)
    (tmp_path / "bad.py").write_text(BAD)

    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--no-incremental", "--config-file=", "good.py", "bad.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )

    places = [line.split(": ")[0] for line in done.stdout.splitlines() if ": error: " in line]
    assert places == ["bad.py:5", "bad.py:6", "bad.py:7"], done.stdout
