"""Builds the guest's disk, in three parts that are kept by a digest of what each is made from.

1. The base: Debian's own packages, of the suite that `WARREN_VM_SUITE` names (bookworm unless set).
2. The project's packages and an image.
3. This working tree: a change of code rebuilds only this part.

Scripts run in namespaces of their own: a build that is killed leaves no mount, loop device or process behind.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import hashlib
import os
import platform
import shutil
import subprocess
import time
from typing import TYPE_CHECKING

from house.repository import ROOT, tracked

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

HERE = os.path.dirname(os.path.abspath(__file__))
SCRIPTS = ("base.sh", "inside.sh", "packages.sh", "project.sh")
"""Each part is made of those before it too."""
# Found in these packages of Debian.
TOOLS = {"qemu-system-x86_64": "qemu-system-x86", "debootstrap": "debootstrap", "mkfs.ext4": "e2fsprogs"}
PASSED_ON = ("PIP_", "UV_", "SSL_CERT_")
"""What the index of packages is reached with here; so are the variables that name proxies."""
CHOOSE_PACKAGES = ("requirements/", "images/", "pyproject.toml", "Makefile")
NOT_IN_THE_GUEST = ("tests/vm/", "docs/", "benchmarks/results")
_ISOLATED = ("unshare", "--mount", "--propagation", "private", "--pid", "--fork", "--kill-child", "--mount-proc")


class CannotBuild(Exception):
    """The guest cannot be made on this machine; the sentence says what is missing."""


@dataclasses.dataclass(frozen=True)
class Disk:
    """A disk, and what qemu starts it with."""

    image: str
    kernel: str
    initrd: str


def cache_folder() -> str:
    """Return where built parts are kept: `WARREN_VM_CACHE`, or a folder of the repository that git ignores."""
    return os.path.abspath(os.environ.get("WARREN_VM_CACHE") or os.path.join(ROOT, ".cache", "vm"))


def say(text: str) -> None:
    """Report progress."""
    print(f"[{time.strftime('%H:%M:%S')}] {text}", flush=True)


@contextlib.contextmanager
def stage(name: str) -> Iterator[None]:
    """Tell that something begins, and how long it took."""
    say(f"{name} …")
    began_at = time.monotonic()
    yield
    say(f"{name}: {time.monotonic() - began_at:.1f} s")


def build() -> Disk:
    """Return the disk for this working tree, built as far as it is not there yet."""
    _bring_tools()
    cache = cache_folder()
    os.makedirs(cache, exist_ok=True)
    with open(os.path.join(cache, "lock"), "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        suite = os.environ.get("WARREN_VM_SUITE", "bookworm")
        base = _kept(f"base-{suite}", SCRIPTS[:1], (), lambda folder: _run("base.sh", [folder, _find_mirror(), suite]))
        names = [name for name in tracked() if not name.startswith(NOT_IN_THE_GUEST)]
        chosen = [name for name in names if name.startswith(CHOOSE_PACKAGES)]
        packages = _kept(f"packages-{suite}", SCRIPTS[:3], chosen, _filling("packages.sh", base, names))
        project = _kept(f"project-{suite}", SCRIPTS, names, _filling("project.sh", packages, names))
    return Disk(
        image=os.path.join(project, "disk.img"),
        kernel=os.path.join(base, "vmlinuz"),
        initrd=os.path.join(base, "initrd.img"),
    )


def _kept(part: str, scripts: Sequence[str], names: Sequence[str], make: Callable[[str], None]) -> str:
    """Return the folder of a part, made now unless it is there; others of that part go when it has been made."""
    cache = cache_folder()
    paths = [*(os.path.join(HERE, script) for script in scripts), *(os.path.join(ROOT, name) for name in names)]
    folder = os.path.join(cache, f"{part}-{_digest(paths)[:16]}")
    if os.path.isdir(folder):
        say(f"{part} system: as kept in {folder}")
        return folder
    partial = f"{folder}.partial"
    shutil.rmtree(partial, ignore_errors=True)
    os.mkdir(partial)
    try:
        with stage(f"building the {part} system"):
            make(partial)
        os.rename(partial, folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    for name in os.listdir(cache):
        if name.startswith(f"{part}-") and name != os.path.basename(folder):
            shutil.rmtree(os.path.join(cache, name))
    return folder


def _filling(script: str, source: str, names: Sequence[str]) -> Callable[[str], None]:
    """Return what makes a part of another and of the files of the project."""

    def fill(folder: str) -> None:
        packed = subprocess.run(
            ["tar", "--create", "--directory", ROOT, "--null", "--files-from", "-"],
            input=b"\0".join(os.fsencode(name) for name in names),
            check=True,
            capture_output=True,
        ).stdout
        _run(script, [folder, source, os.path.join(cache_folder(), "downloads")], packed)

    return fill


def _digest(paths: Sequence[str]) -> str:
    digest = hashlib.sha256()
    for path in paths:
        digest.update(f"{os.path.relpath(path, ROOT)}\0{os.stat(path).st_mode:o}\0".encode())
        with open(path, "rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()


def _run(script: str, arguments: list[str], given: bytes = b"") -> None:
    passed_on = {
        name: value
        for name, value in os.environ.items()
        if name.startswith(PASSED_ON) or name.lower().endswith("_proxy")
    }
    path = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
    try:
        command = [*_ISOLATED, os.path.join(HERE, script), *arguments]
        subprocess.run(command, input=given, check=True, env={**passed_on, **_apt_proxy(), "PATH": path})
    except subprocess.CalledProcessError as exc:
        raise CannotBuild(f"{script} ended with {exc.returncode}; what it said is above") from exc


def _bring_tools() -> None:
    """Install what is missing, or say in a sentence why that cannot be."""
    if platform.machine() != "x86_64":
        raise CannotBuild(f"the guest is built for x86_64, by its own programs; this machine is {platform.machine()}")
    if os.geteuid() != 0:
        raise CannotBuild("the guest's disk is built with loop devices and chroot: run this as root")
    path = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
    missing = [package for tool, package in TOOLS.items() if shutil.which(tool, path=path) is None]
    if not missing:
        return
    if shutil.which("apt-get") is None:
        raise CannotBuild(f"not installed: {', '.join(missing)}, and there is no apt-get to bring them")
    with stage(f"installing {', '.join(missing)}"):
        install = ["apt-get", "-o", "DPkg::Lock::Timeout=300", "install", "-qq", "--yes", "--no-install-recommends"]
        env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        if subprocess.run([*install, *missing], check=False, env=env, stdout=subprocess.DEVNULL).returncode != 0:
            subprocess.run(["apt-get", "update", "-qq"], check=False)
            done = subprocess.run([*install, *missing], check=False, env=env, stdout=subprocess.DEVNULL)
            if done.returncode != 0:
                raise CannotBuild(f"apt-get could not install {', '.join(missing)}; what it said is above")


def _find_mirror() -> str:
    """Return the mirror of Debian that apt uses here; `WARREN_VM_MIRROR` where it uses none."""
    named = os.environ.get("WARREN_VM_MIRROR")
    if named:
        return named
    asked = ["apt-get", "indextargets", "--format", "$(REPO_URI)", "Origin: Debian", "Label: Debian", "Component: main"]
    with contextlib.suppress(OSError):
        said = subprocess.run(asked, check=False, capture_output=True, text=True).stdout.split()
        if said:
            return said[0]
    raise CannotBuild("apt of this machine knows no mirror of Debian: name one in WARREN_VM_MIRROR")


def _apt_proxy() -> dict[str, str]:
    """Return the proxy that apt is told to use, as debootstrap wants to hear of it."""
    with contextlib.suppress(OSError):
        said = subprocess.run(
            ["apt-config", "dump", "--format", "%v%n", "Acquire::http::Proxy"],
            check=False,
            capture_output=True,
            text=True,
        )
        if said.stdout.strip():
            return {"http_proxy": said.stdout.split()[0]}
    return {}
