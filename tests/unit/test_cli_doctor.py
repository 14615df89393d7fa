"""What `warren doctor` prints, of hosts that are not this one."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from unit.local.fake_host import DOCKER, SYSTEMD, UBUNTU, USER, found
from warren.bootstrap.local_engine import Examined
from warren.cli.commands import doctor
from warren.cli.commands.doctor import Report
from warren.domain.errors import ConfigError
from warren.engines.local.probe.layers import WITHOUT_ASKING, Layer, find_missing

if TYPE_CHECKING:
    from pathlib import Path

LONG = "a control group cannot be made at /sys/fs/cgroup/" + "memory/" * 40
HELD = Layer("user", holds=True, detail="its own user namespace", fix="")
LAYERS = (
    HELD,
    Layer("memory", holds=False, detail=LONG, fix="run `one`"),
    Layer("cpu", holds=False, detail="no", fix="run `one`"),
    Layer("landlock", holds=False, detail="not in this kernel", fix="boot another"),
)
PLACE = "cgroup v2, /sys/fs/cgroup/warren.slice/warren-1.scope, made by systemd"


def _report(root: Path, files: dict[str, str], layers: tuple[Layer, ...] = LAYERS, uid: int = USER) -> Report:
    missing = tuple(find_missing(layers, WITHOUT_ASKING))
    return Report(Examined(found(root, files, uid=uid), PLACE, layers, missing, WITHOUT_ASKING))


def test_in_a_pipe_each_layer_is_one_line_without_colours(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _report(tmp_path, UBUNTU).print()
    shown = capsys.readouterr().out
    lines = shown.splitlines()

    assert all(each.isprintable() for each in lines)
    assert [line.split()[0] for line in lines if line.startswith(("user  ", "memory", "cpu", "landlock"))][-4:] == [
        layer.name for layer in LAYERS
    ]
    assert f"memory    no            {LONG}" in lines
    assert "landlock  no, optional  not in this kernel" in lines


def test_the_host_comes_first_and_the_one_command_last(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _report(tmp_path, UBUNTU).print()
    lines = capsys.readouterr().out.splitlines()

    assert lines[0].startswith("host      Ubuntu 24.04.1 LTS, Linux ")
    assert "init      systemd 255" in lines
    assert f"cgroups   {PLACE}" in lines
    assert "user      uid 1000, with a user manager" in lines
    assert "AppArmor  takes user namespaces from users; profile warren: not installed" in lines
    assert lines[-3:] == [
        "To fix memory, cpu: run `one`",
        "Optional, to fix landlock: boot another",
        "Sandboxes are refused here: memory, cpu cannot be applied.",
    ]


def test_a_container_is_said_to_be_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _report(tmp_path, DOCKER, (HELD,), uid=0).print()
    lines = capsys.readouterr().out.splitlines()

    assert "container  Docker" in lines
    assert lines[-1] == "Sandboxes can be made here."


def test_json_has_the_same_facts(tmp_path: Path) -> None:
    told = json.loads(json.dumps(_report(tmp_path, UBUNTU).as_json()))

    assert told["ok"] is False
    assert told["place"] == PLACE
    assert told["host"]["userns_restricted"] is True
    assert told["host"]["system"] == "Ubuntu 24.04.1 LTS"
    assert told["layers"][1] == {
        "name": "memory",
        "holds": False,
        "detail": LONG,
        "fix": "run `one`",
        "stand_in": False,
        "lacks": "",
        "optional": False,
    }


def test_fix_shows_its_plan_and_asks_nothing_without_a_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = _report(tmp_path, SYSTEMD, (Layer("disk", holds=False, detail="mkfs.ext4 is not installed", fix="…"),), 0)
    with pytest.raises(ConfigError, match="no terminal: add --yes"):
        doctor._repair(report, yes=False)

    said = capsys.readouterr()
    assert "\napt-get install --yes e2fsprogs\n" in said.err
    assert said.out == ""


def test_fix_has_nothing_to_do_where_everything_holds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert doctor._repair(_report(tmp_path, SYSTEMD, (HELD,)), yes=True)

    assert capsys.readouterr().err == "Every layer that is needed holds.\n"
