"""A process behind the service is killed while calls run: others notice nothing, and the one hit is told why."""

from __future__ import annotations

import os
import signal
import threading
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from e2e.serving import DEADLINE_S, create, is_problem, read_events, run_code, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from e2e.serving import RunningService

WAIT = "import os, time\nopen('begun', 'w')\nwhile not os.path.exists('go'): time.sleep(0.01)\nprint('done')"


@pytest.fixture
def service(serve: Callable[..., RunningService]) -> RunningService:
    return serve().start()


@pytest.fixture
def client(service: RunningService) -> Iterator[httpx.Client]:
    with service.client() as client:
        yield client


class Call:
    """A call in a thread of its own, which has begun to run once this is made."""

    def __init__(self, service: RunningService, sandbox: str, **body: Any) -> None:
        self._service = service
        self._sandbox = sandbox
        self._body = body or {"code": WAIT}
        self._answer: list[httpx.Response | BaseException] = []
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        with service.client() as client:
            wait_until(lambda: client.head(f"/sandboxes/{sandbox}/files/begun").status_code == 200, "a call to run")

    def answer(self) -> httpx.Response:
        self._thread.join(DEADLINE_S)
        (answer,) = self._answer
        assert isinstance(answer, httpx.Response), answer
        return answer

    def finish(self) -> httpx.Response:
        with self._service.client() as client:
            client.put(f"/sandboxes/{self._sandbox}/files/go", content=b"").raise_for_status()
        return self.answer()

    def _run(self) -> None:
        try:
            with self._service.client() as client:
                self._answer.append(client.post(f"/sandboxes/{self._sandbox}/exec", json=self._body))
        except BaseException as error:  # noqa: BLE001 - the caller that waits for the answer raises it
            self._answer.append(error)


def test_a_killed_keeper_costs_no_call_and_creating_works_again(service: RunningService, client: httpx.Client) -> None:
    sandbox = create(client)
    run_code(client, sandbox, "x = 41")
    call = Call(service, sandbox)
    before = service.keeper_pid()
    os.kill(before, signal.SIGKILL)
    other = create(client)

    assert run_code(client, other, "print(1)")["stdout"] == "1\n"
    assert call.finish().json()["stdout"] == "done\n"
    assert run_code(client, sandbox, "print(x + 1)")["stdout"] == "42\n"
    assert client.post(f"/sandboxes/{sandbox}/stop").json()["status"] == "stopped"
    assert client.post(f"/sandboxes/{sandbox}/start").json()["status"] == "running"
    assert client.get(f"/sandboxes/{other}/usage").json()["pids"]
    assert service.keeper_pid() != before
    assert service.probe("/readyz").status_code == 200
    service.check_books()


def test_a_killed_zygote_is_replaced_and_its_sandboxes_live_on(service: RunningService, client: httpx.Client) -> None:
    sandbox = create(client)
    run_code(client, sandbox, "x = 41")
    call = Call(service, sandbox)
    before = service.zygote_pids()
    for pid in before:
        os.kill(pid, signal.SIGKILL)
    others = [create(client), create(client, storage="ephemeral")]

    assert [run_code(client, other, "print(2)")["stdout"] for other in others] == ["2\n", "2\n"]
    assert call.finish().json()["stdout"] == "done\n"
    assert run_code(client, sandbox, "print(x + 1)")["stdout"] == "42\n"
    assert set(service.zygote_pids()).isdisjoint(before)
    service.check_books()


def test_keeper_and_zygote_killed_together_are_both_replaced(service: RunningService, client: httpx.Client) -> None:
    sandbox = create(client)
    run_code(client, sandbox, "x = 41")
    for pid in (service.keeper_pid(), *service.zygote_pids()):
        os.kill(pid, signal.SIGKILL)
    other = create(client)

    assert run_code(client, other, "print(2)")["stdout"] == "2\n"
    assert run_code(client, sandbox, "print(x + 1)")["stdout"] == "42\n"
    service.check_books()


def test_a_killed_agent_costs_its_own_calls_only_and_its_files_are_there_again(
    service: RunningService, client: httpx.Client
) -> None:
    sandbox, other = create(client), create(client)
    run_code(client, sandbox, "x = 41\nopen('kept', 'w').write('yes')")
    run_code(client, other, "x = 41")
    started = run_code(
        client, sandbox, "import time\nprint('said', flush=True)\ntime.sleep(60)", background=True, kernel="b"
    )
    followed = iter(read_events(client, sandbox, started["execution_id"]))
    assert [next(followed)[0], next(followed)[0]] == ["started", "stdout"]
    call, bystander = Call(service, sandbox), Call(service, other)
    os.kill(service.sandbox_pid(sandbox), signal.SIGKILL)
    answer = call.answer()
    again = run_code(client, sandbox, "print(open('kept').read(), 'x' in globals())")
    (*_, (name, ended)) = followed

    assert answer.status_code == 200
    assert answer.json()["cause"] == "lost"
    assert "How it ended is not known" in answer.json()["hint"]
    assert again["stdout"] == "yes False\n"
    assert (name, ended["cause"], ended["stdout"]) == ("result", "lost", "said\n")
    assert bystander.finish().json()["stdout"] == "done\n"
    assert run_code(client, other, "print(x + 1)")["stdout"] == "42\n"
    assert _lost_entries(client, sandbox) == 1
    service.check_books()


def test_an_ephemeral_sandbox_whose_agent_is_killed_is_gone_and_says_so(
    service: RunningService, client: httpx.Client
) -> None:
    sandbox = create(client, storage="ephemeral")
    call = Call(service, sandbox)
    os.kill(service.sandbox_pid(sandbox), signal.SIGKILL)
    answer = call.answer()
    later = client.post(f"/sandboxes/{sandbox}/exec", json={"code": "1"})

    assert answer.json()["cause"] == "lost"
    assert later.status_code in {404, 502}
    assert is_problem(later)
    wait_until(lambda: sandbox not in service.rows(), "the record to go")
    assert _lost_entries(client, sandbox) == 1
    service.check_books()


def test_all_processes_of_a_sandbox_killed_at_once_cost_only_that_sandbox(
    service: RunningService, client: httpx.Client
) -> None:
    sandbox, other = create(client), create(client)
    client.put(f"/sandboxes/{sandbox}/files/kept", content=b"yes").raise_for_status()
    call = Call(service, sandbox, command="sleep 60 & touch begun; sleep 60")
    pids = _processes_of(service, sandbox)
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    for pid in reversed(pids):
        os.kill(pid, signal.SIGKILL)

    assert len(pids) > 2
    assert call.answer().json()["cause"] == "lost"
    assert run_code(client, other, "print(1)")["stdout"] == "1\n"
    assert client.get(f"/sandboxes/{sandbox}/files/kept").content == b"yes"
    service.check_books()


def test_a_sandbox_that_dies_during_an_upload_says_so_and_keeps_what_it_had(
    service: RunningService, client: httpx.Client
) -> None:
    sandbox = create(client)
    client.put(f"/sandboxes/{sandbox}/files/kept", content=b"old").raise_for_status()

    def pieces() -> Iterator[bytes]:
        yield b"new" * 100_000
        # Not before it is being written: an upload that had not come so far would go to the sandbox that is resumed.
        wait_until(lambda: _names(client, sandbox) > 1, "the upload to begin")
        os.kill(service.sandbox_pid(sandbox), signal.SIGKILL)
        wait_until(lambda: client.get(f"/sandboxes/{sandbox}").json()["status"] != "running", "the loss to be noticed")
        yield b"new" * 100_000

    with service.client() as uploading:
        answer = uploading.put(f"/sandboxes/{sandbox}/files/kept", content=pieces())

    assert answer.status_code == 502
    assert is_problem(answer)
    assert client.get(f"/sandboxes/{sandbox}/files/kept").content == b"old"


def test_the_pool_replaces_what_dies_in_it(serve: Callable[..., RunningService]) -> None:
    service = serve(pool_size=1).start()
    waiting = wait_until(lambda: len(found := service.handles()) == 2 and found, "the pool to be full")
    for sandbox in waiting:
        os.kill(service.sandbox_pid(sandbox), signal.SIGKILL)
    with service.client() as client:
        made = [create(client), create(client, storage="ephemeral")]

        assert [run_code(client, sandbox, "print(3)")["stdout"] for sandbox in made] == ["3\n", "3\n"]
    wait_until(lambda: service.handles().isdisjoint(waiting), "the dead to be removed")
    service.check_books(pooled=2)


def _names(client: httpx.Client, sandbox: str) -> int:
    """Count the files of a workspace, the agent's own included."""
    return len(client.post(f"/sandboxes/{sandbox}/exec", json={"command": "ls -A"}).json()["stdout"].split())


def _lost_entries(client: httpx.Client, sandbox: str) -> int:
    found = client.get("/audit", params={"sandbox_id": sandbox, "action": "sandbox.lost"})
    return int(found.json()["total"])


def _processes_of(service: RunningService, sandbox: str) -> list[int]:
    """Find the processes of a sandbox, its first one first: those in the process namespace that that one began."""
    first = service.sandbox_pid(sandbox)
    found = []
    for pid in map(int, filter(str.isdigit, os.listdir("/proc"))):
        try:
            if os.stat(f"/proc/{pid}/ns/pid").st_ino == os.stat(f"/proc/{first}/ns/pid").st_ino:
                found.append(pid)
        except OSError:
            continue
    return sorted(found)
