"""One guest for all tests, and what must be true of it after each: no other process was moved."""

from __future__ import annotations

import json
import shlex
from typing import TYPE_CHECKING

import pytest

from vm.build import build
from vm.machine import started

if TYPE_CHECKING:
    from collections.abc import Iterator

    from vm.console import Console
    from vm.machine import Machine

_PLACES = """
import glob, json
found = {}
for folder in glob.glob("/proc/[0-9]*"):
    try:
        name, _, numbers = open(folder + "/stat").read().rpartition(")")
        found[f"{name}) since {numbers.split()[19]}"] = open(folder + "/cgroup").read()
    except OSError:
        pass
print(json.dumps(found))
"""


@pytest.fixture(scope="session")
def machine() -> Iterator[Machine]:
    """The guest, booted once; what a test leaves in it the next one finds."""
    with started(build()) as machine:
        yield machine


@pytest.fixture
def root(machine: Machine) -> Console:
    """The terminal at which root is logged in."""
    return machine.root


@pytest.fixture
def user(machine: Machine) -> Console:
    """The terminal at which an ordinary user is logged in."""
    return machine.user


@pytest.fixture(scope="session")
def places(machine: Machine) -> dict[str, str]:
    """Where each process that is not Warren's was when it was last looked."""
    return _places(machine.root)


@pytest.fixture(autouse=True)
def no_other_moved(machine: Machine, places: dict[str, str]) -> Iterator[None]:
    """Fail a test after which a process is in another control group than before."""
    yield
    now = _places(machine.root)
    moved = {who: (place, now[who]) for who, place in places.items() if now.get(who, place) != place}
    places.clear()
    places.update((who, place) for who, place in now.items() if "/warren" not in place)

    assert moved == {}


def _places(root: Console) -> dict[str, str]:
    """Return the control group of each process, by its id, its name and when it began."""
    said = root.run(f"python3 -c {shlex.quote(_PLACES)}")
    found: dict[str, str] = json.loads(said.output)
    return found
