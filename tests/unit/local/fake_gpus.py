"""GPUs that are none: harmless character devices under a CDI spec of their own vendor."""

from __future__ import annotations

import json
import os
import stat
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

NUMBERS = {"gpu0": os.makedev(10, 229), "gpu1": os.makedev(10, 200)}
"""FUSE and TUN: nothing happens to either when it is opened."""


def write_spec(folder: Path) -> None:
    """Describe two devices, what both need, a library and a program."""
    for name, number in {**NUMBERS, "gpuctl": os.makedev(1, 7)}.items():
        os.mknod(folder / name, 0o666 | stat.S_IFCHR, number)
        os.chmod(folder / name, 0o666)
    (folder / "libexample.so.1").write_text("the driver")
    (folder / "bin").mkdir()
    (folder / "bin" / "example-smi").write_text("#!/bin/sh\necho $EXAMPLE_DRIVER $LD_LIBRARY_PATH\n")
    (folder / "bin" / "example-smi").chmod(0o755)
    files = ("libexample.so.1", "bin/example-smi")
    common = {
        "deviceNodes": [{"path": "/dev/gpuctl", "hostPath": str(folder / "gpuctl")}],
        "mounts": [{"hostPath": str(folder / name), "containerPath": f"/usr/{name}"} for name in files],
        "env": ["EXAMPLE_DRIVER=here"],
    }
    own = {name[3:]: {"path": f"/dev/{name}", "hostPath": str(folder / name)} for name in NUMBERS}
    devices = [{"name": name, "containerEdits": {"deviceNodes": [node]}} for name, node in own.items()]
    spec = {"cdiVersion": "0.6.0", "kind": "example.com/gpu", "devices": devices, "containerEdits": common}
    (folder / "example.json").write_text(json.dumps(spec))
