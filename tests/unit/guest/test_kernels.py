"""Kernels under a real agent: state kept over crashes, and claims that are only claims."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import pytest

from unit.guest.agent_client import Client, RunningAgent, has_ended, running_agent, until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


TIMEOUT_MS = 2000
"""However busy the machine is, a cell has begun by then."""


@pytest.fixture
def client(agent: RunningAgent) -> Iterator[Client]:
    client = agent.connect()
    yield client
    for kernel in client.call("kernels")["kernels"]:
        client.call("kernel.delete", kernel=kernel["name"])
    client.close()


def _kernel(client: Client, name: str = "main") -> dict[str, Any]:
    return next(one for one in client.call("kernels")["kernels"] if one["name"] == name)


def _settle(client: Client, name: str = "main") -> None:
    """Wait until the checkpoint of the last cell is there."""
    until(lambda: bool(_kernel(client, name)["protected"]))


def test_variables_stay_between_cells_and_the_last_value_is_displayed(client: Client) -> None:
    client.run("x = 40")
    reply = client.wait(client.start_run("print('first'); x + 2"))

    kinds = [header["kind"] for header, _ in reply.events]
    assert kinds == ["stdout", "display", "result"]
    assert json.loads(reply.events[1][1])["data"]["text/plain"] == "42"
    result = reply.result
    assert (result["exit_code"], result["cause"], result["state"], result["hint"]) == (0, "exited", "kept", None)


def test_the_start_of_a_kernel_counts_as_time_of_its_first_cell(tmp_path: Path) -> None:
    """A kernel that starts for ever: the service would stop waiting, and end the sandbox of a healthy agent."""
    (tmp_path / "IPython.py").write_text("")
    (tmp_path / "sitecustomize.py").write_text("import time; time.sleep(3600)")
    with running_agent() as other:
        client = other.connect()
        client.call("configure", env={"PYTHONPATH": str(tmp_path)})
        waiting = client.start_run("1", timeout_ms=60_000)
        result = client.run("1", kernel="second", timeout_ms=100)
        assert (result["cause"], result["state"], result["limit"]) == ("timeout", "kept", 100)
        client.call("kernel.delete", kernel="main")
        assert client.wait(waiting).result["cause"] == "interrupted"
        client.close()


def test_an_exception_is_an_error_and_costs_nothing(client: Client) -> None:
    client.run("x = 1")
    result = client.run("import no_such_module")

    assert (result["exit_code"], result["cause"], result["state"]) == (1, "error", "kept")
    assert result["error"]["name"] == "ModuleNotFoundError"
    assert "no_such_module" in result["hint"]
    assert client.run("print(x)")["stdout"] == "1\n"


def test_leaving_by_sys_exit_has_its_code_and_keeps_the_kernel(client: Client) -> None:
    client.run("x = 1")
    result = client.run("import sys; sys.exit(4)")

    assert (result["exit_code"], result["cause"], result["state"]) == (4, "exited", "kept")
    assert client.run("print(x)")["stdout"] == "1\n"


def test_input_reads_what_is_streamed_or_ends(client: Client) -> None:
    stream = client.start_run("print(input() * 2)", stdin=True)
    client.send({"t": "data", "id": stream}, b"ab\n")
    client.send({"t": "eof", "id": stream})

    assert client.wait(stream).result["stdout"].endswith("abab\n")
    assert client.run("input()")["error"]["name"] == "EOFError"


def test_environment_and_folder_last_for_the_cell(agent: RunningAgent, client: Client) -> None:
    os.makedirs(os.path.join(agent.workspace, "sub"), exist_ok=True)
    code = "import os; print(os.getcwd(), os.environ.get('ONLY'))"
    first = client.run(code, cwd="sub", env={"ONLY": "now"})
    second = client.run(code)

    assert first["stdout"] == f"{agent.workspace}/sub now\n"
    assert second["stdout"] == f"{agent.workspace} None\n"
    assert client.call("run", b"1", exec="exe_nowhere", cwd="nowhere")["code"] == "invalid_request"


def test_a_timeout_interrupts_and_the_variables_of_the_cell_stay(client: Client) -> None:
    result = client.run("y = 7\nprint('partial')\nwhile True: pass", timeout_ms=TIMEOUT_MS)

    assert (result["cause"], result["state"], result["limit"]) == ("timeout", "kept", TIMEOUT_MS)
    assert result["stdout"] == "partial\n"
    assert client.run("print(y)")["stdout"] == "7\n"


def test_a_cell_that_ignores_the_interrupt_is_rolled_back(client: Client) -> None:
    client.run("x = 1")
    _settle(client)
    code = "x = 2\nprint('partial', flush=True)\nimport signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\n"
    result = client.run(code + "while True: pass", timeout_ms=TIMEOUT_MS, grace_ms=100)

    assert (result["cause"], result["state"], result["cells_back"]) == ("timeout", "rolled_back", 0)
    assert result["stdout"] == "partial\n"
    assert "files and child processes are not rolled back" in result["hint"]
    assert client.run("print(x)")["stdout"] == "1\n"


@pytest.mark.parametrize(
    ("code", "exit_code"),
    [
        ("import os; os._exit(3)", 3),
        ("import ctypes; ctypes.string_at(0)", -11),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", -9),
        ("import os; os.abort()", -6),
    ],
)
def test_a_crash_is_rolled_back_to_the_cell_before(client: Client, code: str, exit_code: int) -> None:
    client.run("x = [1]")
    _settle(client)
    for _ in range(2):
        result = client.run(f"x.append(2); print('partial', flush=True); {code}")

        assert (result["cause"], result["state"], result["exit_code"]) == ("killed", "rolled_back", exit_code)
        assert result["protected"]
        assert result["stdout"] == "partial\n"
        assert client.run("print(x)")["stdout"] == "[1]\n"
        _settle(client)


def test_a_crash_in_the_first_cell_loses_nothing(client: Client) -> None:
    result = client.run("import os; os._exit(1)")

    assert (result["state"], result["protected"]) == ("rolled_back", True)
    assert client.run("print('again')")["stdout"] == "again\n"


def test_a_cell_that_asks_for_no_checkpoint_gets_none(client: Client) -> None:
    client.run("x = 1")
    until(lambda: client.call("kernels")["kernels"][0]["checkpoints"] == 1)
    client.run("x = 2", checkpoint=False)
    result = client.run("import os; os._exit(1)", checkpoint=False)

    assert (result["state"], result["cells_back"], result["protected"]) == ("rolled_back", 1, False)
    assert client.run("print(x)")["stdout"] == "1\n"


def test_without_checkpoints_a_crash_loses_the_variables_and_says_so() -> None:
    with running_agent(limits={"checkpoints": 0, "checkpoint_bytes": 1 << 20}) as agent:
        client = agent.connect()
        client.run("x = 1")
        result = client.run("import os; os._exit(1)")
        after = client.run("print('x' in globals())")
        client.close()

    assert (result["state"], result["protected"]) == ("lost", False)
    assert result["why_unprotected"] == "checkpoints are off"
    assert "run the cells that made them again" in result["hint"]
    assert after["stdout"] == "False\n"


def test_a_kernel_with_threads_is_not_protected_and_says_why(client: Client) -> None:
    client.run("a = 1")
    _settle(client)
    client.run("import threading; stop = threading.Event(); threading.Thread(target=stop.wait, daemon=True).start()")
    result = client.run("b = 2")

    assert not result["protected"]
    assert "threads" in result["why_unprotected"]
    crashed = client.run("import os; os._exit(1)")
    assert (crashed["state"], crashed["cells_back"]) == ("rolled_back", 2)
    assert client.run("print(a, 'b' in globals())")["stdout"] == "1 False\n"


def test_a_kernel_that_dies_between_cells_is_replaced_and_the_next_result_says_so(client: Client) -> None:
    client.run("x = 5; import os; pid = os.getpid()")
    _settle(client)
    pid = int(client.run("print(pid)")["stdout"])
    _settle(client)
    os.kill(pid, 9)
    until(lambda: has_ended(pid))
    result = client.run("print(x)")

    assert result["stdout"] == "5\n"
    assert result["state"] == "kept"
    assert any("died between calls (signal 9)" in note for note in result["notes"])


def test_interrupt_and_kill_of_a_cell(client: Client) -> None:
    client.run("x = 1")
    _settle(client)
    stream = client.start_run("x = 2; print('up', flush=True)\nwhile True: pass", exec="exe_int")
    client.wait_for(stream, lambda reply: reply.output() == b"up\n")
    client.call("interrupt", exec="exe_int")
    assert client.wait(stream).result["cause"] == "interrupted"
    _settle(client)

    stream = client.start_run("x = 3; print('up', flush=True)\nwhile True: pass", exec="exe_kil")
    client.wait_for(stream, lambda reply: reply.output() == b"up\n")
    client.call("kill", exec="exe_kil")
    result = client.wait(stream).result
    assert (result["cause"], result["state"]) == ("killed", "rolled_back")
    assert client.run("print(x)")["stdout"] == "2\n"


def test_cells_wait_in_line_and_a_waiting_one_can_be_interrupted(client: Client) -> None:
    busy = client.start_run("order = ['a']; input()", stdin=True)
    waiting = [client.start_run(f"order.append({number})", exec=f"exe_line{number}") for number in range(16)]
    assert client.call("run", b"1", exec="exe_line_full")["code"] == "conflict"
    client.call("interrupt", exec="exe_line3")
    client.call("kill", exec="exe_line4")

    assert client.wait(waiting[3]).result["cause"] == "interrupted"
    assert client.wait(waiting[4]).result["cause"] == "killed"
    client.send({"t": "data", "id": busy}, b"\n")
    assert client.run("print(order)")["stdout"] == str(["a", 0, 1, 2, *range(5, 16)]) + "\n"


def test_what_a_cell_leaves_running_never_writes_into_a_later_result(client: Client) -> None:
    code = "import subprocess; p = subprocess.Popen(['bash', '-c', 'while true; do echo ghost; done'])"
    client.run(code)
    result = client.run("print('clean')")
    client.run("p.kill(); p.wait()")

    assert result["stdout"] == "clean\n"


def test_children_of_a_killed_kernel_are_killed(client: Client) -> None:
    client.run("x = 1")
    _settle(client)
    code = "import subprocess, os; print(subprocess.Popen(['sleep', '1000']).pid, flush=True); os._exit(1)"
    result = client.run(code)

    until(lambda: has_ended(int(result["stdout"])))


def test_processor_time_is_counted_for_the_cell_and_its_children(client: Client) -> None:
    client.run("import time, subprocess, sys")
    own = client.run("t = time.process_time()\nwhile time.process_time() - t < 0.2: pass")
    code = "import time\nwhile time.process_time() < 0.2: pass"
    children = client.run(f"subprocess.run([sys.executable, '-c', {code!r}])")

    assert own["cpu_ms"] >= 190
    assert children["cpu_ms"] >= 150
    # What came before is not counted again; the least of several, because a busy machine makes any one of them dear.
    assert min(client.run("pass")["cpu_ms"] for _ in range(10)) < own["cpu_ms"]


def test_restart_forgets_and_ends_a_running_cell(client: Client) -> None:
    client.run("x = 1")
    stream = client.start_run("print('up', flush=True)\nwhile True: pass")
    client.wait_for(stream, lambda reply: reply.output() == b"up\n")

    assert client.call("kernel.restart", kernel="main")["t"] == "ok"
    result = client.wait(stream).result
    assert (result["cause"], result["state"]) == ("interrupted", "lost")
    assert client.run("print('x' in globals())")["stdout"] == "False\n"
    assert client.call("kernel.restart", kernel="none")["code"] == "not_found"


def test_several_kernels_have_their_own_variables(client: Client) -> None:
    assert client.call("kernel.create", kernel="other")["t"] == "ok"
    assert client.call("kernel.create", kernel="other")["code"] == "conflict"
    client.run("x = 'main'")
    client.run("x = 'other'", kernel="other")

    assert client.run("print(x)")["stdout"] == "main\n"
    assert client.run("print(x)", kernel="other")["stdout"] == "other\n"
    assert client.call("kernel.delete", kernel="other")["t"] == "ok"
    assert [one["name"] for one in client.call("kernels")["kernels"]] == ["main"]


def test_there_are_at_most_sixteen_kernels(client: Client) -> None:
    answers = [client.call("kernel.create", kernel=f"k{number}") for number in range(17)]

    assert [answer["t"] for answer in answers] == ["ok"] * 16 + ["err"]
    assert answers[-1]["code"] == "conflict"


def test_a_fork_has_all_variables_and_goes_its_own_way(client: Client) -> None:
    client.run("x = [1]; import random; random.seed(1)")
    assert client.call("kernel.fork", kernel="main", to="twin")["t"] == "ok"
    client.run("x.append(2)")
    client.run("x.append(3)", kernel="twin")

    assert client.run("print(x)")["stdout"] == "[1, 2]\n"
    assert client.run("print(x)", kernel="twin")["stdout"] == "[1, 3]\n"
    _settle(client, "twin")
    assert client.run("import os; os._exit(1)", kernel="twin")["state"] == "rolled_back"
    assert client.run("print(x)", kernel="twin")["stdout"] == "[1, 3]\n"


def test_a_fork_that_cannot_be_made_is_refused_with_the_reason(client: Client) -> None:
    client.run("import threading; stop = threading.Event(); threading.Thread(target=stop.wait, daemon=True).start()")
    threads = client.call("kernel.fork", kernel="main", to="twin")

    assert threads["code"] == "conflict"
    assert "threads" in threads["message"]
    assert client.call("kernel.fork", kernel="none", to="twin")["code"] == "not_found"
    assert client.call("kernel.fork", kernel="main", to="main")["code"] == "conflict"
    assert [one["name"] for one in client.call("kernels")["kernels"]] == ["main"]


def test_rollback_undoes_the_last_cell_and_no_more_than_there_are_checkpoints(client: Client) -> None:
    for number in range(3):
        client.run(f"x = {number}")
        _settle(client)

    assert client.call("kernel.rollback", kernel="main")["cells_back"] == 1
    assert client.run("print(x)")["stdout"] == "1\n"
    refused = client.call("kernel.rollback", kernel="main", cells=2)
    assert refused["code"] == "conflict"


def test_rollback_reaches_as_far_back_as_was_chosen() -> None:
    with running_agent(limits={"checkpoints": 4, "checkpoint_bytes": 64 << 20}) as agent:
        client = agent.connect()
        for number in range(6):
            client.run(f"x = {number}")
            _settle(client)
        assert client.call("kernel.rollback", kernel="main", cells=4)["cells_back"] == 4
        assert client.run("print(x)")["stdout"] == "1\n"
        assert _kernel(client)["executed"] == 3
        client.close()


def test_rolling_back_the_first_cell_leaves_a_new_kernel(client: Client) -> None:
    client.run("x = 1")

    assert client.call("kernel.rollback", kernel="main")["cells_back"] == 1
    assert client.run("print('x' in globals())")["stdout"] == "False\n"


def test_deleting_a_busy_kernel_ends_what_runs_and_what_waits(client: Client) -> None:
    running = client.start_run("print('up', flush=True)\nwhile True: pass")
    client.wait_for(running, lambda reply: reply.output() == b"up\n")
    waiting = client.start_run("print('never')")
    client.call("kernel.delete", kernel="main")

    assert client.wait(running).result["state"] == "lost"
    assert client.wait(waiting).result["cause"] == "interrupted"
    assert client.run("print('new')")["stdout"] == "new\n"


def test_when_the_forkserver_is_killed_another_takes_its_place(agent: RunningAgent, client: Client) -> None:
    kernel = int(client.run("import os\nx = 1\nprint(os.getpid())")["stdout"])
    with open(f"/proc/{agent.process.pid}/task/{agent.process.pid}/children") as file:
        # The first forkserver became the kernel and left a successor; copies of the kernel are younger.
        forkserver = next(int(child) for child in file.read().split() if int(child) != kernel)
    os.kill(forkserver, 9)
    until(lambda: has_ended(forkserver))

    assert client.run("print(2)", kernel="fresh")["stdout"] == "2\n"
    assert client.run("print(3)", kind="script")["stdout"] == "3\n"
    assert client.run("print(x)")["stdout"] == "1\n"


def test_endless_output_of_a_cell_is_stopped_and_its_variables_stay(client: Client) -> None:
    client.run("x = 1")
    result = client.run("x = 2\nwhile True: print('y' * 1000)", output_max_bytes=1 << 20, output_bytes=2000)

    assert (result["cause"], result["state"]) == ("output", "kept")
    assert client.run("print(x)")["stdout"] == "2\n"
