"""The guest under qemu: started with the best accelerator that really runs it, driven over its serial ports, ended."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import selectors
import shutil
import socket
import subprocess
import tempfile
import time
from typing import TYPE_CHECKING

from vm.build import cache_folder, say, stage
from vm.console import Console

if TYPE_CHECKING:
    from collections.abc import Iterator

    from vm.build import Disk

CGROUP_V1 = "systemd.unified_cgroup_hierarchy=0 systemd.legacy_systemd_cgroup_controller=1"
_KVM_S = 6.0
"""A kernel that runs at all says its first word within a second."""
# WHY the second: a KVM that itself runs in a guest may refuse the register behind this feature, which ends qemu.
_PROCESSORS_OF_KVM = ("host", "host,-arch-capabilities")


@dataclasses.dataclass(frozen=True)
class Accelerator:
    """How qemu runs the guest's instructions."""

    name: str
    arguments: tuple[str, ...]
    patience: float
    """What deadlines are multiplied by."""


TCG = Accelerator("tcg", ("-accel", "tcg,thread=multi,tb-size=512", "-cpu", "max,la57=off"), 15)


class Machine:
    """A running guest with two terminals: `root` and `user`, each with a login session."""

    def __init__(self, disk: Disk, accelerator: Accelerator, folder: str, append: str) -> None:
        self.accelerator = accelerator
        self._folder = folder
        self._links = contextlib.ExitStack()
        self._process = self._start(disk, append)
        self.root = self._connect("root")
        self.user = self._connect("u1")

    def settle(self) -> None:
        """Wait until both are logged in."""
        with stage(f"booting with {self.accelerator.name}"):
            self.root.settle(60)
            self.user.settle(30)

    def reboot(self) -> float:
        """Restart the guest as an operator does; returns the seconds until it had shut down."""
        began_at = time.monotonic()
        self.root.type("systemctl reboot\n")
        # The kernel's own last words, whatever systemd says before.
        self.root.expect(r"reboot: Restarting system", 60)
        took_s = time.monotonic() - began_at
        say(f"shutting down: {took_s:.1f} s")
        self.settle()
        return took_s

    def stop(self) -> None:
        """End qemu, whatever the guest is doing; its disk was a copy that goes with it."""
        self._process.kill()
        self._process.wait()
        self._links.close()

    def _start(self, disk: Disk, append: str) -> subprocess.Popen[bytes]:
        arguments = [*_common(disk, f"root=/dev/vda rw quiet mitigations=off {append}"), *self.accelerator.arguments]
        arguments += ["-smp", "2", "-m", "4096", "-nic", "none", "-device", "virtio-rng-pci"]
        arguments += ["-drive", f"file={disk.image},format=raw,if=virtio,cache=unsafe,snapshot=on"]
        for user in ("root", "u1"):
            arguments += ["-chardev", f"socket,id={user},path={self._folder}/{user},server=on,wait=on"]
            arguments += ["-serial", f"chardev:{user}"]
        with open(os.path.join(cache_folder(), "qemu.log"), "wb") as log:
            # WHY setpriv: a test run that is killed takes the guest with it.
            return subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", "qemu-system-x86_64", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, "TMPDIR": self._folder},
            )

    def _connect(self, user: str) -> Console:
        link = self._links.enter_context(socket.socket(socket.AF_UNIX))
        until = time.monotonic() + 20
        while True:
            try:
                link.connect(f"{self._folder}/{user}")
                break
            except OSError:
                if self._process.poll() is not None or time.monotonic() > until:
                    raise
                time.sleep(0.05)
        log_path = os.path.join(cache_folder(), f"console-{user}.log")
        with contextlib.suppress(FileNotFoundError):
            os.remove(log_path)
        return Console(link, log_path, user, self.accelerator.patience)


@contextlib.contextmanager
def started(disk: Disk, append: str = "", accelerator: Accelerator | None = None) -> Iterator[Machine]:
    """Boot the disk for the length of a block. Nothing that the guest writes is kept."""
    folder = tempfile.mkdtemp(prefix="warren-vm-", dir="/var/tmp")
    try:
        machine = Machine(disk, accelerator or find_accelerator(disk), folder, append)
        try:
            machine.settle()
            yield machine
        finally:
            machine.stop()
    finally:
        shutil.rmtree(folder)


def find_accelerator(disk: Disk) -> Accelerator:
    """Return KVM where the guest's kernel gets to its first word with it, else software emulation.

    A device that can be opened, and even a virtual machine that can be made, do not mean that anything runs in it.
    """
    asked = os.environ.get("WARREN_VM_ACCELERATOR")
    if asked != "tcg" and os.access("/dev/kvm", os.R_OK | os.W_OK):
        for processor in _PROCESSORS_OF_KVM:
            kvm = Accelerator("kvm", ("-accel", "kvm", "-cpu", processor), 1)
            if _says_something(disk, kvm):
                say(f"accelerator: KVM, -cpu {processor}")
                return kvm
        say("accelerator: TCG, software emulation; /dev/kvm is there, but the guest's kernel does not run with it")
    else:
        say("accelerator: TCG, software emulation")
    return TCG


def _says_something(disk: Disk, accelerator: Accelerator) -> bool:
    arguments = [*_common(disk, "earlyprintk=ttyS0 panic=-1"), *accelerator.arguments]
    with subprocess.Popen(
        ["setpriv", "--pdeathsig", "KILL", "qemu-system-x86_64", *arguments, "-m", "512", "-serial", "stdio"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as process:
        assert process.stdout is not None
        said, until = b"", time.monotonic() + _KVM_S
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            while b"Linux version" not in said and selector.select(until - time.monotonic()):
                data = os.read(process.stdout.fileno(), 65536)
                if not data:
                    break
                said += data
        process.kill()
    return b"Linux version" in said


def _common(disk: Disk, append: str) -> list[str]:
    shown = ["-nodefaults", "-no-user-config", "-display", "none"]
    return [*shown, "-kernel", disk.kernel, "-initrd", disk.initrd, "-append", f"console=ttyS0 {append}"]
