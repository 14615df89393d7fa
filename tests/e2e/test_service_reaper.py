"""What ends by itself, through the real service: idle sandboxes stop, expired and forgotten ones go."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from e2e.serving import create, run_code, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import httpx

    from e2e.serving import RunningService


@pytest.fixture(params=["bare", "local"])
def service(request: pytest.FixtureRequest, serve: Callable[..., RunningService]) -> RunningService:
    return serve(request.param, life_stopped_lifetime_s=5).start()


@pytest.fixture
def client(service: RunningService) -> Iterator[httpx.Client]:
    with service.client() as client:
        yield client


def test_each_sandbox_ends_when_it_is_due_and_not_before(service: RunningService, client: httpx.Client) -> None:
    busy = create(client, idle_timeout_seconds=0.5)
    running = run_code(client, busy, _WAIT, background=True)["execution_id"]
    idle = create(client, idle_timeout_seconds=2)
    run_code(client, idle, "x = 1\nopen('kept', 'w').write('yes')")
    short = create(client, storage="ephemeral", idle_timeout_seconds=0.5)
    expiring = create(client, max_lifetime_seconds=1.5)
    lasting = create(client, idle_timeout_seconds=0, max_lifetime_seconds=0)
    stopped = wait_until(lambda: _get(client, idle, "stopped"), "the idle one to stop")
    again = run_code(client, idle, "print(open('kept').read(), 'x' in globals())")
    wait_until(lambda: client.get(f"/sandboxes/{short}").status_code == 404, "the idle ephemeral one to go")
    wait_until(lambda: client.get(f"/sandboxes/{expiring}").status_code == 404, "the expired one to go")
    wait_until(lambda: client.get(f"/sandboxes/{idle}").status_code == 404, "the forgotten one to go")

    assert "it was idle for 2 seconds" in stopped["reason"]
    assert again["stdout"] == "yes False\n"
    assert _get(client, busy, "running"), "a sandbox with something in the background is in use"
    assert _get(client, lasting, "running")
    client.put(f"/sandboxes/{busy}/files/go", content=b"").raise_for_status()
    wait_until(lambda: _get(client, busy, "stopped"), "the busy one to stop once it is idle")
    ended = client.get(f"/sandboxes/{busy}/executions/{running}").json()
    assert (ended["cause"], ended["stdout"]) == ("exited", "done\n")
    assert _reasons(client, idle) == ["idle", "idle", "forgotten"]
    assert _reasons(client, short) == ["idle"]
    assert _reasons(client, expiring) == ["expired"]
    service.check_books()


def test_a_sandbox_that_is_due_while_no_service_runs_ends_when_one_does(
    service: RunningService, client: httpx.Client
) -> None:
    expiring, stopped = create(client, max_lifetime_seconds=1), create(client)
    client.post(f"/sandboxes/{stopped}/stop").raise_for_status()
    service.choose(life_stopped_lifetime_s=0.001)
    service.restart()
    with service.client() as later:
        wait_until(lambda: later.get(f"/sandboxes/{expiring}").status_code == 404, "the expired one to go")
        wait_until(lambda: later.get(f"/sandboxes/{stopped}").status_code == 404, "the forgotten one to go")

    assert service.handles() == set()
    service.check_books()


_WAIT = "import os, time\nwhile not os.path.exists('go'): time.sleep(0.01)\nprint('done')"


def _get(client: httpx.Client, sandbox: str, status: str) -> dict[str, Any] | None:
    found: dict[str, Any] = client.get(f"/sandboxes/{sandbox}").json()
    return found if found.get("status") == status else None


def _reasons(client: httpx.Client, sandbox: str) -> list[str]:
    """Say why the service itself stopped or deleted a sandbox, oldest first."""
    rows = client.get("/audit", params={"sandbox_id": sandbox}).json()["items"]
    return [row["details"]["reason"] for row in reversed(rows) if not row["subject"]]
