"""User code that speaks for its kernel: at worst that kernel is lost, and never is a fact forged."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import pytest

from unit.guest.agent_client import Client, RunningAgent, until

if TYPE_CHECKING:
    from collections.abc import Iterator

PREPARE = """
import array, json, os, socket, struct
def frame(payload=b"", **header):
    head = json.dumps(header).encode()
    return struct.pack(">II", len(head), len(payload)) + head + payload
def send(data, fds=()):
    control = socket.socket(fileno=os.dup(3))
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
    control.sendmsg([data], rights)
    control.close()
me = lambda: os.environ["WARREN_EXECUTION"]
saved = "kept"
"""


@pytest.fixture
def client(agent: RunningAgent) -> Iterator[Client]:
    client = agent.connect()
    client.run("other = 1", kernel="sibling")
    client.run(PREPARE)
    until(lambda: all(one["protected"] for one in client.call("kernels")["kernels"]))
    yield client
    assert client.run("print(other)", kernel="sibling")["stdout"] == "1\n"
    for kernel in client.call("kernels")["kernels"]:
        client.call("kernel.delete", kernel=kernel["name"])
    client.close()


@pytest.mark.parametrize(
    "attack",
    [
        "send(bytes(range(256)) * 20)",
        "send(struct.pack('>II', 0xffffffff, 0xffffffff))",
        "send(struct.pack('>II', 2, 0) + b'[]')",
        "send(frame(t='done', exec=me(), status='fine'))",
        "send(frame(t='done', exec=7, status='ok'))",
        "send(frame(t='done', exec=me(), status='exit', exit_code='no'))",
        "send(frame(t='done', exec=me(), status='exit', exit_code=1 << 70))",
        "send(frame(t='done', exec=me(), status='error', error=['x']))",
        "send(frame(t='done', exec=me(), status='error', error={'name': 5}))",
        "send(frame(t='display', exec=me(), display='what', payload=b'{}'))",
        "send(frame(b'not json', t='display', exec=me(), display='display'))",
        "send(frame(b'[' * 100000, t='display', exec=me(), display='display'))",
        "send(frame(b'[1]', t='display', exec=me(), display='display'))",
        "send(frame(b'{\"data\": {\"text/plain\": 5}}', t='display', exec=me(), display='display'))",
        "send(frame(t='frozen', exec=me(), pid='one', private_bytes=1))",
        "send(frame(t='frozen', exec=me(), pid=-1, private_bytes=1))",
        "send(frame(t='frozen', exec=me(), pid=True, private_bytes=1))",
        "send(frame(t='unprotected', exec=me()))",
        "send(frame(t='cell', exec=me()))",
        "send(frame(t='hello', exec=me()))",
        "for _ in range(3): send(frame(t='up'), [0, 1, 2])",
        "os.close(3)",
        "os.dup2(os.open('/dev/null', os.O_RDWR), 3)",
    ],
)
def test_a_malformed_claim_ends_that_kernel_only_and_its_checkpoint_takes_over(client: Client, attack: str) -> None:
    result = client.run(f"saved = 'changed'\n{attack}\nwhile True: pass", timeout_ms=20_000)

    assert result["cause"] == "killed"
    assert result["state"] == "rolled_back"
    assert "control socket" in result["hint"]
    assert client.run("print(saved)")["stdout"] == "kept\n"


def test_half_a_frame_holds_up_that_cell_until_its_timeout(client: Client) -> None:
    result = client.run("send(struct.pack('>II', 1000, 0) + b'{')", timeout_ms=2000, grace_ms=200)

    assert result["cause"] in ("timeout", "killed")
    assert result["state"] == "rolled_back"
    assert client.run("print(saved)")["stdout"] == "kept\n"


def test_a_finished_claim_for_another_execution_is_dropped(client: Client) -> None:
    stream = client.start_run("print('up', flush=True); input(); print('real')", exec="exe_victim", stdin=True)
    client.wait_for(stream, lambda reply: reply.output() == b"up\n")
    forging = "send(frame(t='done', exec='exe_victim', status='error', error=None)); print('mine')"
    client.run(PREPARE, kernel="attacker")
    mine = client.run(forging, kernel="attacker")
    client.send({"t": "data", "id": stream}, b"\n")

    assert mine["stdout"] == "mine\n"
    result = client.wait(stream).result
    assert (result["exit_code"], result["stdout"]) == (0, "up\nreal\n")


def test_a_forged_finish_never_answers_the_next_call(client: Client) -> None:
    first = client.run("send(frame(t='done', exec=me(), status='ok', error=None)); import time; time.sleep(0.3)")
    second = client.run("print('second')")

    assert first["cause"] == "exited"
    assert second["stdout"] == "second\n"
    assert second["exec"] != first["exec"]


def test_a_display_for_another_execution_is_dropped(client: Client) -> None:
    forged = "send(frame(b'{\"data\": {\"text/plain\": \"forged\"}}', t='display', exec='exe_x', display='display'))"
    reply = client.wait(client.start_run(forged))

    assert [header["kind"] for header, _ in reply.events] == ["result"]
    assert reply.result["cause"] == "exited"


def test_displays_are_bounded_and_the_result_says_so(client: Client) -> None:
    code = "bundle = json.dumps({'data': {'text/plain': 'x' * 3_000_000}}).encode()\nfor _ in range(8):\n"
    code += "    control = socket.socket(fileno=os.dup(3))\n"
    code += "    control.sendall(frame(bundle, t='display', exec=me(), display='display')); control.close()"
    reply = client.wait(client.start_run(code))

    assert sum(len(payload) for header, payload in reply.events if header["kind"] == "display") <= 16 << 20
    assert any("dropped" in note for note in reply.result["notes"])


@pytest.mark.parametrize("pid", ["1", "os.getppid()", "os.getpid()", "stranger", "4194304", "1 << 40"])
def test_a_frozen_copy_that_is_a_stranger_is_not_believed(client: Client, pid: str) -> None:
    """Dropping a copy kills its process: a claim must not be able to name whose."""
    stranger = int(client.run("sleep 1000 & echo $!", kind="shell")["stdout"])
    code = (
        f"stranger = {stranger}\nexecution = me()\na, b = socket.socketpair()\n"
        "def later():\n"
        "    import time; time.sleep(0.05)\n"
        f"    send(frame(t='frozen', exec=execution, pid={pid}, private_bytes=0), [a.fileno()])\n"
        "import threading; t = threading.Thread(target=later); t.start()"
    )
    client.run(code)
    client.run("t.join()")
    for _ in range(4):
        client.run("pass")
    client.run("import os; os._exit(1)")

    assert client.run("print(1)")["stdout"] == "1\n"
    assert client.run(f"kill -0 {stranger}; kill -9 {stranger}", kind="shell")["exit_code"] == 0


@pytest.mark.parametrize("fd", ["os.open('/dev/null', os.O_RDWR)", "os.pipe()[0]", "3"])
def test_a_frozen_copy_behind_something_that_is_no_socket_of_its_own_is_survived(client: Client, fd: str) -> None:
    code = (
        f"execution, fd = me(), {fd}\n"
        "def later():\n"
        "    import time; time.sleep(0.05)\n"
        "    child = os.fork()\n"
        "    if child == 0:\n"
        "        os.setsid(); grandchild = os.fork()\n"
        "        if grandchild: os.write(w, str(grandchild).encode()); os._exit(0)\n"
        "        os.close(held); os.read(hold, 1); os._exit(0)\n"
        "    os.waitpid(child, 0)\n"
        "    send(frame(t='frozen', exec=execution, pid=int(os.read(r, 16)), private_bytes=0), [fd])\n"
        "r, w = os.pipe()\nhold, held = os.pipe()\nimport threading; t = threading.Thread(target=later); t.start()"
    )
    client.run(code)
    client.run("t.join()")
    crashed = client.run("os._exit(1)", timeout_ms=20_000)

    assert crashed["cause"] == "killed"
    assert client.run("print(1)", timeout_ms=20_000)["stdout"] == "1\n"


@pytest.mark.parametrize(("number", "cells_back", "saved"), [(signal.SIGSTOP, 0, "newer"), (signal.SIGKILL, 1, "kept")])
def test_a_stopped_copy_takes_over_and_a_dead_one_gives_way_to_an_older_one(
    agent: RunningAgent, client: Client, number: int, cells_back: int, saved: str
) -> None:
    client.run("saved = 'newer'")
    until(lambda: all(one["protected"] for one in client.call("kernels")["kernels"]))
    with open(f"/proc/{agent.process.pid}/task/{agent.process.pid}/children") as file:
        newest = int(file.read().split()[-1])
    os.kill(newest, number)
    result = client.run("os._exit(1)")

    assert (result["state"], result["cells_back"]) == ("rolled_back", cells_back)
    assert client.run("print(saved)")["stdout"] == f"{saved}\n"


def test_a_kernel_that_floods_its_socket_blocks_no_other(client: Client) -> None:
    stream = client.start_run("while True: send(frame(t='done', exec='exe_none', status='ok') * 200)", exec="exe_flood")
    for number in range(20):
        assert client.run(f"print({number})", kernel="sibling")["stdout"] == f"{number}\n"
    client.call("kill", exec="exe_flood")

    assert client.wait(stream).result["cause"] == "killed"


def test_descriptors_that_are_sent_unasked_do_not_pile_up(agent: RunningAgent, client: Client) -> None:
    def open_now() -> int:
        with open(f"/proc/{agent.process.pid}/status") as status:
            return int(next(line for line in status if line.startswith("FDSize")).split()[1])

    before = open_now()
    for _ in range(5):
        client.run("for _ in range(40): send(frame(t='up'), [0, 1, 2])\nwhile True: pass", timeout_ms=20_000)

    assert open_now() <= before


def test_user_code_cannot_reach_the_agents_descriptors(client: Client) -> None:
    code = (
        "import glob\n"
        "for path in glob.glob('/proc/self/fd/*'):\n"
        "    try: print(os.readlink(path))\n"
        "    except OSError: pass\n"
    )
    links = client.run(code)["stdout"].split()

    assert sum(link.startswith("socket:") for link in links) == 1
