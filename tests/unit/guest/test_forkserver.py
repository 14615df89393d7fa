"""The forkserver itself: what it lets through, and how it ends."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import pytest

from unit.guest.forkserver_harness import ForkserverHarness

if TYPE_CHECKING:
    from pathlib import Path


def test_its_kernels_are_children_of_the_agent(forkserver: ForkserverHarness) -> None:
    ran = forkserver.kernel().run("import os; os.getppid()")

    assert ran.texts == [str(os.getpid())]


def test_two_kernels_share_no_variables(forkserver: ForkserverHarness) -> None:
    first, second = forkserver.kernel(), forkserver.kernel()
    first.run("x = 1")

    assert second.run("'x' in globals()").texts == ["False"]


def test_nothing_of_an_earlier_request_is_in_the_memory_of_a_later_kernel(forkserver: ForkserverHarness) -> None:
    forkserver.kernel(env={**forkserver.env, "SECRET": "swordfish-31337"})
    forkserver.script("x = 1", "swordfish-31337")
    # The word is put together in here, so the search finds itself at most.
    search = """
import re
def find(word):
    found = 0
    for line in open('/proc/self/maps'):
        low, high, mode = re.match(r'(\\w+)-(\\w+) (\\S+)', line).groups()
        if mode.startswith('rw'):
            with open('/proc/self/mem', 'rb', 0) as memory:
                memory.seek(int(low, 16))
                try: found += memory.read(int(high, 16) - int(low, 16)).count(word)
                except OSError: pass
    return found
find(b'-'.join([b'swordfish', b'31337']))
"""
    ran = forkserver.kernel().run(search)

    assert int(ran.texts[0]) <= 2


def test_signals_do_not_end_it(forkserver: ForkserverHarness) -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGALRM, signal.SIGQUIT):
        os.kill(forkserver.pid, number)

    assert forkserver.kernel().run("1").texts == ["1"]


def test_a_kernel_cannot_look_into_it(forkserver: ForkserverHarness) -> None:
    if os.geteuid() == 0:
        pytest.skip("root may look into everything; the sandbox user may not")
    ran = forkserver.kernel().run(f"import os; os.listdir('/proc/{forkserver.pid}/fd')")

    assert ran.error is not None
    assert ran.error["name"] == "PermissionError"


def test_a_kernel_starts_with_default_signals(forkserver: ForkserverHarness) -> None:
    ran = forkserver.kernel().run(
        "import signal; [s.name for s in signal.Signals if signal.getsignal(s) == signal.SIG_IGN]"
    )

    assert ran.texts == ["['SIGPIPE', 'SIGXFSZ']"]


def test_a_killed_forkserver_is_an_end_of_file(forkserver: ForkserverHarness) -> None:
    other = ForkserverHarness(forkserver.workspace, without=("IPython",))
    try:
        other.kernel()
        os.kill(other.pid, signal.SIGKILL)

        assert other.link.receive() is None
        assert other.wait(other.pid) == signal.SIGKILL
    finally:
        other.close()


def test_it_becomes_what_is_asked_for_and_has_a_successor(forkserver: ForkserverHarness) -> None:
    other = ForkserverHarness(forkserver.workspace, without=("IPython",))
    try:
        first = other.pid
        kernels = [other.kernel(), other.kernel()]

        assert [kernel.pid for kernel in kernels] == [first, other.successor]
        assert other.pid not in (first, other.successor)
    finally:
        other.close()


def test_one_that_is_killed_before_it_is_asked_is_succeeded(forkserver: ForkserverHarness) -> None:
    other = ForkserverHarness(forkserver.workspace, without=("IPython",))
    try:
        first = other.pid
        os.kill(first, signal.SIGKILL)
        other.wait(first)

        assert other.kernel().run("1+1").texts == ["2"]
    finally:
        other.close()


def test_it_ends_when_the_agent_hangs_up(forkserver: ForkserverHarness) -> None:
    other = ForkserverHarness(forkserver.workspace, without=("IPython",))
    try:
        other.link.close()

        assert other.wait(other.pid) == 0
    finally:
        other.close()


def test_a_package_of_the_sandbox_in_place_of_an_imported_one_starts_cold(
    forkserver: ForkserverHarness, tmp_path: Path
) -> None:
    image, own = tmp_path / "image", tmp_path / "own"
    for folder, version in ((image, 1), (own, 2)):
        folder.mkdir()
        (folder / "gizmo.py").write_text(f"version = {version}\n")
    other = ForkserverHarness(forkserver.workspace, without=("IPython",), preload=("gizmo",), path=(str(image),))
    try:
        warm = other.kernel()
        cold = other.kernel(env={**other.env, "PYTHONPATH": str(own)})
        env = {**other.env, "PYTHONPATH": str(own)}
        status, output, _ = other.script("import gizmo; print(gizmo.version)", env=env)

        assert warm.run("import gizmo; gizmo.version").texts == ["1"]
        assert cold.run("import gizmo; gizmo.version").texts == ["2"]
        assert "cold" not in warm.up
        assert cold.up["cold"] is True
        assert "gizmo" in cold.up["why"]
        assert "gizmo" in cold.spawned["note"]
        assert (status, output) == (0, "2\n")
    finally:
        other.close()


def test_a_cold_kernel_can_be_rolled_back_too(forkserver: ForkserverHarness, tmp_path: Path) -> None:
    image, own = tmp_path / "image", tmp_path / "own"
    for folder in (image, own):
        folder.mkdir()
        (folder / "gizmo.py").touch()
    other = ForkserverHarness(forkserver.workspace, preload=("gizmo",), path=(str(image),))
    try:
        cold = other.kernel(env={**other.env, "WARREN_PACKAGES": str(own)})
        copy = cold.run("x = 4", checkpoint=1 << 26).copy
        assert copy is not None
        cold.run("import os; os._exit(1)")

        assert copy.wake().run("x").texts == ["4"]
    finally:
        other.close()
