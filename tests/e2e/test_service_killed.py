"""The service is killed at many points while clients work: nothing that anybody was told is lost."""

from __future__ import annotations

import random
import signal
import threading
from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from e2e.serving import DEADLINE_S, read_events, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

    from e2e.serving import RunningService

UNSET = "none"
LOOK = """
import os
read = lambda name: open(name).read() if os.path.exists(name) else 'none'
print(globals().get('n', 'none'), read('f'), read('g'), read('all').replace('\\n', ','))
"""


@dataclass
class Known:
    """What a client knows of a sandbox: each has the values that it may have, one unless a call was cut off."""

    id: str
    variable: set[str] = field(default_factory=lambda: {UNSET})
    file: set[str] = field(default_factory=lambda: {UNSET})
    """Written by code."""
    upload: set[str] = field(default_factory=lambda: {UNSET})
    """Written by the files API."""
    may_be_gone: bool = False
    background: dict[str, str] = field(default_factory=dict)
    """What each execution in the background prints, by id."""
    was_stopped: set[str] = field(default_factory=set)
    """Those that a stop, or a deletion that was cut off, may have ended."""


class Worker:
    """One client that does as it likes until the service is gone, and remembers every answer."""

    def __init__(self, story: Story, seed: int) -> None:
        self.random = random.Random(seed)
        self.sandboxes: dict[str, Known] = {}
        self.answered: dict[str, str] = {}
        """What was answered, by request id and by execution id."""
        self._story = story
        self._counter = 0
        self._cut_off: tuple[str, dict[str, str], str] | None = None
        """Where, what and under which key was asked last, if no answer came."""
        self._acts = (self._create, self._run, self._run, self._start_background, self._upload)
        self._rare = (self._stop, self._start, self._delete)

    def work(self) -> None:
        """Work until a connection breaks."""
        with self._story.service.client() as client:
            try:
                while True:
                    self._act(client)
            except httpx.TransportError:
                pass

    def check(self, client: httpx.Client) -> None:
        """See that everything is as we were told, and know it exactly again."""
        self._ask_again(client)
        for known in list(self.sandboxes.values()):
            answer = client.post(f"/sandboxes/{known.id}/exec", json={"code": LOOK})
            if answer.status_code == 404 and known.may_be_gone:
                del self.sandboxes[known.id]
                continue
            assert answer.status_code == 200, f"{known}: {answer.text}"
            self._note(answer)
            variable, file, upload, every = answer.json()["stdout"].split()
            ran = every.strip(",").split(",")
            assert len(ran) == len(set(ran)), f"something ran twice in {known}: {ran}"
            assert variable in known.variable, f"{known}: {answer.text}"
            assert file in known.file, f"{known}: {answer.text}"
            assert upload in known.upload, f"{known}: {answer.text}"
            known.variable, known.file, known.upload, known.may_be_gone = {variable}, {file}, {upload}, False
            self._check_background(client, known)

    def _ask_again(self, client: httpx.Client) -> None:
        """Ask once more for what was cut off, under the same key: it is done, once, whenever the service died."""
        if self._cut_off is None:
            return
        (path, body, key), self._cut_off = self._cut_off, None
        answer = client.post(path, json=body, headers={"Idempotency-Key": key})
        assert answer.status_code in {200, 201}, answer.text
        if path == "/sandboxes":
            self._note(answer)
            self.sandboxes[answer.json()["id"]] = Known(answer.json()["id"])
        else:
            assert answer.json()["cause"] == "exited", answer.text
            # What it did is recorded under the first request for it.
            self.answered[answer.json()["execution_id"]] = body["code"]

    def _ask_once(self, client: httpx.Client, path: str, body: dict[str, str], status: int) -> httpx.Response:
        key = f"{id(self)}-{self._next()}"
        self._cut_off = path, body, key
        answer = self._ask(client.post(path, json=body, headers={"Idempotency-Key": key}), status)
        self._cut_off = None
        return answer

    def _check_background(self, client: httpx.Client, known: Known) -> None:
        for execution_id, printed in known.background.items():
            path = f"/sandboxes/{known.id}/executions/{execution_id}"
            ended: dict[str, Any] = wait_until(partial(_finished, client, path), "an execution to end")
            (*_, (name, replayed)) = read_events(client, known.id, execution_id)
            assert name == "result"
            assert (replayed["cause"], replayed["stdout"]) == (ended["cause"], ended["stdout"])
            if execution_id in known.was_stopped and ended["cause"] != "exited":
                assert ended["hint"]
            else:
                assert (ended["cause"], ended["stdout"]) == ("exited", printed), ended
        known.background.clear()
        known.was_stopped.clear()

    def _act(self, client: httpx.Client) -> None:
        if not self.sandboxes:
            self._create(client)
            return
        act = self.random.choice(self._rare if self.random.random() < 0.2 else self._acts)
        act(client)

    def _next(self) -> str:
        self._counter += 1
        return str(self._counter)

    def _pick(self) -> Known:
        return self.sandboxes[self.random.choice(sorted(self.sandboxes))]

    def _create(self, client: httpx.Client) -> None:
        if len(self.sandboxes) < 3:
            found = self._ask_once(client, "/sandboxes", {}, 201).json()["id"]
            self.sandboxes[found] = Known(found)

    def _run(self, client: httpx.Client) -> None:
        known, value = self._pick(), self._next()
        known.variable |= {value}
        known.file |= {value}
        code = f"n = '{value}'\nprint(open('f', 'w').write(n), open('all', 'a').write(n + '\\n'))"
        answer = self._ask_once(client, f"/sandboxes/{known.id}/exec", {"code": code}, 200)
        assert answer.json()["cause"] == "exited", answer.text
        self.answered[answer.json()["execution_id"]] = code
        known.variable, known.file = {value}, {value}

    def _start_background(self, client: httpx.Client) -> None:
        known, value = self._pick(), self._next()
        body = {"command": f"sleep 0.3; echo {value}", "background": True}
        answer = self._ask(client.post(f"/sandboxes/{known.id}/exec", json=body), 202)
        known.background[answer.json()["execution_id"]] = f"{value}\n"

    def _upload(self, client: httpx.Client) -> None:
        known, value = self._pick(), self._next()
        known.upload |= {value}
        self._ask(client.put(f"/sandboxes/{known.id}/files/g", content=value.encode()), 204)
        known.upload = {value}

    def _stop(self, client: httpx.Client) -> None:
        known = self._pick()
        known.variable |= {UNSET}
        known.was_stopped |= known.background.keys()
        answer = self._ask(client.post(f"/sandboxes/{known.id}/stop"))
        assert answer.json()["status"] == "stopped"
        known.variable = {UNSET}

    def _start(self, client: httpx.Client) -> None:
        answer = self._ask(client.post(f"/sandboxes/{self._pick().id}/start"))
        assert answer.json()["status"] == "running"

    def _delete(self, client: httpx.Client) -> None:
        known = self._pick()
        known.may_be_gone = True
        known.was_stopped |= known.background.keys()
        self._ask(client.delete(f"/sandboxes/{known.id}"), 204)
        del self.sandboxes[known.id]

    def _ask(self, answer: httpx.Response, status: int = 200) -> httpx.Response:
        assert answer.status_code == status, answer.text
        self._note(answer)
        self._story.answered()
        return answer

    def _note(self, answer: httpx.Response) -> None:
        self.answered[answer.headers["x-request-id"]] = f"{answer.request.method} {answer.request.url.path}"


class Story:
    """A service, its clients, and the moment at which it is killed."""

    def __init__(self, service: RunningService, workers: int) -> None:
        self.service = service
        self.workers = [Worker(self, seed) for seed in range(workers)]
        self._lock = threading.Lock()
        self._left = 0
        self._pause_s = 0.0

    def work_until_killed(self, answers: int, pause_s: float) -> None:
        """Have everybody work, and kill the service so long after so many answers."""
        self._left, self._pause_s = answers, pause_s
        failures: list[BaseException] = []

        def work(worker: Worker) -> None:
            try:
                worker.work()
            except BaseException as error:  # noqa: BLE001 - raised again below, in the test's own thread
                failures.append(error)
                self._end()

        threads = [threading.Thread(target=work, args=(worker,)) for worker in self.workers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(DEADLINE_S)
        assert not any(thread.is_alive() for thread in threads)
        if failures:
            raise failures[0]
        self.service.wait()

    def answered(self) -> None:
        """Count an answer; the last one that may be given costs the service its life, at once or a moment later."""
        with self._lock:
            self._left -= 1
            if self._left == 0:
                threading.Timer(self._pause_s, self._end).start() if self._pause_s else self._end()

    def _end(self) -> None:
        self.service.signal(signal.SIGKILL)


def _finished(client: httpx.Client, path: str) -> dict[str, Any] | None:
    answer = client.get(path)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found if found["status"] == "finished" else None


def _audit(client: httpx.Client) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    while page := client.get("/audit", params={"offset": len(rows), "limit": 1000}).json()["items"]:
        rows += page
    return rows


def _check_settled(client: httpx.Client, story: Story) -> None:
    """See that no execution runs for ever, and that each has one entry in the audit record."""
    for worker in story.workers:
        for known in worker.sandboxes:
            listed = client.get(f"/sandboxes/{known}/executions", params={"limit": 100}).json()["items"]
            assert all(one["cause"] is not None for one in listed), listed
            assert all(one["hint"] for one in listed if one["cause"] == "lost")
    # The calls that looked are written down behind their answers.
    wait_until(lambda: _unrecorded(client, story) == {}, f"audit entries of {_unrecorded(client, story)}")


def _unrecorded(client: httpx.Client, story: Story) -> dict[str, str]:
    """Return what was answered and is not in the audit record; fail where something is there twice."""
    rows = _audit(client)
    finished = Counter(row["execution_id"] for row in rows if row["action"] == "execution.finish")
    assert [one for one, times in finished.items() if times > 1] == []
    recorded = finished.keys() | {row["request_id"] for row in rows}
    answered = {key: what for worker in story.workers for key, what in worker.answered.items()}
    return {key: what for key, what in answered.items() if key not in recorded}


@pytest.mark.parametrize(("engine", "rounds", "pool"), [("local", 6, 1), ("bare", 2, 0)])
def test_nothing_that_anybody_was_told_is_lost_when_the_service_is_killed(
    serve: Callable[..., RunningService], engine: str, rounds: int, pool: int
) -> None:
    tell(serve(engine, pool_size=pool, quota_creates_per_minute=0), rounds, pool, seed=3)


def tell(service: RunningService, rounds: int, pool: int, seed: int) -> None:
    story, chance = Story(service, workers=3), random.Random(seed)
    for number in range(rounds):
        service.start()
        with service.client() as client:
            check_all(client, story)
        pause_s = chance.choice((0.0, 0.0, chance.uniform(0.001, 0.03)))
        story.work_until_killed(chance.randrange(3, 40), pause_s)
        if number % 2:
            # Once more while it recovers from the first time.
            service.launch()
            killer = threading.Timer(chance.uniform(0.4, 1.5), service.signal, (signal.SIGKILL,))
            killer.start()
            killer.join()
            service.wait()
        assert service.run("audit", "verify").returncode == 0, f"after kill {number}"
    service.start()
    with service.client() as client:
        check_all(client, story)
    held, rows = service.probe_details()["sandboxes"], service.rows()

    assert rows.keys() == {known for worker in story.workers for known in worker.sandboxes}
    assert held["sandboxes"] == len(rows)
    assert held["active"] == sum(row.is_active for row in rows.values())
    assert held["memory_bytes"] == sum(row.limits.memory_bytes for row in rows.values() if row.is_active)
    service.check_books(pooled=2 * pool)


def check_all(client: httpx.Client, story: Story) -> None:
    for worker in story.workers:
        worker.check(client)
    told = {known for worker in story.workers for known in worker.sandboxes}
    assert {one["id"] for one in client.get("/sandboxes", params={"limit": 100}).json()["items"]} == told
    _check_settled(client, story)
