"""The agent's loop, and what a fork does with signals, each in a process of its own: they change the whole process."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

_REUSED = """
import os
from warren.guest.system.loop import READ, Loop

loop, called = Loop(), []
(first, first_end), (second, second_end) = os.pipe(), os.pipe()

def replace(_events):
    loop.unwatch(first)
    loop.unwatch(second)
    os.close(second)
    number, ends["third"] = os.pipe()
    assert number == second
    loop.watch(number, READ, called.append)

ends = {}
loop.watch(first, READ, replace)
loop.watch(second, READ, called.append)
for end in (first_end, second_end):
    os.write(end, b"x")
loop.run_once()
before = list(called)
os.write(ends["third"], b"x")
loop.run_once()
print(len(before), len(called))
"""
_MANY = """
import os, time
from warren.guest.system.loop import MAX_STRAYS, Loop

def end(status):
    pid = os.fork()
    if pid == 0:
        os._exit(status)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    return pid

loop, ended, since = Loop(), [], time.monotonic()
loop.expected = end(3)
for _ in range(3):
    loop.call_soon(int)
    loop.run_once()
    for _ in range(MAX_STRAYS):
        end(0)
loop.call_soon(int)
loop.run_once()
loop.on_exit(loop.expected, lambda status, usage: ended.append(os.waitstatus_to_exitcode(status)), since)
loop.call_soon(int)
loop.run_once()
print(ended)
"""
_BORN = """
import os, signal, sys
from warren.guest.interpreter import child_setup

signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
child_setup.prepare()
if "early" in sys.argv:
    os.kill(os.getpid(), signal.SIGINT)
child_setup.forget_signals()
if "late" in sys.argv:
    os.kill(os.getpid(), signal.SIGINT)
child_setup.become(dict(os.environ), "/", (0, 1, 2))
os._exit(0)
"""


def _run(program: str, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, timeout=60, check=False)


def test_an_event_of_a_descriptor_does_not_reach_another_with_its_number() -> None:
    done = _run(_REUSED)

    assert (done.stdout, done.stderr) == (b"0 1\n", b"")


def test_the_end_of_a_child_that_is_waited_for_late_is_known_however_many_others_have_ended() -> None:
    done = _run(_MANY)

    assert (done.stdout, done.stderr) == (b"[3]\n", b"")


@pytest.mark.parametrize(("when", "code"), [("early", 0), ("late", -signal.SIGINT)])
def test_an_interrupt_reaches_what_a_forkserver_becomes_from_when_its_number_is_known(when: str, code: int) -> None:
    assert _run(_BORN, when).returncode == code
