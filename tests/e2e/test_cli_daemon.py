"""A service in the background: started, looked at and stopped, and what is said when that cannot be done."""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
import threading
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from e2e.person import Person
from e2e.serving import DEADLINE_S, RunningService, create, has_ended, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class Daemon:
    """A data folder with a service in the background, if there is one now."""

    def __init__(self, service: RunningService) -> None:
        self.service = service
        self.folder = service.folder
        self.env = service.env | {"WARREN_SERVE_PORT": "0"}
        service.env = self.env

    def start(self, *arguments: str) -> dict[str, Any]:
        done = self.service.run("serve", "--daemon", "--json", *arguments)
        assert done.returncode == 0, done.stderr
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    def say(self, command: str, *arguments: str) -> tuple[int, dict[str, Any]]:
        done = self.service.run(command, "--json", *arguments)
        return done.returncode, json.loads(done.stdout)


@pytest.fixture
def daemon(serve: Callable[..., RunningService]) -> Iterator[Daemon]:
    daemon = Daemon(serve("bare"))
    yield daemon
    daemon.service.run("stop", "--now")


def test_status_counts_executions_that_an_earlier_service_began(daemon: Daemon) -> None:
    daemon.start()
    sandbox = daemon.service.run("sandbox", "create", "--quiet").stdout.strip()
    daemon.service.run("sandbox", "exec", sandbox, "--background", "--", "sleep", "1000")
    assert daemon.say("status")[1]["admission"]["executions"]["under_way"] == 1
    daemon.say("stop")
    daemon.start()

    assert daemon.say("status")[1]["admission"]["executions"]["under_way"] == 1
    assert daemon.service.run("sandbox", "rm", sandbox).returncode == 0
    assert daemon.say("status")[1]["admission"]["executions"]["under_way"] == 0


def test_a_service_in_the_background_is_started_seen_and_stopped(daemon: Daemon) -> None:
    assert daemon.say("status")[0] == 3
    said = daemon.start()
    headers = {"Authorization": f"Bearer {said['api_key']}"}
    answer = httpx.get(f"{said['address']}/api/v1/sandboxes", headers=headers, timeout=DEADLINE_S, trust_env=False)
    code, status = daemon.say("status")
    stopped = daemon.say("stop")

    assert answer.status_code == 200
    assert (code, status["status"], status["pid"], status["address"]) == (0, "healthy", said["pid"], said["address"])
    assert os.path.samefile(status["log"], daemon.folder / "service.log")
    assert (stopped[0], stopped[1]["stopped"]) == (0, True)
    wait_until(lambda: has_ended(said["pid"]), "the process to be gone")
    assert (daemon.say("status")[0], daemon.say("stop")[0]) == (3, 3)
    assert not (daemon.folder / "warren.sock").exists()


def test_the_first_key_is_shown_once_and_is_not_in_the_log(daemon: Daemon) -> None:
    first = daemon.start("--log-file", str(daemon.folder / "own.log"))
    daemon.say("stop")
    second = daemon.start()
    log = (daemon.folder / "own.log").read_text()

    assert first["api_key"].startswith("wrn_")
    assert second["api_key"] is None
    assert "wrn_" not in log
    assert next(json.loads(line)["event"] for line in log.splitlines()) == "service.recovered"
    assert stat.S_IMODE(os.stat(daemon.folder / "own.log").st_mode) == 0o600


def test_a_second_service_on_one_folder_is_refused(daemon: Daemon) -> None:
    first = daemon.start()
    refused = daemon.service.run("serve", "--daemon")

    assert refused.returncode == 2
    assert f"served already, by process {first['pid']}" in refused.stderr
    assert daemon.say("status")[1]["pid"] == first["pid"]


def test_a_service_that_cannot_start_says_why_and_leaves_nothing(daemon: Daemon) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        done = daemon.service.run("serve", "--daemon", "--port", str(taken.getsockname()[1]))

    assert done.returncode == 2
    assert done.stdout == ""
    assert "cannot listen" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert daemon.say("status")[0] == 3


def test_what_a_dead_process_left_is_no_service(daemon: Daemon) -> None:
    said = daemon.start()
    os.kill(said["pid"], signal.SIGKILL)
    wait_until(lambda: has_ended(said["pid"]))

    assert (daemon.folder / "warren.sock").exists()
    assert (daemon.folder / "service.lock").read_text().startswith(str(said["pid"]))
    assert (daemon.say("status")[0], daemon.say("stop")[0]) == (3, 3)
    assert daemon.start()["pid"] != said["pid"]


def test_a_service_in_the_foreground_is_stopped_too(daemon: Daemon) -> None:
    daemon.service.start()
    code, _ = daemon.say("stop")

    assert code == 0
    assert daemon.service.wait() == 0


def test_stopping_now_ends_what_others_wait_for(daemon: Daemon) -> None:
    service = daemon.service.start()
    with service.client() as client:
        sandbox = create(client)
        answers: list[object] = []

        def ask() -> None:
            try:
                answers.append(client.post(f"/sandboxes/{sandbox}/exec", json={"command": "echo begun; sleep 1000"}))
            except httpx.HTTPError as error:
                answers.append(error)

        asking = threading.Thread(target=ask)
        asking.start()
        wait_until(lambda: client.get(f"/sandboxes/{sandbox}/executions").json()["total"] == 1)
        patient = daemon.say("stop", "--timeout", "200ms")
        impatient = daemon.say("stop", "--now")
        asking.join(DEADLINE_S)

    assert (patient[0], patient[1]["stopped"]) == (1, False)
    assert "--now" in patient[1]["detail"]
    assert (impatient[0], impatient[1]["stopped"]) == (0, True)
    assert service.wait() == 0


def test_a_person_is_told_in_words(daemon: Daemon) -> None:
    with Person(daemon, "serve", "--daemon") as person:
        person.reads(b"Warren is at http://127.0.0.1:")
        person.reads(b"Your API key, shown this once: wrn_")
        person.reads(b"`warren stop` ends it")
        assert person.leaves() == 0
    with Person(daemon, "status") as person:
        person.reads(b"healthy")
        person.reads(b"bare")
        assert person.leaves() == 0
    with Person(daemon, "stop") as person:
        person.reads(b"Sandboxes keep running.")
        assert person.leaves() == 0
