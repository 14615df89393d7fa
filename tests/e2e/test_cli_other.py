"""The other commands, from outside."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
from fcntl import ioctl
from typing import TYPE_CHECKING, Self

from e2e.serving import PROGRAM

if TYPE_CHECKING:
    from e2e.conftest import Cli


_COLOURS = re.compile(rb"\x1b\[[0-9;?]*[a-zA-Z]")


class Person:
    """Somebody at a terminal, who reads before typing."""

    def __init__(self, warren: Cli, *arguments: str) -> None:
        self._terminal, theirs = pty.openpty()
        ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 33, 99, 0, 0))
        self.process = subprocess.Popen(
            [*PROGRAM, *arguments], stdin=theirs, stdout=theirs, stderr=theirs, cwd=warren.folder, env=warren.env
        )
        os.close(theirs)
        self.seen = b""

    def reads(self, wanted: bytes) -> None:
        deadline = time.monotonic() + 60
        while wanted not in _COLOURS.sub(b"", self.seen):
            ready, _, _ = select.select([self._terminal], [], [], max(0, deadline - time.monotonic()))
            assert ready, f"{wanted!r} did not come; there was {self.seen!r}"
            try:
                self.seen += os.read(self._terminal, 65536)
            except OSError as exc:
                raise AssertionError(f"it ended without {wanted!r}; there was {self.seen!r}") from exc

    def types(self, keys: bytes) -> None:
        self.seen = b""
        os.write(self._terminal, keys)

    def resizes(self, columns: int, rows: int) -> None:
        ioctl(self._terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.process.send_signal(signal.SIGWINCH)

    def leaves(self) -> int:
        with contextlib.suppress(OSError):
            while os.read(self._terminal, 65536):
                pass
        return self.process.wait(60)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._terminal)
        with self.process:
            self.process.kill()


def test_a_shell_is_a_terminal_in_a_sandbox(warren: Cli) -> None:
    with Person(warren, "shell") as person:
        person.reads(b"fresh sandbox")
        person.types(b"stty size; echo o$((1))k\n")
        person.reads(b"33 99")
        person.reads(b"o1k")
        person.resizes(120, 40)
        person.types(b'until [ "$(stty size)" = "40 120" ]; do sleep 0.01; done; echo wi$((2))de\n')
        person.reads(b"wi2de")
        person.types(b"exit 5\n")

        assert person.leaves() == 5


def test_a_python_shell_evaluates_and_leaves_with_ctrl_d(warren: Cli) -> None:
    with Person(warren, "shell", "--python") as person:
        person.reads(b"In [1]")
        person.types(b"print('6' + str(6 * 7))\r")
        person.reads(b"642")
        person.reads(b"In [2]")
        person.types(b"\x04")

        assert person.leaves() == 0


def test_a_shell_without_a_terminal_says_what_to_use_instead(warren: Cli) -> None:
    done = warren("shell", stdin=b"echo hello\n")

    assert (done.returncode, done.stdout) == (2, b"")
    assert b"needs a terminal" in done.stderr
    assert b"warren run --shell -" in done.stderr


def test_a_data_folder_that_cannot_be_made_is_named(warren: Cli) -> None:
    warren.env["WARREN_DATA_DIR"] = "/proc/nowhere"
    done = warren("run", "-c", "1")

    folder = f"/proc/nowhere/{warren.engine}"
    said = f"warren: the data folder {folder} cannot be made: No such file or directory\n"
    assert (done.returncode, done.stderr.decode()) == (1, said)


def test_images_are_listed_and_shown_as_json_in_a_pipe(warren: Cli) -> None:
    listed = json.loads(warren("image", "list").stdout)
    shown = json.loads(warren("image", "show", "python").stdout)

    assert {image["name"]: image["built"] for image in listed}["python"] is True
    assert shown["name"] == "python"
    assert shown["packages"] == next(image["packages"] for image in listed if image["name"] == "python")


def test_an_image_that_is_built_is_not_built_again(warren: Cli) -> None:
    assert json.loads(warren("image", "build", "python").stdout)["built_now"] is False


def test_tables_are_for_people(warren: Cli) -> None:
    with Person(warren, "image", "list") as person:
        person.reads(b"description")

        assert person.leaves() == 0


def test_doctor_names_every_layer_and_its_exit_code_agrees(warren: Cli) -> None:
    done = warren("doctor", "--json")
    report = json.loads(done.stdout)

    assert {"user", "mount", "seccomp", "memory", "disk"} <= {layer["name"] for layer in report["layers"]}
    assert done.returncode == (0 if report["ok"] else 1)
    for layer in report["layers"]:
        assert layer["detail"]
        assert layer["holds"] or layer["fix"]


def test_bench_times_a_fresh_sandbox_beside_a_cold_python(warren: Cli) -> None:
    measures = json.loads(warren("bench", "--rounds", "1", "--json").stdout)

    assert any(measure["name"].startswith("fresh sandbox") for measure in measures)
    assert any(measure["name"].startswith("cold Python") for measure in measures)
    assert all(measure["median_ms"] > 0 for measure in measures)
