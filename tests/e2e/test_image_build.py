"""Building images for real, from wheels made here: atomic, once, readable by anybody, and running no package's code."""

from __future__ import annotations

import glob
import os
import re
import signal
import stat
import subprocess
import sys
import zipfile
from typing import TYPE_CHECKING

import pytest

from warren.core.images.catalog import BuildStep, Catalog, ImageStatus
from warren.domain.errors import BuildFailed, Conflict

if TYPE_CHECKING:
    from pathlib import Path

BUILDER = """
import sys
from warren.core.images.catalog import Catalog
image = Catalog(sys.argv[1], [sys.argv[2]]).build("tiny", lambda step: print(step.phase, flush=True))
print("built", image.digest, flush=True)
"""


def write_wheel(folder: Path, name: str, source: str, version: str = "1.0") -> None:
    """Make a wheel with one module and a command of the same name."""
    folder.mkdir(exist_ok=True)
    info = f"{name}-{version}.dist-info"
    files = {
        f"{name}/__init__.py": source,
        f"{name}/part.py": "def where():\n    return where.__code__.co_filename\n",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": f"[console_scripts]\n{name} = {name}:main\n",
    }
    files[f"{info}/RECORD"] = "".join(f"{path},,\n" for path in [*files, f"{info}/RECORD"])
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as wheel:
        for path, content in files.items():
            wheel.writestr(path, content)


class Workshop:
    """A folder with wheels, a spec named `tiny`, and a data folder."""

    def __init__(self, folder: Path) -> None:
        self.data, self.specs, self.wheels = folder / "data", folder / "specs", folder / "wheels"
        self.specs.mkdir()
        self.marker = folder / "ran"
        write_wheel(self.wheels, "burrow", f"open({str(self.marker)!r}, 'w').close()\ndef main(): print('hello')\n")
        self.write_spec("packages = ['burrow==1.0']\npreload = ['burrow.part', 'json.decoder', 'sys']")

    def write_spec(self, rest: str) -> None:
        (self.specs / "tiny.toml").write_text(f"name = 'tiny'\n{rest}\n")

    @property
    def catalog(self) -> Catalog:
        return Catalog(str(self.data), [str(self.specs)])

    @property
    def status(self) -> ImageStatus:
        return self.catalog.status("tiny")

    def start_builder(self) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", BUILDER, str(self.data), str(self.specs)]
        return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    def left(self) -> list[str]:
        """What lies in the images folder beside the lock."""
        return sorted(name for name in os.listdir(self.data / "images") if name != ".lock")


@pytest.fixture
def workshop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workshop:
    monkeypatch.setenv("UV_FIND_LINKS", str(tmp_path / "wheels"))
    monkeypatch.setenv("UV_NO_INDEX", "1")
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "cache"))
    return Workshop(tmp_path)


def test_a_built_image_is_complete_and_known(workshop: Workshop) -> None:
    steps: list[BuildStep] = []

    image = workshop.catalog.build("tiny", steps.append)

    assert image == workshop.catalog.get("tiny")
    assert image.preload == ("burrow.part", "json.decoder", "sys")
    assert workshop.left() == [image.digest]
    phases = list(dict.fromkeys(step.phase for step in steps))
    assert phases == ["resolving", "downloading", "installing", "compiling", "finishing", "done"]
    status = workshop.status
    assert status.built
    assert status.size_bytes > 1000
    assert status.built_at is not None


def test_no_code_of_a_package_runs_while_it_is_built(workshop: Workshop) -> None:
    workshop.catalog.build("tiny")

    assert not workshop.marker.exists()


def test_nothing_inside_names_a_path_of_the_host(workshop: Workshop) -> None:
    image = workshop.catalog.build("tiny")
    venv = f"{image.path}/venv"

    for parent, _, files in os.walk(venv):
        for name in files:
            path = os.path.join(parent, name)
            found = os.readlink(path).encode() if os.path.islink(path) else read(path)
            assert str(workshop.data).encode() not in found, path
    assert os.readlink(f"{venv}/bin/python").startswith(image.interpreter_inside + "/bin/python3.")
    assert read(f"{venv}/bin/burrow").startswith(b"#!/opt/image/bin/python\n")
    assert f"home = {image.interpreter_inside}/bin\n".encode() in read(f"{venv}/pyvenv.cfg")
    (compiled,) = glob.glob(f"{venv}/lib/python3.*/site-packages/burrow/__pycache__/part.*.pyc")
    assert b"/opt/image/lib/" in read(compiled)


def test_a_script_with_a_long_path_is_moved_inside_too(workshop: Workshop, tmp_path: Path) -> None:
    workshop.data = tmp_path / ("long-" * 30) / "with space"

    image = workshop.catalog.build("tiny")

    assert read(f"{image.path}/venv/bin/burrow").startswith(b"#!/opt/image/bin/python\n")


def test_every_user_can_read_it_and_only_the_owner_can_write_it(workshop: Workshop) -> None:
    umask = os.umask(0o077)
    try:
        image = workshop.catalog.build("tiny")
    finally:
        os.umask(umask)

    for parent, folders, files in os.walk(image.path):
        assert stat.S_IMODE(os.stat(parent).st_mode) == 0o755, parent
        for name in [*folders, *files]:
            mode = os.lstat(os.path.join(parent, name)).st_mode
            if not stat.S_ISLNK(mode):
                assert stat.S_IMODE(mode) in {0o644, 0o755}, (parent, name)


def test_an_unchanged_spec_is_not_built_again(workshop: Workshop) -> None:
    first = workshop.catalog.build("tiny")
    inode = os.stat(first.path).st_ino
    steps: list[BuildStep] = []

    assert workshop.catalog.build("tiny", steps.append) == first

    assert steps == []
    assert os.stat(first.path).st_ino == inode


def test_force_builds_it_again_in_the_same_place(workshop: Workshop) -> None:
    first = workshop.catalog.build("tiny")
    inode = os.stat(first.path).st_ino

    assert workshop.catalog.build("tiny", force=True) == first

    assert os.stat(first.path).st_ino != inode
    assert workshop.left() == [first.digest]


def test_a_changed_spec_is_another_image_and_the_old_one_is_stale(workshop: Workshop) -> None:
    old = workshop.catalog.build("tiny")
    workshop.write_spec("packages = ['burrow==1.0']")

    assert not workshop.status.built
    assert workshop.status.stale == (old.digest,)
    new = workshop.catalog.build("tiny")
    with pytest.raises(Conflict, match="in use"):
        workshop.catalog.remove("tiny", in_use={workshop.catalog.status("tiny").digest})
    assert workshop.catalog.status("tiny").built
    assert workshop.catalog.remove("tiny", stale_only=True) > 0
    assert workshop.left() == [new.digest]
    assert workshop.catalog.remove("tiny") > 0
    assert workshop.left() == []
    assert workshop.catalog.remove("tiny") == 0


@pytest.mark.parametrize("phase", ["resolving", "installing", "compiling", "finishing"])
def test_a_builder_killed_half_way_leaves_nothing_that_looks_built(workshop: Workshop, phase: str) -> None:
    with workshop.start_builder() as builder:
        assert builder.stdout is not None
        for line in builder.stdout:
            if line.strip() == phase:
                builder.send_signal(signal.SIGKILL)
                break

    assert builder.returncode == -signal.SIGKILL
    assert not workshop.status.built
    image = workshop.catalog.build("tiny")
    assert workshop.left() == [image.digest]


def test_two_builders_at_once_build_once(workshop: Workshop) -> None:
    with workshop.start_builder() as one, workshop.start_builder() as other:
        outputs = [builder.communicate(timeout=100)[0].split() for builder in (one, other)]

    assert [output[-2] for output in outputs] == ["built", "built"]
    assert sorted(output.count("compiling") for output in outputs) == [0, 1]
    assert len(workshop.left()) == 1


def test_an_interrupted_build_cleans_up_after_itself(workshop: Workshop) -> None:
    def interrupt(step: BuildStep) -> None:
        if step.phase == "compiling":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        workshop.catalog.build("tiny", interrupt)

    assert workshop.left() == []


@pytest.mark.parametrize(
    ("rest", "words"),
    [
        ("packages = ['burrow==9.9']", ["burrow==9.9"]),
        ("packages = ['nosuchthing']", ["nosuchthing"]),
        ("packages = ['burrow']\npreload = ['burrow.cellar']", ["preloads burrow.cellar", "tiny.toml"]),
        ("packages = ['burrow']\npreload = ['json.decoder.x']", ["preloads json.decoder.x"]),
    ],
)
def test_what_cannot_be_built_is_one_sentence_and_changes_nothing(
    workshop: Workshop, rest: str, words: list[str]
) -> None:
    workshop.write_spec(rest)

    with pytest.raises(BuildFailed) as caught:
        workshop.catalog.build("tiny")

    message = str(caught.value)
    assert all(word in message for word in ["image tiny", *words]), message
    assert "\n" not in message
    assert workshop.left() == []


def test_a_package_that_is_not_the_locked_one_is_refused(workshop: Workshop) -> None:
    (workshop.specs / "tiny.lock").write_text(f"burrow==1.0 --hash=sha256:{'0' * 64}\n")

    with pytest.raises(BuildFailed, match=r"[Hh]ash mismatch") as caught:
        workshop.catalog.build("tiny")

    assert len(str(caught.value)) < 800
    assert workshop.left() == []


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small disk needs root")
def test_a_full_disk_is_one_sentence_and_changes_nothing(workshop: Workshop) -> None:
    workshop.data.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=32k", "none", workshop.data], check=True)
    try:
        with pytest.raises(
            BuildFailed, match=r"image tiny could not be built: .*(disk is full|No space left)"
        ) as caught:
            workshop.catalog.build("tiny")

        assert "\n" not in str(caught.value)
        assert workshop.left() == []
    finally:
        subprocess.run(["umount", workshop.data], check=True)


def test_the_image_says_exactly_what_is_in_it(workshop: Workshop) -> None:
    image = workshop.catalog.build("tiny")

    assert re.search(rb"burrow==1\.0 .*--hash=sha256:[0-9a-f]{64}", read(f"{image.path}/requirements.lock"), re.DOTALL)


def test_a_record_that_is_broken_counts_as_not_built(workshop: Workshop) -> None:
    image = workshop.catalog.build("tiny")
    with open(f"{image.path}/image.json", "w", encoding="utf-8") as file:
        file.write("{")

    assert not workshop.status.built
    assert workshop.catalog.build("tiny") == image


def read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()
