"""Terminals of a real service: they outlive it, end with their key, and cost nothing when they are unread."""

from __future__ import annotations

import re
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from api.terminal_client import open_terminal
from e2e.serving import create, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

    import httpx

    from e2e.serving import RunningService

COUNT = "command=stty+-echo%3B+echo+pid+%24%24%3B+while+read+line%3B+do+echo+got+%24line%3B+done"
"""Says its process number, and then repeats what it is told."""


@pytest.fixture(params=["bare", "local"])
def service(request: pytest.FixtureRequest, serve: Callable[..., RunningService]) -> RunningService:
    return serve(request.param, serve_drain_s=600).start()


def test_a_terminal_outlives_a_service_that_is_killed(service: RunningService) -> None:
    with service.client() as client:
        sandbox = create(client)
    with open_terminal(service.port, sandbox, "kept", key=service.key, query=COUNT) as terminal:
        terminal.wait_for("pid ")
        terminal.type("one\n")
        terminal.wait_for("got one\r\n")
        service.kill()
        assert terminal.wait_end()[0] == 1006
    service.start()
    with open_terminal(service.port, sandbox, "kept", key=service.key) as again:
        shown = again.wait_for("got one\r\n")
        again.type("two\n")
        again.wait_for("got two")
        assert not again.ready["created"]
        assert shown == bytes(terminal.shown)
    with service.client() as client:
        client.delete(f"/sandboxes/{sandbox}")


def test_a_service_that_is_stopped_sends_its_terminals_away_at_once_and_they_come_back(
    service: RunningService,
) -> None:
    with service.client() as client:
        sandbox = create(client)
    with open_terminal(service.port, sandbox, "kept", key=service.key, query=COUNT) as terminal:
        terminal.wait_for("pid ")
        # It does not wait for them as it waits for requests, which is longer than anybody waits here.
        assert service.stop() == 0
        assert terminal.wait_end() == (1012, "the service stops: connect again in a moment")
    service.start()
    with open_terminal(service.port, sandbox, "kept", key=service.key) as again:
        again.type("still there\n")
        again.wait_for("got still there")
    with service.client() as client:
        rows = client.get("/audit", params={"action": "terminal.close"}).json()["items"]
        client.delete(f"/sandboxes/{sandbox}")

    assert rows[-1]["outcome"] == "ok"


def test_a_key_that_is_revoked_while_it_is_attached_ends_it(service: RunningService) -> None:
    made = service.run("keys", "create", "brief", "--json")
    secret = re.search(r"wrn_[\w-]+", made.stdout)
    assert secret is not None
    with service.client() as client:
        client.headers["Authorization"] = f"Bearer {secret[0]}"
        sandbox = create(client)
        with open_terminal(service.port, sandbox, key=secret[0], query=COUNT) as terminal:
            terminal.wait_for("pid ")
            assert service.run("keys", "revoke", "brief").returncode == 0
            code, reason = terminal.wait_end()
    with service.client() as client:
        assert client.delete(f"/sandboxes/{sandbox}").status_code == 204

    assert code == 4401
    assert "key" in reason


def test_clients_that_never_read_cost_no_memory_and_delay_no_other(service: RunningService) -> None:
    with service.client() as client, ExitStack() as deaf:
        sandbox = create(client)
        with open_terminal(service.port, sandbox, "flood", key=service.key, query="command=exec+yes") as terminal:
            terminal.wait_for("y\r\n", times=100_000)
            before = _memory(service.pid)
            for _ in range(30):
                client_of = open_terminal(service.port, sandbox, "flood", key=service.key, max_queue=1)
                deaf.callback(deaf.enter_context(client_of).cut)
            with open_terminal(service.port, sandbox, "other", key=service.key, query=COUNT) as other:
                for number in range(50):
                    other.type(f"{number}.\n")
                    other.wait_for(f"got {number}.")
                    terminal.wait_for("y\r\n", times=10_000)
                    terminal.shown.clear()
            after = _memory(service.pid)
            terminal.say("close")
            terminal.wait_end()
        client.delete(f"/sandboxes/{sandbox}")

    assert after - before < 24 << 20


def test_an_attached_terminal_keeps_its_sandbox_and_a_left_one_does_not(service: RunningService) -> None:
    with service.client() as client:
        sandbox, other = create(client, idle_timeout_seconds=2), create(client, idle_timeout_seconds=2)
        with open_terminal(service.port, sandbox, key=service.key, query=COUNT) as terminal:
            terminal.wait_for("pid ")
            wait_until(lambda: _status(client, other) == "stopped", "the other to be stopped")
            client.post(f"/sandboxes/{other}/start")
            wait_until(lambda: _status(client, other) == "stopped", "it to be stopped again")
            assert _status(client, sandbox) == "running"
            terminal.type("still here\n")
            terminal.wait_for("got still here")
        wait_until(lambda: _status(client, sandbox) == "stopped", "it to be stopped too")
        for each in (sandbox, other):
            client.delete(f"/sandboxes/{each}")


def _status(client: httpx.Client, sandbox: str) -> str:
    return str(client.get(f"/sandboxes/{sandbox}").json()["status"])


def _memory(pid: int) -> int:
    with open(f"/proc/{pid}/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * 4096
