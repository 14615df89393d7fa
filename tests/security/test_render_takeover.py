"""A deck that has taken over the program which renders it: what that says and leaves behind is a lie, and costs little.

The program in the sandbox is the attacker's here: it runs the deck as Python. Everything else is real.
"""

from __future__ import annotations

import os
import socket
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from api.served import DEADLINE_S, Served, wait_for
from warren.bootstrap.app import build_service
from warren.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Iterator

    import httpx

    from warren.domain.values import Image

OWN_WAITING = 3
TIMEOUT_S = 4
_TAKEN_OVER = """
import json, os, sys, time, zipfile
def say(**said): print(json.dumps(said), flush=True)
say(type="ready")
sys.stdin.readline()
os.chdir("deck")
def finish(**said):
    json.dump({"ok": True, "slides": 1, **said}, open("result.json", "w")); say(type="done")
def archive(size=10):
    with zipfile.ZipFile("out.zip", "w") as made: made.writestr("presentation.pptx", b"x" * size)
exec(open("index.html").read())
"""
HONEST = "archive(); finish()"


@pytest.fixture(autouse=True)
def _guarded() -> None:
    """No sandbox's walls are attacked here: the service is."""


@pytest.fixture(scope="module")
def served(images_dir: str, python_image: Image) -> Iterator[Served]:
    assert python_image.name == "python"
    render = {
        "image": "python",
        "per_minute": 0,
        "timeout_s": TIMEOUT_S,
        "at_once": 1,
        "wait_s": DEADLINE_S,
        "own_waiting": OWN_WAITING,
        "output_bytes": 30_000_000,
        "slides": 20,
        "warm": 0,
    }
    with tempfile.TemporaryDirectory(prefix="warren-takeover-") as folder:
        os.symlink(os.path.join(images_dir, "images"), os.path.join(folder, "images"))
        settings = {"data_dir": folder, "engine": "bare", "allow_bare": True, "image": "python", "pool": {"size": 0}}
        taken_over = partial(build_service, render_program=_TAKEN_OVER)
        served = Served(Settings.model_validate(settings | {"render": render}), taken_over)
        served.start()
        yield served
        served.stop()
        assert served.left == []


@pytest.fixture
def ann(served: Served) -> Iterator[httpx.Client]:
    with served.client("ann") as client:
        yield client


def _render(client: httpx.Client, program: str, **more: Any) -> httpx.Response:
    return client.post("/renders", json={"html": program, **more})


LIES = {
    "no JSON": "print('{'); time.sleep(60)",
    "a deep line": "print('[' * 60_000); time.sleep(60)",
    "a long line": "sys.stdout.write('x' * 10_000_000); sys.stdout.flush(); time.sleep(60)",
    "a number without end": "print('{\"type\":\"progress\",\"done\":' + '9' * 60_000 + '}'); time.sleep(60)",
    "half a character": "sys.stdout.buffer.write(b'\\xed\\xa0\\x80\\xff\\n'); sys.stdout.flush(); time.sleep(60)",
    "lines without end": "\nwhile True: say(type='progress', stage='x' * 900, done=1, of=2)",
    "silence": "time.sleep(600)",
    "an end": "os._exit(0)",
    "no result": "say(type='done')",
    "a result that is a link": "os.symlink('/etc/passwd', 'result.json'); say(type='done')",
    "a result that is a pipe": "os.mkfifo('result.json'); say(type='done'); time.sleep(60)",
    "a large result": "open('result.json', 'w').write(' ' * 9_000_000); say(type='done')",
    "a deep result": "open('result.json', 'w').write('[' * 1_000_000); say(type='done')",
    "an error of a strange kind": "finish(ok=False, error=[1])",
    "an error with half a character": r"finish(ok=False, error={'code': '\ud800', 'message': '\ud800\u0000' * 99})",
    "no archive": "finish()",
    "an archive that is a link": "os.symlink('/etc/passwd', 'out.zip'); finish()",
    "an archive that is a pipe": "os.mkfifo('out.zip'); finish(); time.sleep(60)",
    "an archive without end": "open('out.zip', 'w').truncate(1 << 40); finish()",
}


@pytest.mark.timeout(600)
def test_lies_are_told_as_failures_and_the_only_place_is_free_again(ann: httpx.Client) -> None:
    found = {name: _render(ann, program) for name, program in LIES.items()}

    assert {name: answer.status_code for name, answer in found.items() if answer.status_code != 422} == {}
    for name, answer in found.items():
        assert answer.headers["content-type"] == "application/problem+json", name
        assert len(answer.content) < 2000, name
        assert "root:" not in answer.text, name
    assert _render(ann, HONEST).status_code == 200


def test_what_is_said_of_slides_takes_little_room_in_answers_and_in_the_store(ann: httpx.Client) -> None:
    flood = (
        "archive(); finish(slides=10**400, fallbacks=[{'slide': n % 4000, 'reason': 'x' * 900} for n in range(2000)], "
        "missing=[{'url': f'{n}' + 'y' * 900, 'count': 10**400} for n in range(500)], "
        r"script_errors=[f'{n}\x1b[2J\u202e\ud800' + 'z' * 900 for n in range(500)])"
    )
    odd = (
        "archive(); finish(slides=True, fallbacks=[None, 1, {}, {'slide': -1}, {'slide': '1'}, {'slide': 2}], "
        "missing=[None, 'x', {}, {'url': 1}, {'url': ''}, {'url': 'a', 'count': -1}, {'url': 'a'}], script_errors={})"
    )

    answer = _render(ann, flood)
    assert (answer.status_code, answer.headers["x-slide-count"]) == (200, "0")
    assert answer.headers["x-degraded-slides"] == ",".join(map(str, range(1, 21)))
    assert (answer.headers["x-missing-count"], answer.headers["x-script-error-count"]) == ("20", "10")
    answer = _render(ann, odd)
    assert answer.headers["x-slide-count"] == "0"
    assert (answer.headers["x-degraded-slides"], answer.headers["x-missing-count"]) == ("2", "1")
    assert "x-script-error-count" not in answer.headers
    started = _render(ann, flood, background=True).json()["id"]
    shown = wait_for(lambda: _done(ann, started))
    assert len(shown["degraded"]) == 20
    assert shown["missing"][0] == {"url": "0" + "y" * 199, "count": 1}
    assert shown["script_errors"][0].startswith("0[2Jzzz")
    assert len(ann.get("/renders").content) < 20_000
    assert ann.delete(f"/renders/{started}").status_code == 204


def _done(client: httpx.Client, render_id: str) -> dict[str, Any] | None:
    shown: dict[str, Any] = client.get(f"/renders/{render_id}").json()
    return shown if shown["finished_at"] else None


def test_many_that_begin_at_once_are_no_more_than_one_may_have_waiting(served: Served) -> None:
    barrier = threading.Barrier(12)

    def start(_: int) -> httpx.Response:
        with served.client("bob") as bob:
            barrier.wait(DEADLINE_S)
            return _render(bob, "time.sleep(600)", background=True)

    with ThreadPoolExecutor(12) as threads:
        answers = list(threads.map(start, range(12)))
    begun = [answer.json()["id"] for answer in answers if answer.status_code == 202]
    with served.client("bob") as bob:
        for render_id in begun:
            assert bob.delete(f"/renders/{render_id}").status_code == 204
        assert bob.get("/renders").json() == {"items": []}
    assert len(begun) == OWN_WAITING
    assert {answer.status_code for answer in answers} == {202, 429}


def test_an_unread_archive_loses_its_place(served: Served, ann: httpx.Client) -> None:
    body = b'{"html": "archive(25_000_000); finish()"}'
    head = f"POST /api/v1/renders HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {served.keys['bob']}\r\n"
    with socket.socket() as slow:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow.settimeout(DEADLINE_S)
        slow.connect(("127.0.0.1", served.port))
        slow.sendall(f"{head}Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
        assert slow.recv(1000).startswith(b"HTTP/1.1 200")
        # There is one place, and the slow one has not gone.
        assert _render(ann, HONEST).status_code == 200
