"""The other commands, from outside."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from e2e.person import Person

if TYPE_CHECKING:
    from e2e.conftest import Cli


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
    why = f"the data folder {folder} cannot be made: No such file or directory; choose another with WARREN_DATA_DIR"
    assert (done.returncode, done.stderr.decode().splitlines()[-1]) == (1, f"warren: {why}")


def test_images_are_listed_and_shown_as_json_when_asked_to(warren: Cli) -> None:
    listed = json.loads(warren("image", "list", "--json").stdout)
    shown = json.loads(warren("image", "show", "python", "--json").stdout)

    assert {image["name"]: image["built"] for image in listed}["python"] is True
    assert shown["name"] == "python"
    assert shown["packages"] == next(image["packages"] for image in listed if image["name"] == "python")


def test_an_image_that_is_built_is_not_built_again(warren: Cli) -> None:
    assert json.loads(warren("image", "build", "python", "--json").stdout)["built_now"] is False


def test_in_a_pipe_is_the_same_table(warren: Cli) -> None:
    heading, *rows = warren("image", "list").stdout.decode().splitlines()

    assert heading.split() == ["image", "built", "packages", "description"]
    assert [row.split()[0] for row in rows] == sorted(row.split()[0] for row in rows)


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


def test_doctor_in_a_pipe_is_lines_for_people(warren: Cli) -> None:
    shown = warren("doctor").stdout.decode()

    assert all(line.isprintable() for line in shown.splitlines())
    assert shown.startswith("host ")
    assert len([line for line in shown.splitlines() if line.startswith("seccomp ")]) == 1


def test_bench_times_a_fresh_sandbox_beside_a_cold_python(warren: Cli) -> None:
    measures = json.loads(warren("bench", "--rounds", "1", "--json").stdout)

    assert any(measure["name"].startswith("fresh sandbox") for measure in measures)
    assert any(measure["name"].startswith("cold Python") for measure in measures)
    assert all(measure["median_ms"] > 0 for measure in measures)
