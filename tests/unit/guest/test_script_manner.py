"""How a script can be run: what it is called, what it says of its end, where its figures go; and long commands."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from warren.guest.wire.claims import read_error

if TYPE_CHECKING:
    from pathlib import Path

    from unit.guest.agent_client import Client
    from unit.guest.forkserver_harness import ForkserverHarness


@pytest.mark.parametrize(
    ("source", "name", "value"),
    [
        ("1 / 0", "ZeroDivisionError", "division by zero"),
        ("import sys; sys.exit(3)", "SystemExit", "3"),
        ("import sys; sys.exit('bye')", "SystemExit", "bye"),
        ("class Odd(Exception): pass\nraise Odd('x: y')", "Odd", "x: y"),
        ("def broken(:", "SyntaxError", "invalid syntax (<user_code>, line 1)"),
        ("import json\njson.loads('{')", "JSONDecodeError", None),
    ],
)
def test_a_script_says_which_exception_ended_it(client: Client, source: str, name: str, value: str | None) -> None:
    result = client.run(source, kind="script", label="<user_code>")

    assert (result["cause"], result["error"]["name"]) == ("exited", name)
    assert value in {None, result["error"]["value"]}


@pytest.mark.parametrize(
    "source",
    [
        "print('ValueError: not really', file=__import__('sys').stderr)",
        "import os; os._exit(2)",
        "import sys; sys.exit(0)",
        "import os\nif not os.fork():\n    1 / 0\nos.wait()",
        "import os; os.close(3); os.dup2(2, 3); 1 / 0",
        "import os; os.pwrite(3, b'no JSON', 0); os._exit(1)",
        "import os; os.pwrite(3, b'[]', 0); os._exit(1)",
    ],
)
def test_what_no_exception_ended_says_of_none(client: Client, source: str) -> None:
    assert client.run(source, kind="script")["error"] is None


def test_a_file_that_a_script_has_in_place_of_its_claim_is_left_alone(client: Client) -> None:
    code = "import os\nos.close(3)\nkept = open('kept', 'w')\nassert kept.fileno() == 3\n1 / 0"
    result = client.run(code, kind="script")

    assert result["exit_code"] == 1
    assert client.run("cat kept", kind="shell")["stdout"] == ""


def test_programs_that_a_script_starts_do_not_inherit_its_claim(client: Client) -> None:
    code = "import subprocess\nprint(subprocess.run(['ls', '/proc/self/fd'], capture_output=True).stdout.split())"
    assert client.run(code, kind="script")["stdout"] == "[b'0', b'1', b'2', b'3']\n"
    assert "claim" not in client.run("ls -l /proc/self/fd", kind="shell")["stdout"]


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b'{"name": 1}', b"\xff", b"[" * 60_000])
def test_a_claim_that_is_none_is_passed_over(data: bytes) -> None:
    assert read_error(data) is None


def test_tracebacks_call_a_script_by_its_label(client: Client) -> None:
    code = "import traceback\ntry:\n    1 / 0\nexcept Exception:\n    traceback.print_exc()\nprint(__file__)"
    result = client.run(code, kind="script", label="<user_code>")

    assert result["stderr"].splitlines()[1:3] == ['  File "<user_code>", line 3, in <module>', "    1 / 0"]
    assert result["stdout"].endswith("main.py\n")


def test_of_two_scripts_that_want_one_name_one_has_it_until_its_end(client: Client) -> None:
    look = "import os; print(os.path.basename(__file__), flush=True); input(); print(os.path.exists(__file__))"
    with client.together():
        first = client.start_run(look, kind="script", file="twice.py", stdin=True)
        second = client.start_run("print(__file__)", kind="script", file="twice.py")
    client.wait_for(first, lambda reply: reply.output() == b"twice.py\n")
    elsewhere = client.wait(second).result
    client.send({"t": "data", "id": first}, b"\n")

    assert os.path.basename(elsewhere["stdout"].strip()) == "main.py"
    assert client.wait(first).result["stdout"] == "twice.py\nTrue\n"
    assert client.run("ls twice.py", kind="shell")["exit_code"] != 0


@pytest.mark.parametrize("label", ["x" * 65, "a\nb", "\x1b[1m", 5])
def test_a_label_that_is_none_is_refused(client: Client, label: object) -> None:
    end = client.call("run", b"1", kind="script", exec="exe_label", label=label)
    assert (end["t"], end["code"]) == ("err", "invalid_request")


@pytest.mark.parametrize(
    "wanted",
    [
        {"collect": "/etc"},
        {"collect": "/tmp/../etc"},
        {"collect": "/tmp/a/b"},
        {"figures": "/tmp/.."},
        {"scratch": ["/tmp"]},
        {"scratch": ["/tmp/a"] * 9},
        {"scratch": "/tmp/a"},
    ],
)
def test_a_folder_that_is_not_directly_in_tmp_is_refused(client: Client, wanted: dict[str, object]) -> None:
    end = client.call("run", b"true", kind="shell", exec="exe_folder", **wanted)
    assert (end["t"], end["code"]) == ("err", "invalid_request")


def test_where_tmp_is_shared_nothing_in_it_is_touched(client: Client, tmp_path: Path) -> None:
    folder = f"/tmp/warren-test-{os.urandom(6).hex()}"
    os.mkdir(folder)
    try:
        (tmp_path / "x").write_text("x")
        os.rename(tmp_path / "x", f"{folder}/x")
        result = client.run("true", kind="shell", scratch=[folder], collect=folder)
        assert result["collected"] == []
        assert os.listdir(folder) == ["x"]
        for op, more in (("scratch.read", {"folder": folder, "path": "x"}), ("scratch.empty", {"folders": [folder]})):
            assert client.call(op, b"", **more)["code"] == "unsupported"
    finally:
        os.unlink(f"{folder}/x")
        os.rmdir(folder)


def test_a_command_may_be_longer_than_an_argument(client: Client) -> None:
    command = f"# {'é' * 100_000}\necho one; f() {{ return 4; }}; f; exit $?"
    result = client.run(command, kind="shell")

    assert (result["stdout"], result["exit_code"], result["stderr"]) == ("one\n", 4, "")


def test_show_saves_every_open_figure_and_closes_it(forkserver: ForkserverHarness, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    folder = tmp_path / "figures"
    source = """
import matplotlib
matplotlib.use("agg")
import matplotlib.pyplot as plt
plt.plot([1, 2]); plt.figure(); plt.plot([2, 1])
plt.show()
print(plt.get_fignums())
from matplotlib.pyplot import show
plt.plot([3]); show(block=True)
plt.plot([4])
"""
    _, output, errors = forkserver.script(source, figures=str(folder))

    assert (output, errors) == ("[]\n", "")
    assert sorted(os.listdir(folder)) == ["figure_1.png", "figure_2.png", "figure_3.png"]
    assert all((folder / name).read_bytes().startswith(b"\x89PNG") for name in os.listdir(folder))


def test_without_a_folder_nothing_is_saved(forkserver: ForkserverHarness, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    _, _, errors = forkserver.script(
        "import matplotlib.pyplot as plt\nplt.plot([1])\nplt.show()\nprint(plt.show.__module__)"
    )

    assert "warren" not in errors
    assert os.listdir(tmp_path) == []
