"""What the shell is offered: commands, options, values and ids, and nothing where it would be wrong."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import anyio
import pytest

from warren.cli.commands.completion import _SCRIPTS
from warren.cli.completing import find_candidates
from warren.domain.lifecycle import Status
from warren.domain.records import Owner, Sandbox
from warren.domain.values import Limits
from warren.stores.sqlite import SqliteStore

if TYPE_CHECKING:
    from pathlib import Path

_IDS = ("sbx_" + "3f" * 12, "sbx_" + "40" * 12)


def _words(*words: str) -> list[str]:
    return [word for word, _ in find_candidates(words)]


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
        (("_comp",), []),
        (("run", ""), []),
        (("run", "--timeout", ""), []),
        (("sandbox", "exec", "x", "--", ""), []),
        (("nonsense", ""), []),
    ],
)
def test_a_word_is_completed_by_what_may_stand_there(typed: tuple[str, ...], wanted: list[str]) -> None:
    assert _words(*typed) == wanted


def test_ids_of_sandboxes_are_offered_though_no_service_runs(tmp_path: Path) -> None:
    anyio.run(_store_sandboxes, str(tmp_path))
    here = ("--data-dir", str(tmp_path))

    assert sorted(_words("sandbox", "exec", *here, "")) == sorted(_IDS)
    assert _words("sandbox", "exec", *here, "3") == [_IDS[0].removeprefix("sbx_")]
    assert _words("sandbox", "rm", *here, _IDS[0], "sbx_4") == [_IDS[1]]
    assert _words("sandbox", "cp", *here, "sbx_3") == [f"{_IDS[0]}:"]
    assert _words("shell", *here, "--sandbox", "sbx_3") == [_IDS[0]]


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


def test_a_service_that_is_not_there_is_silence(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", "from warren.cli.main import main; main()", "_complete", "--", "sandbox", "exec", ""],
        env={"PATH": os.defpath, "WARREN_DATA_DIR": str(tmp_path), "WARREN_URL": "http://127.0.0.1:1"},
        capture_output=True,
        check=False,
        timeout=60,
    )

    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


@pytest.mark.parametrize("shell", _SCRIPTS)
def test_the_script_can_be_read_by_its_shell(shell: str) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    subprocess.run([shell, "-n"], input=_SCRIPTS[shell], text=True, check=True)


def test_bash_completes_with_it(tmp_path: Path) -> None:
    program = tmp_path / "warren"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -c "from warren.cli.main import main; main()" "$@"\n')
    program.chmod(0o755)
    typed = "COMP_WORDS=(warren sandbox st); COMP_CWORD=2; _warren; printf '%s\\n' \"${COMPREPLY[@]}\""
    done = subprocess.run(
        ["bash", "-c", f"{_SCRIPTS['bash']}\n{typed}"],
        env={"PATH": f"{tmp_path}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=True,
    )

    assert done.stdout.split() == ["stop", "start"]
