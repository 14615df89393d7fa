"""The unit for systemd: it is one, it keeps sandboxes, and the service can do its work with what it leaves it."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from e2e.serving import PROGRAM, create, run_code

if TYPE_CHECKING:
    from collections.abc import Callable

    from e2e.serving import RunningService

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
UNIT = os.path.join(ROOT, "deploy", "systemd", "warren.service")
OWN_VIEW_OF_MOUNTS = {
    "BindPaths",
    "InaccessiblePaths",
    "PrivateDevices",
    "PrivateMounts",
    "PrivateTmp",
    "ProtectControlGroups",
    "ProtectHome",
    "ProtectKernelLogs",
    "ProtectKernelModules",
    "ProtectKernelTunables",
    "ProtectProc",
    "ProtectSystem",
    "ReadOnlyPaths",
    "ReadWritePaths",
    "TemporaryFileSystem",
}


def load_unit() -> dict[str, str]:
    """Read the unit; of a key that is there more than once, the last."""
    with open(UNIT, encoding="utf-8") as file:
        lines = [line.strip() for line in file if "=" in line and not line.startswith("#")]
    return dict(line.split("=", 1) for line in lines)


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
def test_systemd_has_nothing_to_say_against_the_unit(tmp_path: Path) -> None:
    with open(UNIT, encoding="utf-8") as file:
        text = file.read()
    copy = tmp_path / "warren.service"
    # It asks for the program to be there.
    copy.write_text(text.replace(load_unit()["ExecStart"].split()[0], "/bin/true"))

    said = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(copy)], capture_output=True, text=True, check=False
    )

    assert said.stdout + said.stderr == ""
    assert said.returncode == 0


def test_the_unit_keeps_sandboxes_over_a_restart() -> None:
    unit = load_unit()

    assert unit["KillMode"] == "process"
    assert unit["OOMPolicy"] == "continue"
    assert unit["Delegate"] == "yes"
    assert unit["Slice"] == "warren.slice"
    assert float(unit["TimeoutStopSec"]) > 20, "longer than serve.drain_s"
    assert OWN_VIEW_OF_MOUNTS & unit.keys() == set()
    assert "RestrictNamespaces" not in unit


def test_the_settings_of_the_unit_are_settings(tmp_path: Path) -> None:
    with open(UNIT, encoding="utf-8") as file:
        pairs = re.findall(r"^#?Environment=(WARREN_\w+)=", file.read(), re.MULTILINE)
    (tmp_path / "secret").write_text("x" * 32)
    values = {"WARREN_ENV": "production", "WARREN_JWT_SECRET_FILE": str(tmp_path / "secret")}

    assert set(pairs) == set(values)
    shown = subprocess.run(
        [*PROGRAM, "config", "get", "env"],
        env={"PATH": os.defpath, "HOME": str(tmp_path), **values},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert shown.stdout == "production\n"


@pytest.mark.root
@pytest.mark.skipif(shutil.which("setpriv") is None, reason="setpriv is not installed (Debian: apt install util-linux)")
def test_with_the_rights_that_the_unit_leaves_sandboxes_work_and_outlive_the_service(
    serve: Callable[..., RunningService],
) -> None:
    have = int(re.findall(r"CapBnd:\s*(\w+)", Path("/proc/self/status").read_text(encoding="utf-8"))[0], 16)
    wanted = [name.removeprefix("CAP_").lower() for name in load_unit()["CapabilityBoundingSet"].split()]
    # This machine may not have all of them to give.
    granted = [name for name in wanted if name != "sys_resource" or have >> 24 & 1]
    service = serve("local", env="production")
    made = json.loads(service.run("keys", "create", "admin", "--scope", "admin", "--json").stdout)
    bounding = ",".join(["-all", *(f"+{name}" for name in granted)])
    service.program = ("setpriv", "--no-new-privs", f"--bounding-set={bounding}", "--inh-caps=-all", *PROGRAM)
    service.start()
    service.key = made["secret"]
    with service.client() as client:
        sandbox = create(client, storage="persistent")
        run_code(client, sandbox, "x = 41; open('kept.txt', 'w').write('kept')")

    assert service.stop() == 0
    service.start()
    with service.client() as client:
        assert run_code(client, sandbox, "print(x + 1, open('kept.txt').read())")["stdout"] == "42 kept\n"
        assert run_code(client, sandbox, "b'x' * 10**10")["cause"] == "oom"
        assert client.post(f"/sandboxes/{sandbox}/stop").status_code == 200
        assert run_code(client, sandbox, "print(open('kept.txt').read())")["stdout"] == "kept\n"
        assert client.delete(f"/sandboxes/{sandbox}").status_code == 204
