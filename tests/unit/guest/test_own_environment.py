"""The sandbox's own environment: made once, on top of an image that stays as it is."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from typing import TYPE_CHECKING

import pytest

from warren.guest import own_environment
from warren.guest.packages import search_path

if TYPE_CHECKING:
    from pathlib import Path

LIBRARY = f"lib/python{sys.version_info.major}.{sys.version_info.minor}/site-packages"


@pytest.fixture
def image(tmp_path: Path) -> Path:
    """Something that looks like an image: an interpreter, and two packages."""
    folder = tmp_path / "image"
    (folder / "bin").mkdir(parents=True)
    os.symlink(sys.executable, folder / "bin" / "python")
    (folder / "pyvenv.cfg").write_text(f"home = {os.path.dirname(os.path.realpath(sys.executable))}\n")
    for name in ("one-1.0", "two-2.0"):
        info = folder / LIBRARY / f"{name}.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Name: {name}\n")
        (info / "RECORD").write_text("one/__init__.py,,\n")
        (info / "licenses").mkdir()
    return folder


def test_it_is_made_once_and_shows_what_the_image_has(tmp_path: Path, image: Path) -> None:
    own = tmp_path / "own"
    python = own_environment.make(str(image), str(own))
    before = {entry.name: entry.inode() for entry in os.scandir(own / LIBRARY)}
    again = own_environment.make(str(image), str(own))

    assert python == again == str(own / "bin" / "python")
    assert {entry.name: entry.inode() for entry in os.scandir(own / LIBRARY)} == before
    assert {"one-1.0.dist-info", "two-2.0.dist-info", "warren-image.pth"} == set(before)
    shown = own / LIBRARY / "one-1.0.dist-info"
    # An installer that takes it away takes these, and nothing of the image.
    assert (shown / "RECORD").read_text().split(",,\n")[:-1] == [
        f"one-1.0.dist-info/{name}" for name in ("METADATA", "INSTALLER", "RECORD")
    ]
    assert os.path.islink(shown / "METADATA")
    assert str(image / LIBRARY) in (own / LIBRARY / "warren-image.pth").read_text()


def _incomplete(own: Path) -> list[str]:
    return [info.name for info in (own / LIBRARY).glob("*.dist-info") if not (info / "RECORD").exists()]


def _make_elsewhere(image: Path, own: Path, act: str) -> subprocess.Popen[bytes]:
    """Make it in another process, which does something in the middle: after links, before what says they are all."""
    program = (
        "import os, sys\n"
        "from warren.guest import own_environment\n"
        "def look(event, arguments):\n"
        f"    if event == 'open' and '/INSTALLER' in str(arguments[0]): {act}\n"
        "sys.addaudithook(look)\n"
        "own_environment.make(*sys.argv[1:])\n"
    )
    command = [sys.executable, "-c", program, str(image), str(own)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def test_one_that_is_killed_while_it_makes_it_leaves_nothing_half_made(tmp_path: Path, image: Path) -> None:
    own = tmp_path / "own"
    with _make_elsewhere(image, own, "os.kill(os.getpid(), 9)") as killed:
        killed.communicate()
    own_environment.make(str(image), str(own))

    assert killed.returncode == -9
    assert _incomplete(own) == []
    assert {"one-1.0.dist-info", "two-2.0.dist-info"} <= set(os.listdir(own / LIBRARY))


def test_of_two_who_make_it_at_once_neither_goes_on_before_it_is_whole(tmp_path: Path, image: Path) -> None:
    own, found = tmp_path / "own", []

    def make() -> None:
        own_environment.make(str(image), str(own))
        found.append(_incomplete(own))

    other = threading.Thread(target=make)
    with _make_elsewhere(image, own, "print(flush=True); sys.stdin.read()") as slow:
        assert slow.stdout is not None
        slow.stdout.readline()
        other.start()
        # A process that does not wait for the first has ended by then, with half of it.
        other.join(0.5)
        slow.communicate()
    other.join()

    assert (slow.returncode, found) == (0, [[]])


def test_another_build_of_the_image_is_noticed_and_what_was_installed_stays(tmp_path: Path, image: Path) -> None:
    own = tmp_path / "own"
    own_environment.make(str(image), str(own))
    mine = own / LIBRARY / "mine-1.0.dist-info"
    mine.mkdir()
    (mine / "METADATA").write_text("Name: mine\n")
    os.rename(image / LIBRARY / "one-1.0.dist-info", image / LIBRARY / "one-1.1.dist-info")
    os.utime(image / LIBRARY, ns=(1, 1))
    own_environment.make(str(image), str(own))

    names = {name for name in os.listdir(own / LIBRARY) if name.endswith(".dist-info")}
    assert names == {"one-1.1.dist-info", "two-2.0.dist-info", "mine-1.0.dist-info"}


def test_an_environment_that_a_program_made_is_preferred_where_it_uses_it(
    tmp_path: Path, image: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    env = {"WARREN_PACKAGES": str(tmp_path / "own" / LIBRARY), "PATH": str(image / "bin")}
    other = tmp_path / ".venv"
    (other / "bin").mkdir(parents=True)
    os.symlink(sys.executable, other / "bin" / "python")
    find = own_environment.find_chosen
    before = find(str(image), {**env, "VIRTUAL_ENV": str(other)}, "python")
    (other / "pyvenv.cfg").touch()
    python = str(other / "bin" / "python")

    assert before is None
    assert find(str(image), {**env, "VIRTUAL_ENV": str(other)}, "python") == python
    assert find(str(image), env, python) == python
    assert find(str(image), {**env, "PATH": str(other / "bin")}, "python") == python
    assert find(str(image), env, "/opt/image/bin/uv") == python
    assert find(str(image), env, str(image / "bin" / "python")) is None
    assert find(str(image), env, "") is None


def test_a_kernel_reports_once_that_a_package_shadows_an_import(tmp_path: Path) -> None:
    folder = tmp_path / "site"
    watch = search_path.Watch({"WARREN_PACKAGES": str(folder)})
    silent = watch.find_news()
    (folder / "pytest").mkdir(parents=True)
    told, again = watch.find_news(), watch.find_news()

    assert (silent, again) == (None, None)
    assert told == ("This kernel has imported another pytest than the one that was installed: restart it to use that.")
    assert search_path.Watch({}).find_news() is None
