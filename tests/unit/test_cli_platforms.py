"""Other systems than Linux: a service that is named can be used, and anything local says in a sentence what to do."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

_ELSEWHERE = """
import asyncio, importlib.abc, os, signal, sys
import anyio, anyio.from_thread, anyio.to_thread, httpx, pydantic, rich.console, typer, typer.completion, websockets
import anyio._backends._asyncio, concurrent.futures.thread, platform, shutil, ssl, subprocess, sysconfig, tempfile

sysconfig.get_config_vars()  # a cache of this system's

# What is imported by now is Python's and other people's: only ours is to believe that this is another system.
sys.platform = sys.argv[1]
if sys.platform == "win32":
    class Absent(importlib.abc.MetaPathFinder):
        def find_spec(self, name, path=None, target=None):
            if name in {"fcntl", "grp", "pwd", "resource", "termios", "tty"}:
                raise ModuleNotFoundError(f"No module named {name!r}", name=name)
    sys.meta_path.insert(0, Absent())
    for name in ("fcntl", "grp", "pwd", "resource", "termios", "tty"):
        sys.modules.pop(name, None)
    for name in ("geteuid", "getpgrp", "getuid", "memfd_create", "pipe2", "sysconf", "tcgetpgrp"):
        delattr(os, name)
    for name in ("SIGHUP", "SIGWINCH"):
        delattr(signal, name)
from warren.cli.main import run
for words in sys.argv[2].split(";"):
    print(words, run(words.split()), file=sys.stderr)
"""
_SYSTEMS = ("darwin", "win32")


def _run(system: str, folder: Path, *commands: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", _ELSEWHERE, system, ";".join(commands)],
        env={"PATH": os.defpath, "HOME": str(folder)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        cwd=folder,
        timeout=100,
        check=False,
    )
    return done.stderr.splitlines()


@pytest.mark.parametrize("system", _SYSTEMS)
def test_what_is_local_says_to_name_a_service(system: str, tmp_path: Path) -> None:
    commands = ("run -c 1", "ps", "status", "serve", "doctor", "image list", "keys list", "sandbox create", "stop")

    said = _run(system, tmp_path, *commands)

    assert said[1::2] == [f"{command} 2" for command in commands]
    assert set(said[::2]) == {
        "warren: sandboxes run on Linux: name a service there with --url or WARREN_URL, and its key with WARREN_API_KEY"
    }


@pytest.mark.parametrize("system", _SYSTEMS)
def test_a_service_elsewhere_is_asked(system: str, tmp_path: Path) -> None:
    url = "--url http://127.0.0.1:1"

    said = _run(system, tmp_path, f"run {url} -c 1", f"ps {url}", f"status {url}", f"sandbox rm {url} 3fa9")

    assert [line.rpartition(" ")[2] for line in said[1::2]] == ["3"] * 4
    assert all("http://127.0.0.1:1" in line for line in said[::2])


@pytest.mark.parametrize("system", _SYSTEMS)
def test_every_command_has_help_there(system: str, tmp_path: Path) -> None:
    commands = ("--help", "version", "run --help", "serve --help", "doctor --help", "shell --help", "mcp --help")

    assert _run(system, tmp_path, *commands) == [f"{command} 0" for command in commands]
