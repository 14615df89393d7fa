"""`python -m vm build`, `compare`, or `run [--user] [--v1] COMMAND…`, which shows what commands say in the guest."""

from __future__ import annotations

import argparse
import sys

from vm.build import CannotBuild, build
from vm.compare import compare
from vm.machine import CGROUP_V1, started


def main() -> int:
    """Do what was asked for, or say in a sentence why that cannot be."""
    parser = argparse.ArgumentParser(prog="python -m vm", description=__doc__)
    parser.add_argument("action", choices=["build", "compare", "run"])
    parser.add_argument("--user", action="store_true", help="as the ordinary user")
    parser.add_argument("--v1", action="store_true", help="with cgroup v1")
    parser.add_argument("--within", type=float, default=60, help="seconds for each command, more where it is slow")
    parser.add_argument("commands", nargs="*")
    asked = parser.parse_intermixed_args()
    try:
        match asked.action:
            case "build":
                build()
                return 0
            case "compare":
                return compare()
        return _run(asked)
    except CannotBuild as exc:
        print(f"test-vm: {exc}.", file=sys.stderr)
        return 1


def _run(asked: argparse.Namespace) -> int:
    worst = 0
    with started(build(), CGROUP_V1 if asked.v1 else "") as machine:
        console = machine.user if asked.user else machine.root
        for command in asked.commands:
            ended = console.run(command, asked.within)
            print(ended, flush=True)
            worst = max(worst, ended.code)
    return worst


if __name__ == "__main__":
    sys.exit(main())
