"""What the shell is offered: commands, options, values and ids, and nothing where it would be wrong."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import anyio
import pytest

from warren.cli.app import run_app
from warren.cli.commands.completion import SHELLS
from warren.domain.lifecycle import Status
from warren.domain.records import Owner, Sandbox
from warren.domain.values import Limits
from warren.stores.sqlite import SqliteStore

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_IDS = ("sbx_" + "3f" * 12, "sbx_" + "40" * 12)


@pytest.fixture
def offer(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., list[str]]:
    """Asks as bash does: for the last word, which may be half typed."""

    def ask(*words: str) -> list[str]:
        monkeypatch.setenv("_WARREN_COMPLETE", "complete_bash")
        monkeypatch.setenv("COMP_WORDS", " ".join(("warren", *words)))
        monkeypatch.setenv("COMP_CWORD", str(len(words)))
        with pytest.raises(SystemExit):
            run_app([])
        return capsys.readouterr().out.split()

    return ask


@pytest.mark.parametrize(
    ("typed", "wanted"),
    [
        (("sand",), ["sandbox"]),
        (("sandbox", "e"), ["exec"]),
        (("ps", "--every"), ["--everybody"]),
        (("ps", "--status", "st"), ["stopped", "starting", "stopping"]),
        (("keys", "create", "--scope", "a"), ["admin"]),
        (("run", "--image", "da"), ["data"]),
        (("image", "build", "py"), ["python"]),
        (("completion", ""), ["bash", "zsh", "fish"]),
        (("serve", "--deta"), []),
        (("run", ""), []),
        (("run", "--timeout", ""), []),
        (("sandbox", "exec", "x", "--", ""), []),
    ],
)
def test_a_word_is_completed_by_what_may_stand_there(
    offer: Callable[..., list[str]], typed: tuple[str, ...], wanted: list[str]
) -> None:
    assert offer(*typed) == wanted


def test_ids_of_sandboxes_are_offered_though_no_service_runs(
    offer: Callable[..., list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WARREN_DATA_DIR", str(tmp_path))
    anyio.run(_store_sandboxes, str(tmp_path))

    assert sorted(offer("sandbox", "exec", "")) == sorted(_IDS)
    assert offer("sandbox", "exec", "3") == [_IDS[0].removeprefix("sbx_")]
    assert offer("sandbox", "rm", _IDS[0], "sbx_4") == [_IDS[1]]
    assert offer("sandbox", "cp", "sbx_3") == [f"{_IDS[0]}:"]
    assert offer("shell", "--sandbox", "sbx_3") == [_IDS[0]]


async def _store_sandboxes(folder: str) -> None:
    store = SqliteStore(folder)
    await store.open()
    for sandbox_id in _IDS:
        sandbox = Sandbox(
            id=sandbox_id,
            owner=Owner("default", "local"),
            status=Status.RUNNING,
            engine="bare",
            image="python",
            image_digest="0",
            limits=Limits(),
            created_at=1,
            active_at=1,
            changed_at=1,
        )
        await store.add(sandbox)
    await store.close()


def test_a_service_that_is_not_there_is_silence(
    offer: Callable[..., list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WARREN_URL", "http://127.0.0.1:1")

    assert offer("sandbox", "exec", "") == []


@pytest.mark.parametrize("shell", SHELLS)
def test_the_script_can_be_read_by_its_shell(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    run_app(["completion", shell])
    script = capsys.readouterr().out

    assert "_WARREN_COMPLETE" in script
    if shutil.which(shell) is not None:
        subprocess.run([shell, "-n"], input=script, text=True, check=True)


def test_bash_completes_with_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_app(["completion", "bash"])
    program = tmp_path / "warren"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m warren "$@"\n')
    program.chmod(0o755)
    typed = (
        "COMP_WORDS=(warren sandbox st); COMP_CWORD=2; _warren_completion warren; printf '%s\\n' \"${COMPREPLY[@]}\""
    )
    done = subprocess.run(
        ["bash", "-c", f"{capsys.readouterr().out}\n{typed}"],
        env={"PATH": f"{tmp_path}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=True,
    )

    assert done.stdout.split() == ["stop", "start"]
