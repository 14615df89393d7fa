"""One guest for all tests, and what must be true of it after each: nobody else's process was moved."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from vm.build import build
from vm.machine import started

if TYPE_CHECKING:
    from collections.abc import Iterator

    from vm.console import Console
    from vm.machine import Machine

_PLACES = "for p in /proc/[0-9]*; do echo $(stat -c %Y $p) $p $(cat $p/comm) $(cat $p/cgroup); done 2>/dev/null"


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


@pytest.fixture(autouse=True)
def nobody_else_moved(machine: Machine) -> Iterator[None]:
    """Fail a test after which a process is in another control group than before."""
    before = _places(machine.root)
    yield
    after = _places(machine.root)

    assert {who: (place, after[who]) for who, place in before.items() if after.get(who, place) != place} == {}


def _places(root: Console) -> dict[str, str]:
    """Return the control group of each process, by when it began and its id."""
    rows = (line.split(maxsplit=3) for line in root.run(_PLACES).output.splitlines())
    return {" ".join(row[:3]): row[3] for row in rows if len(row) == 4}
