"""Forks by raw system calls, each made in a process of its own."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest

PRELUDE = """
import ctypes, os, signal, socket, sys, threading
from warren.guest.system import forking
"""


CALLBACKS = """
import os
from warren.guest.system import callbacks
callbacks.settle()
import ctypes
from warren.guest.system import forking
forking.close_all_but([0, 1, 2])
others = [os.open("/dev/null", os.O_RDONLY) for _ in range(100)]
Callback = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int)
# More than fit on the page that is there already.
made = [Callback(lambda x: x + 1) for _ in range(3000)]
print(made[0](41), made[-1](41))
"""


def run(program: str) -> str:
    command = [sys.executable, "-c", PRELUDE + textwrap.dedent(program)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_sibling_is_a_child_of_our_parent() -> None:
    output = run("""
        middle = os.fork()
        if middle == 0:
            pid = forking.fork_sibling()
            if pid == 0:
                os._exit(7)
            try:
                os.waitpid(pid, 0)
            except ChildProcessError:
                os._exit(3)
            os._exit(4)
        codes = sorted(os.waitstatus_to_exitcode(os.wait()[1]) for _ in range(2))
        print(codes)
    """)

    assert output == "[3, 7]\n"


def test_a_sibling_is_a_sound_interpreter() -> None:
    output = run("""
        if os.fork() == 0:
            if forking.fork_sibling() == 0:
                seen = []
                thread = threading.Thread(target=lambda: seen.append(threading.current_thread().name))
                thread.start()
                thread.join()
                print(len(seen), threading.main_thread() is threading.current_thread(), flush=True)
            os._exit(0)
        os.wait(), os.wait()
    """)

    assert output == "1 True\n"


@pytest.mark.parametrize("how", ["os.abort()", "ctypes.CDLL(None)['raise'](6)"])
def test_a_sibling_can_signal_itself(how: str) -> None:
    output = run(f"""
        if os.fork() == 0:
            if forking.fork_sibling() == 0:
                {how}
            os._exit(0)
        print(sorted(os.waitstatus_to_exitcode(os.wait()[1]) for _ in range(2)))
    """)

    assert output == "[-6, 0]\n"


def test_the_c_library_knows_the_new_thread_id() -> None:
    output = run("""
        offset = forking._tid_offset()
        def known():
            return ctypes.c_int.from_address(forking._libc.pthread_self() + offset).value
        before = known() == threading.get_native_id()
        if os.fork() == 0:
            if forking.fork_sibling() == 0:
                print(before, known() == threading.get_native_id() == os.getpid(), flush=True)
            os._exit(0)
        os.wait(), os.wait()
    """)

    assert output == "True True\n"


def test_clone_gives_a_pidfd_that_tells_of_the_end() -> None:
    output = run("""
        import select
        pid, pidfd = forking.clone(0)
        if pid == 0:
            os._exit(5 if pidfd == -1 else 6)
        ended = bool(select.select([pidfd], [], [], 20)[0])
        print(ended, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    """)

    assert output == "True 5\n"


def test_clone_says_why_it_failed_and_leaves_the_interpreter_usable() -> None:
    output = run("""
        try:
            forking.clone(1 << 40)
        except OSError as error:
            print(error.errno)
        print(os.waitstatus_to_exitcode(os.waitpid(os.spawnlp(os.P_NOWAIT, "true", "true"), 0)[1]))
    """)

    assert output == "22\n0\n"


def test_all_descriptors_but_the_named_ones_are_closed() -> None:
    output = run("""
        kept = os.open("/dev/null", os.O_RDONLY)
        high = os.dup2(kept, 900)
        os.dup2(kept, 901)
        forking.close_all_but([0, 1, 2, kept, high])
        left = []
        for fd in range(1000):
            try:
                os.fstat(fd)
            except OSError:
                continue
            left.append(fd)
        print(left == [0, 1, 2, kept, high])
    """)

    assert output == "True\n"


def test_callbacks_of_c_can_be_made_after_all_descriptors_were_closed_and_opened_again() -> None:
    done = subprocess.run([sys.executable, "-c", CALLBACKS], capture_output=True, text=True, timeout=30, check=False)

    assert (done.stdout, done.stderr) == ("42 42\n", "")


def test_threads_are_counted() -> None:
    output = run("""
        stop = threading.Event()
        thread = threading.Thread(target=stop.wait)
        print(forking.task_count())
        thread.start()
        print(forking.task_count())
        stop.set()
        thread.join()
    """)

    assert output == "1\n2\n"


def test_a_process_can_close_itself_to_its_peers_and_open_again() -> None:
    output = run("""
        get_dumpable = lambda: ctypes.CDLL(None).prctl(3, 0, 0, 0, 0)
        forking.set_dumpable(False)
        print(get_dumpable())
        forking.set_dumpable(True)
        print(get_dumpable())
    """)

    assert output == "0\n1\n"
