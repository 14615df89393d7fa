"""CDI specs: those of `nvidia-ctk`, and malicious ones."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from warren.engines.gpus import cdi
from warren.engines.gpus.cdi import CdiError, Node

if TYPE_CHECKING:
    from pathlib import Path

NVIDIA = """\
---
cdiVersion: 0.5.0
containerEdits:
  deviceNodes:
  - path: /dev/nvidiactl
  - path: /dev/nvidia-uvm
  env:
  - NVIDIA_VISIBLE_DEVICES=void
  hooks:
  - args: [nvidia-ctk, hook, update-ldcache, --folder, /usr/lib/x86_64-linux-gnu]
    hookName: createContainer
    path: /usr/bin/nvidia-ctk
  mounts:
  - containerPath: /usr/lib/x86_64-linux-gnu/libcuda.so.580.159.04
    hostPath: /usr/lib/x86_64-linux-gnu/libcuda.so.580.159.04
    options: [ro, nosuid, nodev, bind]
  - containerPath: /usr/bin/nvidia-smi
    hostPath: /usr/bin/nvidia-smi
  - containerPath: /run/nvidia-persistenced/socket
    hostPath: /run/nvidia-persistenced/socket
  - containerPath: /lib/firmware/nvidia/580.159.04/gsp_ga10x.bin
    hostPath: /lib/firmware/nvidia/580.159.04/gsp_ga10x.bin
devices:
- name: "0"
  containerEdits:
    deviceNodes:
    - path: /dev/nvidia0
      hostPath: /dev/nvidia0
      major: 195
      minor: 0
- name: all
  containerEdits:
    deviceNodes:
    - path: /dev/nvidia0
kind: nvidia.com/gpu
"""


def spec(**changed: Any) -> dict[str, Any]:
    node = {"path": "/dev/example0", "hostPath": "/dev/null"}
    devices = [{"name": "0", "containerEdits": {"deviceNodes": [node]}}]
    return {"cdiVersion": "0.6.0", "kind": "example.com/gpu", "devices": devices, **changed}


def edits(**changed: Any) -> dict[str, Any]:
    return spec(containerEdits=changed)


def test_a_spec_of_nvidias_own_tool_is_read() -> None:
    zero, every = cdi.parse_spec(cdi.parse_text(NVIDIA.encode(), is_json=False))

    assert (zero.id, every.id) == ("nvidia.com/gpu=0", "nvidia.com/gpu=all")
    assert zero.own.nodes == (Node("/dev/nvidia0", "/dev/nvidia0"),)
    assert [node.path for node in zero.common.nodes] == ["/dev/nvidiactl", "/dev/nvidia-uvm"]
    assert zero.common.env == {"NVIDIA_VISIBLE_DEVICES": "void"}


def test_of_mounts_only_libraries_and_programs_are_taken() -> None:
    device = cdi.parse_spec(cdi.parse_text(NVIDIA.encode(), is_json=False))[0]

    assert device.common.libraries == ("/usr/lib/x86_64-linux-gnu/libcuda.so.580.159.04",)
    assert device.common.programs == ("/usr/bin/nvidia-smi",)


def test_any_vendor_and_class_will_do() -> None:
    (device,) = cdi.parse_spec(spec(kind="vendor.example.org/net_card"))

    assert device.id == "vendor.example.org/net_card=0"
    assert device.own.nodes == (Node("/dev/example0", "/dev/null"),)


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        ([], "the spec must be a mapping"),
        (spec(kind="gpu"), "not vendor/class"),
        (spec(kind="../../etc/gpu"), "not vendor/class"),
        (spec(kind=None), "kind must be a text"),
        (spec(devices={}), "devices must be a list"),
        (spec(devices=[{}] * 257), "devices must be a list of at most 256"),
        (spec(devices=[{"name": "a/b"}]), "not the name of a device"),
        (spec(devices=[{"name": "x" * 5000}]), "at most 4096"),
        (edits(deviceNodes=[{"path": "/etc/shadow"}]), "not below /dev"),
        (edits(deviceNodes=[{"path": "/dev/../etc/shadow"}]), "absolute path without"),
        (edits(deviceNodes=[{"path": "dev/nvidia0"}]), "absolute path without"),
        (edits(deviceNodes=[{"path": "/dev/x\0y"}]), "printable"),
        (edits(deviceNodes=[{"path": "/dev/sda", "type": "b"}]), "not a character device"),
        (edits(deviceNodes=[{"path": "/dev/x", "hostPath": "../x"}]), "absolute path without"),
        (edits(deviceNodes=[{"path": f"/dev/{number}"} for number in range(65)]), "at most 64"),
        (edits(mounts=[{"hostPath": "lib/libcuda.so.1"}]), "absolute path without"),
        (edits(mounts=[{"hostPath": "/x"}] * 513), "at most 512"),
        (edits(env=["LD_PRELOAD"]), "not NAME=VALUE"),
        (edits(env=["A B=c"]), "not NAME=VALUE"),
        (edits(env=[{"A": "b"}]), "must be a text"),
    ],
)
def test_what_is_wrong_makes_no_device_and_one_sentence(bad: Any, said: str) -> None:
    with pytest.raises(CdiError, match=said):
        cdi.parse_spec(bad)


@pytest.mark.parametrize(
    "text",
    [
        "a: &a [x]\nb: *a",
        "a: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]",
        "!!python/object/apply:os.system [echo harm]",
        "a: [",
        "\x00",
    ],
)
def test_yaml_makes_nothing_but_text_and_takes_no_aliases(text: str) -> None:
    with pytest.raises(CdiError):
        cdi.parse_spec(cdi.parse_text(text.encode(), is_json=False))


def test_json_that_is_nested_too_deep_is_refused() -> None:
    with pytest.raises(CdiError):
        cdi.parse_text(b"[" * 200_000, is_json=True)


def test_folders_are_read_in_order_and_a_bad_file_spoils_no_other(tmp_path: Path) -> None:
    first, second = tmp_path / "etc", tmp_path / "run"
    first.mkdir()
    second.mkdir()
    (first / "a.json").write_text(json.dumps(spec()))
    (first / "b.yaml").write_text("kind: [")
    (first / "large.json").write_text(" " * (cdi.FILE_BYTES + 1))
    (first / "readme.txt").write_text("not a spec")
    (second / "a.json").write_text(json.dumps(spec(containerEdits={"env": ["FROM=run"]})))

    devices, problems = cdi.load_specs((str(first), str(second), str(tmp_path / "nowhere")))

    assert [(device.id, device.common.env) for device in devices] == [("example.com/gpu=0", {"FROM": "run"})]
    assert len(problems) == 2
    assert problems[0].startswith(f"the CDI spec {first}/b.yaml cannot be used: it is not YAML")
    assert problems[1].endswith("large.json cannot be used: it has more than 1 MiB")
