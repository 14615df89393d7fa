"""A service that is asked to end answers what it has, takes nothing new, and ends no sandbox."""

from __future__ import annotations

import signal
import threading
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from e2e.serving import DEADLINE_S, create, has_ended, is_problem, read_events, run_code, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

    from e2e.serving import RunningService

WAIT = "import os, time\nprint('begun', flush=True)\nwhile not os.path.exists('go'): time.sleep(0.01)\nprint('done')"


class Call:
    """A foreground call in a thread of its own."""

    def __init__(self, service: RunningService, sandbox: str, code: str) -> None:
        self.answer: httpx.Response | None = None
        self.failure: httpx.TransportError | None = None
        self._ask = service.client
        self._path = f"/sandboxes/{sandbox}/exec"
        self._body = {"code": code}
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def wait(self) -> httpx.Response | None:
        self._thread.join(DEADLINE_S)
        assert not self._thread.is_alive()
        return self.answer

    def _run(self) -> None:
        with self._ask() as client:
            try:
                self.answer = client.post(self._path, json=self._body)
            except httpx.TransportError as error:
                self.failure = error


def _is_begun(client: httpx.Client, sandbox: str) -> bool:
    return any(one["status"] == "running" for one in client.get(f"/sandboxes/{sandbox}/executions").json()["items"])


@pytest.fixture(params=["bare", "local"])
def service(request: pytest.FixtureRequest, serve: Callable[..., RunningService]) -> RunningService:
    return serve(request.param).start()


def test_a_call_that_runs_is_answered_before_the_service_ends(service: RunningService) -> None:
    with service.client() as client:
        sandbox, other = create(client), create(client)
        call = Call(service, sandbox, WAIT)
        wait_until(lambda: _is_begun(client, sandbox), "the call to run")
        service.signal(signal.SIGTERM)
        wait_until(lambda: service.probe("/readyz").status_code == 503, "the service to be unready")
        refused = [
            client.post("/sandboxes", json={}),
            client.post(f"/sandboxes/{other}/exec", json={"code": "1"}),
            client.post("/run", json={"code": "1"}),
        ]
        alive = service.probe("/livez")
        client.put(f"/sandboxes/{sandbox}/files/go", content=b"").raise_for_status()
        answer = call.wait()
    code = service.wait()

    assert answer is not None
    assert answer.json()["stdout"] == "begun\ndone\n"
    assert alive.status_code == 200
    assert [each.status_code for each in refused] == [503, 503, 503]
    assert all(is_problem(each) and int(each.headers["retry-after"]) >= 1 for each in refused)
    assert code == 0
    assert "stopping" in refused[0].json()["detail"]


def test_what_runs_in_the_background_outlives_the_service(service: RunningService) -> None:
    with service.client() as client:
        sandbox = create(client)
        started = run_code(client, sandbox, f"{WAIT}\nx = 7", background=True)["execution_id"]
    assert service.stop() == 0
    service.start()
    with service.client() as client:
        assert client.get(f"/sandboxes/{sandbox}/executions/{started}").json()["status"] == "running"
        client.put(f"/sandboxes/{sandbox}/files/go", content=b"").raise_for_status()
        events = list(read_events(client, sandbox, started))

        assert "".join(value["data"] for name, value in events if name == "stdout") == "begun\ndone\n"
        assert events[-1][0] == "result"
        assert events[-1][1]["cause"] == "exited"
        assert client.get(f"/sandboxes/{sandbox}/executions/{started}").json()["stdout"] == "begun\ndone\n"
        assert run_code(client, sandbox, "print(x)")["stdout"] == "7\n"
    service.check_books()


def test_a_call_that_does_not_end_in_time_is_found_by_the_next_service(serve: Callable[..., RunningService]) -> None:
    service = serve(serve_drain_s=0.2).start()
    with service.client() as client:
        sandbox = create(client)
        run_code(client, sandbox, "x = 41")
        call = Call(service, sandbox, WAIT)
        wait_until(lambda: _is_begun(client, sandbox), "the call to run")
        code = service.stop()
        answer = call.wait()
    service.start()
    with service.client() as client:
        (found,) = (
            one for one in client.get(f"/sandboxes/{sandbox}/executions").json()["items"] if "begun" in one["code"]
        )
        client.put(f"/sandboxes/{sandbox}/files/go", content=b"").raise_for_status()
        path = f"/sandboxes/{sandbox}/executions/{found['execution_id']}"
        ended = wait_until(lambda: _finished(client, path), "its end")

        assert code == 0
        assert answer is not None
        assert (answer.status_code, is_problem(answer)) == (503, True)
        assert ended["cause"] in {"exited", "interrupted", "killed", "lost"}
        assert ended["hint"] or ended["cause"] == "exited"
        assert run_code(client, sandbox, "print(x + 1)")["stdout"] == "42\n"
    service.check_books()


def test_a_stream_that_does_not_end_in_time_says_so(serve: Callable[..., RunningService]) -> None:
    service = serve("bare", serve_drain_s=0.2).start()
    with service.client() as client:
        path = f"/sandboxes/{create(client)}/exec"
        with client.stream("POST", path, json={"code": WAIT, "stream": True}) as answer:
            lines = answer.iter_lines()
            next(line for line in lines if line == "event: stdout")
            code = service.stop()
            rest = list(lines)

    assert code == 0
    assert [line for line in rest if line.startswith("event: ")] == ["event: error"]
    assert "the service is stopping" in rest[-2]
    assert not [line for line in service.log() if line["level"] == "error" and "Exception" in line["event"]]


def _finished(client: httpx.Client, path: str) -> dict[str, Any] | None:
    found: dict[str, Any] = client.get(path).json()
    return found if found["status"] == "finished" else None


def test_the_pool_is_emptied_when_the_service_ends(serve: Callable[..., RunningService]) -> None:
    service = serve(pool_size=1).start()
    wait_until(lambda: len(service.handles()) == 2, "the pool to be full")
    assert service.stop() == 0

    assert service.handles() == set()


def test_a_second_signal_ends_the_wait(serve: Callable[..., RunningService]) -> None:
    service = serve("bare", serve_drain_s=600).start()
    with service.client() as client:
        sandbox = create(client)
        call = Call(service, sandbox, WAIT)
        wait_until(lambda: _is_begun(client, sandbox), "the call to run")
        service.signal(signal.SIGINT)
        said = wait_until(lambda: _said(service, "service.stopping"), "the service to say that it stops")
        service.signal(signal.SIGINT)
        service.wait()
        call.wait()

    # One more if it is not yet done with the question whether the call runs, though that is answered.
    assert said["requests"] in {1, 2}
    assert said["wait_s"] == 600
    assert "Ctrl-C again" in said["hint"]


def _said(service: RunningService, event: str) -> dict[str, Any] | None:
    return next((line for line in service.log() if line["event"] == event), None)


def test_every_sandbox_can_be_stopped_once_no_service_runs_and_is_resumed_by_the_next(
    serve: Callable[..., RunningService],
) -> None:
    service = serve("local").start()
    with service.client() as client:
        sandbox = create(client)
        run_code(client, sandbox, "open('kept.txt', 'w').write('kept')")
    refused = service.run("stop-engine", "--sandboxes")
    pid = service.sandbox_pid(sandbox)
    service.stop()
    stopped = service.run("stop-engine", "--sandboxes")

    assert (refused.returncode, stopped.returncode) == (2, 0), refused.stderr + stopped.stderr
    assert "is served already" in refused.stderr
    wait_until(lambda: has_ended(pid), "its first process to end")
    with service.start().client() as client:
        assert client.get(f"/sandboxes/{sandbox}").json()["status"] == "stopped"
        assert run_code(client, sandbox, "print(open('kept.txt').read())")["stdout"] == "kept\n"
