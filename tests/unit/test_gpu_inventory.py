"""Which GPUs there are: one for each device, whatever it is called, and usable only if it can be opened."""

from __future__ import annotations

import json
import os
import stat
from typing import TYPE_CHECKING, Any

import pytest

from unit.local.forked import needs_root
from warren.engines.gpus import inventory as gpu_inventory
from warren.engines.gpus import nvidia
from warren.engines.gpus.inventory import GpuInventory

if TYPE_CHECKING:
    from pathlib import Path


def write(folder: Path, devices: dict[str, list[str]], **common: Any) -> tuple[str, ...]:
    """Write a spec: names of devices, and the device nodes of each on this host."""
    described = []
    for name, hosts in devices.items():
        nodes = [{"path": f"/dev/{os.path.basename(host)}", "hostPath": host} for host in hosts]
        described.append({"name": name, "containerEdits": {"deviceNodes": nodes}})
    spec = {"cdiVersion": "0.6.0", "kind": "example.com/gpu", "devices": described, "containerEdits": common}
    text = json.dumps(spec)
    (folder / "spec.json").write_text(text)
    return (str(folder),)


def test_the_names_of_one_device_are_one_gpu_and_all_is_none(tmp_path: Path) -> None:
    folders = write(
        tmp_path, {"all": ["/dev/null", "/dev/zero"], "GPU-aaaa": ["/dev/null"], "0": ["/dev/null"], "1": ["/dev/zero"]}
    )

    found = gpu_inventory.find(folders).found

    assert [each.gpu.id for each in found] == ["example.com/gpu=0", "example.com/gpu=1"]
    assert found[0].gpu.aliases == ("0", "example.com/gpu=GPU-aaaa", "GPU-aaaa")
    assert all(each.gpu.usable for each in found)


def test_a_device_that_is_not_there_or_is_none_is_not_usable(tmp_path: Path) -> None:
    plain = tmp_path / "file"
    plain.write_text("")
    plain.chmod(0o666)
    folders = write(tmp_path, {"0": [str(tmp_path / "gone")], "1": [str(plain)], "2": []})

    gone, file, nothing = (each.gpu for each in gpu_inventory.find(folders).found)

    assert (gone.usable, file.usable, nothing.usable) == (False, False, False)
    assert gone.why.endswith("cannot be opened: No such file or directory")
    assert file.why.endswith("is not a character device")
    assert nothing.why == "its CDI spec names no device node of its own"


@needs_root
def test_a_node_that_the_user_of_a_sandbox_may_not_open_is_not_usable(tmp_path: Path) -> None:
    node = str(tmp_path / "gpu0")
    os.mknod(node, 0o660 | stat.S_IFCHR, os.makedev(1, 3))
    os.chmod(node, 0o660)

    (found,) = gpu_inventory.find(write(tmp_path, {"0": [node]})).found

    assert not found.gpu.usable
    assert "has mode 0660" in found.gpu.why


def test_what_a_sandbox_needs_leaves_out_what_it_could_not_use(tmp_path: Path) -> None:
    real = tmp_path / "libexample.so.2.1"
    real.write_text("")
    (tmp_path / "libexample.so.2").symlink_to(real.name)
    (tmp_path / "libexample.so").symlink_to("libexample.so.2")
    mounts = [{"hostPath": str(real)}, {"hostPath": str(tmp_path / "libgone.so.1")}, {"hostPath": "/usr/bin/env"}]
    folders = write(
        tmp_path,
        {"0": ["/dev/null"], "1": ["/dev/full"]},
        deviceNodes=[{"path": "/dev/ctl", "hostPath": "/dev/zero"}, {"path": "/dev/gone"}],
        mounts=mounts,
        env=["EXAMPLE=1", "LD_PRELOAD=/tmp/evil.so"],
    )

    needs = gpu_inventory.find(folders).describe(["example.com/gpu=1"])

    assert needs["nodes"] == [["/dev/full", "/dev/full"], ["/dev/ctl", "/dev/zero"]]
    assert needs["main"] == ["/dev/full"]
    assert needs["libraries"] == [{"path": str(real), "name": real.name, "links": ["libexample.so", "libexample.so.2"]}]
    assert needs["programs"] == ["/usr/bin/env"]
    assert needs["env"] == {"EXAMPLE": "1"}


def test_a_spec_that_comes_later_is_seen_at_once(tmp_path: Path) -> None:
    inventory = GpuInventory([str(tmp_path)])
    before = [each for each in inventory.load().found if each.gpu.id.startswith("example.com")]
    write(tmp_path, {"0": ["/dev/null"]})

    assert before == []
    assert "example.com/gpu=0" in [each.gpu.id for each in inventory.load().found]


@pytest.mark.skipif(os.path.exists("/dev/nvidia0"), reason="this host has an NVIDIA GPU")
def test_without_a_gpu_nothing_is_made_up(tmp_path: Path) -> None:
    assert nvidia.describe() is None
    assert gpu_inventory.find((str(tmp_path),)).found == ()
