"""Frozen copies: a kernel dies in every way there is, and its variables are back."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import pytest

from unit.guest.agent_client import until
from unit.guest.forkserver_harness import MIB
from unit.local.forked import needs_root

if TYPE_CHECKING:
    from unit.guest.forkserver_harness import Kernel

LIMIT = 64 * MIB
COUNT_FAULTS = """
import resource
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for at in range(0, len(data), 4096): data[at] += 1
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""
"""Writes to each page of `data`, and says how many of them had to be made."""


@pytest.mark.parametrize(
    ("code", "fate"),
    [
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", -signal.SIGKILL),
        ("import os; os._exit(3)", 3),
        ("import ctypes; ctypes.string_at(0)", -signal.SIGSEGV),
        ("import os; os.abort()", -signal.SIGABRT),
    ],
)
def test_after_a_death_the_copy_has_the_variables_of_the_cell_before(kernel: Kernel, code: str, fate: int) -> None:
    copy = kernel.run("x = [1]", checkpoint=LIMIT).copy
    assert copy is not None
    died = kernel.run(f"x.append(2)\nprint('so far', flush=True)\n{code}")
    woken = copy.wake()
    again = woken.run("x")

    assert died.wait_status is not None
    assert os.waitstatus_to_exitcode(died.wait_status) == fate
    assert died.stdout == "so far\n"
    assert again.texts == ["[1]"]


def test_a_woken_copy_can_die_too(kernel: Kernel) -> None:
    copy = kernel.run("x = 1", checkpoint=LIMIT).copy
    assert copy is not None
    kernel.run("import os; os._exit(1)")
    second = copy.wake()
    next_copy = second.run("x += 1", checkpoint=LIMIT).copy
    assert next_copy is not None
    second.run("import os; os.abort()")

    assert next_copy.wake().run("x").texts == ["2"]


def test_a_copy_ends_when_the_agent_lets_go_of_it(kernel: Kernel) -> None:
    copy = kernel.run("x = 1", checkpoint=LIMIT).copy
    assert copy is not None

    assert copy.drop() == 0
    assert kernel.run("x").texts == ["1"]


def test_a_copy_is_not_a_child_of_the_kernel(kernel: Kernel) -> None:
    copy = kernel.run("x = 1", checkpoint=LIMIT).copy
    assert copy is not None
    ran = kernel.run("import os\ntry: os.wait()\nexcept ChildProcessError: print('none')")

    assert ran.stdout == "none\n"


def test_killing_the_kernels_group_does_not_reach_its_copy(kernel: Kernel) -> None:
    copy = kernel.run("x = 1", checkpoint=LIMIT).copy
    assert copy is not None
    until(lambda: os.getpgid(copy.pid) != kernel.pid)
    os.killpg(kernel.pid, signal.SIGKILL)
    kernel.forkserver.wait(kernel.pid)

    assert copy.wake().run("x").texts == ["1"]


def test_a_kernel_with_threads_is_not_copied_and_says_so(kernel: Kernel) -> None:
    ran = kernel.run(
        "import threading\nstop = threading.Event()\nthread = threading.Thread(target=stop.wait)\nthread.start()",
        checkpoint=LIMIT,
    )
    # A thread that has been joined is there until it gets the processor once more.
    gone = "import os\nwhile len(os.listdir('/proc/self/task')) > 1: os.sched_yield()"
    after = kernel.run(f"stop.set(); thread.join()\n{gone}", checkpoint=LIMIT)

    assert ran.copy is None
    assert ran.why_unprotected is not None
    assert "2 threads" in ran.why_unprotected
    assert after.copy is not None


@needs_root
def test_a_kernel_that_has_a_device_open_is_not_copied_and_says_so(kernel: Kernel) -> None:
    ran = kernel.run("import os; device = os.open('/dev/fuse', os.O_RDWR)", checkpoint=LIMIT)
    standard = "opened = [os.open(f'/dev/{name}', os.O_RDWR) for name in ('null', 'zero', 'urandom', 'ptmx')]"
    after = kernel.run(f"os.close(device); {standard}", checkpoint=LIMIT)

    assert ran.copy is None
    assert ran.why_unprotected == "the device /dev/fuse is open, and what its driver holds cannot be copied"
    assert after.copy is not None


def test_a_kernel_with_much_memory_is_not_copied_and_says_so(kernel: Kernel) -> None:
    ran = kernel.run("block = bytearray(b'x') * (80 << 20)", checkpoint=LIMIT)
    after = kernel.run("del block", checkpoint=LIMIT)

    assert ran.copy is None
    assert ran.why_unprotected is not None
    assert "64 MiB" in ran.why_unprotected
    assert after.copy is not None


def test_the_memory_of_the_imports_is_not_counted(kernel: Kernel) -> None:
    copy = kernel.run("x = 1", checkpoint=LIMIT).copy
    assert copy is not None

    assert copy.private_bytes < 8 * MIB


def test_random_goes_on_in_a_woken_copy_as_it_would_have(kernel: Kernel) -> None:
    copy = kernel.run("import random; random.seed(42)", checkpoint=LIMIT).copy
    assert copy is not None
    first = kernel.run("random.random()").texts
    kernel.run("import os; os._exit(1)")

    assert copy.wake().run("random.random()").texts == first


def test_a_fork_has_the_variables_and_its_own_randomness(kernel: Kernel) -> None:
    kernel.run("import random; random.seed(42); x = {'a': 1}")
    copy = kernel.fork().copy
    assert copy is not None
    other = copy.wake()
    kernel.run("x['a'] = 2")

    assert other.run("x").texts == ["{'a': 1}"]
    assert kernel.run("x").texts == ["{'a': 2}"]
    assert other.run("random.random()").texts != kernel.run("random.random()").texts


def test_the_operating_system_would_take_the_live_kernel_first(kernel: Kernel) -> None:
    copy = kernel.run("x = 1", checkpoint=LIMIT).copy
    assert copy is not None
    read = "int(open('/proc/self/oom_score_adj').read())"

    assert kernel.run(read).texts == ["900"]


def test_files_are_not_rolled_back(kernel: Kernel) -> None:
    copy = kernel.run("x = 1", checkpoint=LIMIT).copy
    assert copy is not None
    kernel.run("open('mark', 'w').write('made'); import os; os._exit(1)")

    assert copy.wake().run("open('mark').read()").texts == ["'made'"]


def test_what_every_cell_writes_to_is_copied_between_two_of_them(kernel: Kernel) -> None:
    assert kernel.run("data = bytearray(256 * 4096)", checkpoint=LIMIT).copy is not None
    ran = [kernel.run(COUNT_FAULTS, checkpoint=LIMIT) for _ in range(6)]
    faults = [int(one.stdout) for one in ran]
    copies = [one.copy for one in ran]
    assert copies[-2] is not None

    assert min(faults[:3]) >= 256
    assert max(faults[-2:]) < 64
    assert copies[-2].wake().run("set(data[::4096])").texts == ["{5}"]


def test_much_data_that_every_cell_writes_to_is_not_held_twice(kernel: Kernel) -> None:
    kernel.run("data = bytearray(2048 * 4096)", checkpoint=LIMIT)
    faults = [int(kernel.run(COUNT_FAULTS, checkpoint=LIMIT).stdout) for _ in range(6)]

    assert min(faults) >= 2048
