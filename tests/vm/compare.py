"""What sandboxes cost on cgroup v2 and on v1: the same guest booted with either, asked in turns."""

from __future__ import annotations

import json
import os
import statistics
from typing import TYPE_CHECKING

from vm.build import build, say
from vm.machine import CGROUP_V1, find_accelerator, started

if TYPE_CHECKING:
    from vm.console import Console

RATIO_MAX = 1.2
ROUNDS, TIMES = 4, 10
FILE_SYSTEMS = {"v2": "cgroup2fs", "v1": "tmpfs"}
_SCRIPT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "create_destroy.py")


def compare() -> int:
    """Print medians and their ratios; 1 when v2 costs more than was promised."""
    disk = build()
    accelerator = find_accelerator(disk)
    took: dict[str, dict[str, list[float]]] = {"v2": {}, "v1": {}}
    with started(disk, "", accelerator) as two, started(disk, CGROUP_V1, accelerator) as one:
        guests = {"v2": two.root, "v1": one.root}
        for version, root in guests.items():
            assert root.run("stat --file-system --format %T /sys/fs/cgroup").output == FILE_SYSTEMS[version]
            _prepare(root)
        # In turns, so that what else this machine does falls on both.
        for number in range(ROUNDS):
            for version, root in guests.items():
                for what, values in _ask(root).items():
                    took[version].setdefault(what, []).extend(values)
            say(f"round {number + 1} of {ROUNDS}")
    return _report(took)


def _prepare(root: Console) -> None:
    with open(_SCRIPT, encoding="utf-8") as file:
        written = root.run(f"cat > /root/create_destroy.py <<'END'\n{file.read()}END")
    assert written.code == 0, written
    # The first starts keeper and image.
    _ask(root, 1)


def _ask(root: Console, times: int = TIMES) -> dict[str, list[float]]:
    said = root.run(f"/opt/warren/.venv/bin/python -P /root/create_destroy.py {times}", 60)
    assert said.code == 0, said
    found: dict[str, list[float]] = json.loads(said.output)
    return found


def _report(took: dict[str, dict[str, list[float]]]) -> int:
    worst = 0.0
    for what in ("create", "destroy"):
        two, one = (statistics.median(took[version][what]) for version in ("v2", "v1"))
        worst = max(worst, two / one)
        count = len(took["v2"][what])
        print(f"{what}: median of {count}: v2 {two:.1f} ms, v1 {one:.1f} ms, ratio {two / one:.2f}")
    print(f"promised: at most {RATIO_MAX}")
    return int(worst > RATIO_MAX)
