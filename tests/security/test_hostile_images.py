"""A package of an image is hostile: it runs when the zygote preloads it, before there is any sandbox."""

from __future__ import annotations

import contextlib
import dataclasses
import glob
import hashlib
import json
import os
import shutil
import tempfile
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from security.arena import PROMPTLY_S, ROOTLESS, answers, program, stands
from warren.domain.errors import Error
from warren.engines.local.keeper import guest_snapshot
from warren.engines.local.linux import capabilities
from warren.engines.local.linux.host import describe
from warren.testing.subject import printed, refused

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from security.canaries import Host
    from warren.domain.values import Handle, Image
    from warren.testing.subject import Subject

    MakeImage = Callable[[str], Image]

pytestmark = pytest.mark.anyio

_NEEDED = 1 << capabilities.SETGID | 1 << capabilities.SETUID | 1 << capabilities.SETFCAP
if describe().userns_restricted:
    _NEEDED |= 1 << capabilities.SYS_ADMIN


@pytest.fixture(scope="module")
def folder(python_image: Image) -> Iterator[str]:
    """An image without packages but for one."""
    path = tempfile.mkdtemp(prefix="warren-hostile-")
    os.chmod(path, 0o755)
    venv = os.path.join(path, "venv")
    packages = shutil.ignore_patterns("site-packages")
    shutil.copytree(os.path.join(python_image.path, "venv"), venv, symlinks=True, ignore=packages)
    (library,) = glob.glob(os.path.join(venv, "lib/python3*"))
    os.mkdir(os.path.join(library, "site-packages"))
    with open(os.path.join(library, "site-packages", "hostile.py"), "w", encoding="utf-8") as file:
        file.write(program("hostile_image"))
    # The interpreter's start imports it, before any line of ours.
    with open(os.path.join(library, "site-packages", "hostile.pth"), "w", encoding="utf-8") as file:
        file.write("import hostile\n")
    yield path
    shutil.rmtree(path)


@pytest.fixture
def make_image(folder: str, python_image: Image, host: Host, data_dir: str) -> MakeImage:
    """Make an image that preloads the hostile module, in one of its modes."""

    def make(mode: str) -> Image:
        digest = hashlib.sha256(f"{folder} {mode}".encode()).hexdigest()[:32]
        env = {"HOSTILE": json.dumps({"mode": mode, **_targets(host, data_dir)})}
        name = f"{mode} {os.path.basename(folder)}"
        return dataclasses.replace(python_image, name=name, digest=digest, path=folder, preload=("hostile",), env=env)

    return make


def _targets(host: Host, data_dir: str) -> dict[str, Any]:
    zygotes = []
    for name in glob.glob(os.path.join(data_dir, "local", "zygotes", "*", "*.json")):
        with open(name, encoding="utf-8") as file:
            zygotes.append(json.load(file)["pid"])
    sockets = [[one.address, one.port] if one.port else one.address for one in host.listeners if one.family != "udp"]
    return {
        "files": [host.file, host.shm_file, "/etc/shadow", os.path.join(data_dir, "local")],
        "pids": [host.process.pid, *zygotes],
        "sockets": sockets,
        "version": guest_snapshot.compute_digest(),
    }


def _zygotes_of(data_dir: str, mode: str) -> list[int]:
    """List the processes that were started for an image of ours."""
    found = []
    for name in os.listdir("/proc"):
        with contextlib.suppress(OSError):
            if name.isdigit():
                with open(f"/proc/{name}/cmdline", "rb") as file:
                    line = file.read().decode(errors="replace")
                if data_dir in line and json.dumps({"mode": mode})[:-1] in line:
                    found.append(int(name))
    return found


async def test_code_of_an_image_reaches_neither_host_nor_other_images(
    subject: Subject, make_image: MakeImage, sibling: Handle, data_dir: str
) -> None:
    """It may do what it likes to its own sandboxes; it holds no right over anything else."""
    del sibling  # Its image's zygote is one of the targets.
    image = make_image("explore")
    async with subject.linked_sandbox(image=image) as agent:
        found = json.loads(await printed(agent, "import hostile, json; print(json.dumps(hostile.FOUND))"))

    assert ROOTLESS or found["map"][1] != "0", "the zygote is the host's root"
    assert ROOTLESS or _maps(data_dir).count(found["map"]) == 1, "two images have the same host ids"
    assert int(found["capabilities"], 16) & ~_NEEDED == 0
    # Process 1, which is ours, and itself. The mapper of its ids may not have been reaped yet.
    assert set(found["processes"]) <= {1, 2, 3}
    assert set(found) - {"map", "capabilities", "processes"} == set()


def _maps(data_dir: str) -> list[list[str]]:
    """List the id maps of all zygotes."""
    found = []
    for name in glob.glob(os.path.join(data_dir, "local", "zygotes", "*", "zygote.json")):
        with open(name, encoding="utf-8") as state:
            pid = json.load(state)["pid"]
        with contextlib.suppress(OSError), open(f"/proc/{pid}/uid_map", encoding="utf-8") as file:
            found.append(file.read().split())
    return found


@pytest.mark.parametrize("mode", ["betray", "conscript", "unasked"])
async def test_a_zygote_cannot_have_a_process_of_the_host_killed(
    subject: Subject, make_image: MakeImage, host: Host, sibling: Handle, mode: str
) -> None:
    """It names processes of the host as its sandboxes; the keeper, which is root, would kill them one day."""
    spec = subject.make_spec(image=make_image(mode))
    groups = _groups(host.process.pid)
    with anyio.fail_after(60):
        await refused(Error, subject.engine.create(spec))

    assert spec.id not in await subject.listed()
    assert host.process.poll() is None
    assert _groups(host.process.pid) == groups
    await stands(subject, sibling)


def _groups(pid: int) -> str:
    with open(f"/proc/{pid}/cgroup", encoding="utf-8") as file:
        return file.read()


async def test_a_process_outside_the_control_group_of_its_sandbox_is_refused(
    subject: Subject, make_image: MakeImage
) -> None:
    image = make_image("stale")
    first = await refused(Error, subject.engine.create(subject.make_spec(image=image)))
    second = await refused(Error, subject.engine.create(subject.make_spec(image=image)))

    assert "not now" in first
    assert second


async def test_a_process_that_an_image_leaves_behind_ends_with_its_sandboxes(
    subject: Subject, make_image: MakeImage
) -> None:
    async with subject.linked_sandbox(image=make_image("daemon")) as agent:
        await answers(agent)
        assert _named("strayling")

    assert not _named("strayling")


def _named(name: str) -> list[str]:
    found = []
    for path in glob.glob("/proc/[0-9]*/comm"):
        with contextlib.suppress(OSError), open(path, encoding="utf-8") as file:
            found += [path] if file.read().strip() == name else []
    return found


async def test_a_silent_zygote_keeps_no_other_image_waiting(subject: Subject, make_image: MakeImage) -> None:
    """It is ready and never answers: its own create fails in time, and others are served meanwhile."""
    spec = subject.make_spec(image=make_image("silent"))
    with anyio.fail_after(120):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(refused, Error, subject.engine.create(spec))
            async with subject.linked_sandbox() as agent:
                await answers(agent)

    assert spec.id not in await subject.listed()


@pytest.mark.parametrize("mode", ["raise", "exit", "thread", "garbage", "a huge frame", "no frame", "flood"])
async def test_an_image_that_misbehaves_costs_its_own_sandboxes_only(
    subject: Subject, make_image: MakeImage, data_dir: str, mode: str
) -> None:
    spec = subject.make_spec(image=make_image(mode))
    with anyio.fail_after(60):
        message = await refused(Error, subject.engine.create(spec))

    assert len(message) < 3000
    assert spec.id not in await subject.listed()
    with anyio.fail_after(PROMPTLY_S):
        while _zygotes_of(data_dir, mode):  # noqa: ASYNC110  (only the parent gets an event)
            await anyio.sleep(0.01)
    async with subject.linked_sandbox() as agent:
        await answers(agent)
