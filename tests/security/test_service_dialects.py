"""The service against those who speak the words of other products, to get more than is theirs."""

from __future__ import annotations

import contextlib
import io
import json
import select
import zipfile
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import httpx
import pytest

from e2e.serving import DEADLINE_S, wait_until
from security.attacked import Attacked, attacked

if TYPE_CHECKING:
    import socket
    from collections.abc import Iterator
    from pathlib import Path

AT_MOST_MB = 200.0
"""The most memory that the service may use under this attack."""


@pytest.fixture(autouse=True)
def unharmed() -> None:
    """No sandbox is attacked here: the service is."""


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory, images_dir: str, python_image: object) -> Iterator[Attacked]:
    assert python_image is not None
    folder = tmp_path_factory.mktemp("dialects") / "data"
    with attacked(folder, images_dir, dialects_chatui_containers=2) as target:
        yield target


@pytest.fixture
def ann(target: Attacked) -> Iterator[httpx.Client]:
    with target.client("ann") as client:
        client.base_url = target.url
        yield client


@pytest.fixture
def session(ann: httpx.Client) -> Iterator[str]:
    made = ann.post("/sessions").json()["session_id"]
    yield made
    ann.delete(f"/sessions/{made}")


@contextlib.contextmanager
def unread(target: Attacked, path: str, body: bytes, times: int, answered: int) -> Iterator[float]:
    """Ask again and again, each time on another connection, and read nothing; yield the most that was held then.

    That is looked at once so many were answered, and for a while after.
    """
    with contextlib.ExitStack() as held:
        connections = [held.enter_context(target.connect()) for _ in range(times)]
        before = target.memory_mb()
        for connection in connections:
            _ask(target, connection, path, body)
        wait_until(lambda: len(select.select(connections, (), (), 0)[0]) >= answered)
        most = 0.0
        for _ in range(100):
            assert target.service.probe("/livez").status_code == 200
            most = max(most, target.memory_mb() - before)
        yield most


def _ask(target: Attacked, connection: socket.socket, path: str, body: bytes) -> None:
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {target.secrets['ann']}\r\n"
    connection.sendall(f"{head}Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode())
    connection.sendall(body)


@pytest.mark.rest("sends hundreds of large bodies: half a minute of processor time")
@pytest.mark.parametrize("path", ["/execute", "/v1/execute", "/sessions/{session}/exec"])
def test_refused_bodies_are_not_kept(target: Attacked, session: str, path: str) -> None:
    body = json.dumps({"x": "A" * (15 << 20)}).encode()
    with unread(target, path.format(session=session), body, 24, 24) as most:
        assert most < AT_MOST_MB


def test_what_an_editor_shows_is_not_kept_for_everybody_who_reads_none_of_it(
    target: Attacked, ann: httpx.Client, session: str
) -> None:
    code = "open('wide', 'wb').write(bytes([1]) * (4 << 20))"
    made = ann.post(f"/sessions/{session}/exec", json={"tool": "code_execution", "input": {"code": code}})
    assert made.json()["result_block"]["content"]["return_code"] == 0
    shown = {"tool": "text_editor_code_execution", "input": {"command": "view", "path": "wide"}}
    # Each is 24 MiB as JSON: with 8 of them there is enough, and the rest waits.
    with unread(target, f"/sessions/{session}/exec", json.dumps(shown).encode(), 24, 8) as most:
        assert most < 2 * AT_MOST_MB


def test_the_head_of_a_skill_delays_no_other_caller(target: Attacked, ann: httpx.Client) -> None:
    text = f"---\nname: slow\ndescription: a{' ' * 500_000}b\n---\n"
    with ThreadPoolExecutor() as others:
        asked = others.submit(
            ann.post, "/api/v1/skills", json={"name": "slow", "description": "a", "skill_md_content": text}
        )
        assert target.service.probe("/livez").status_code == 200
        assert asked.result(DEADLINE_S).status_code == 400


def test_packages_of_skills_are_not_all_in_memory_at_once(target: Attacked, ann: httpx.Client) -> None:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("SKILL.md", "---\nname: large\ndescription: It is large.\n---\n")
        archive.writestr("data", bytes(9_900_000))
    made = ann.post("/api/v1/skills/upload", files={"file": ("large.zip", packed.getvalue())})
    assert made.status_code == 201
    before, most = target.memory_mb(), 0.0
    with ThreadPoolExecutor(100) as others:
        asked = [others.submit(ann.get, f"/api/v1/skills/{made.json()['id']}") for _ in range(100)]
        while not all(each.done() for each in asked):
            most = max(most, target.memory_mb() - before)
    assert {each.result().status_code for each in asked} <= {200, 429, 503}
    assert most < 1.5 * AT_MOST_MB
    assert ann.delete(f"/api/v1/skills/{made.json()['id']}").status_code == 204


def test_a_list_of_skills_stays_small(ann: httpx.Client) -> None:
    new = {"name": "wide", "description": "a", "skill_md_content": "b", "skill_metadata": {"a": "b" * 100_000}}
    refused = ann.post("/api/v1/skills", json=new)
    assert refused.status_code == 422
    assert "32768 bytes" in refused.json()["detail"]


def test_sandboxes_of_the_native_api_are_not_taken_for_containers_of_everybody(
    target: Attacked, ann: httpx.Client
) -> None:
    refused = ann.post("/api/v1/sandboxes", json={"metadata": {"dialect": "chatui"}})
    assert refused.status_code == 422
    assert "choose another name" in refused.json()["detail"]
    sandbox = ann.post("/api/v1/sandboxes").json()["id"]
    assert ann.patch(f"/api/v1/sandboxes/{sandbox}", json={"metadata": {"dialect": "chatui"}}).status_code == 422
    with target.client("bob") as bob:
        bob.base_url = httpx.URL(target.url)
        made = bob.post("/containers")
        assert made.status_code == 200
        assert bob.delete(f"/containers/{made.json()['container_id']}").status_code == 200
    assert ann.delete(f"/api/v1/sandboxes/{sandbox}").status_code == 204


def test_a_file_cannot_write_the_head_of_the_answer_that_it_is_sent_with(ann: httpx.Client, session: str) -> None:
    path = "data:text/html\r\nX-Evil: yes\r\nX,x"
    code = f"import os\nos.mkdir('data:text')\nopen({path!r}, 'w').write('<script>')"
    ann.post(f"/sessions/{session}/exec", json={"tool": "code_execution", "input": {"code": code}})
    answer = ann.get(f"/sessions/{session}/files", params={"path": path})
    assert (answer.status_code, answer.text) == (200, "<script>")
    assert answer.headers["content-type"] == "application/octet-stream"
    assert "x-evil" not in answer.headers


def test_an_open_dialect_opens_nothing_of_a_key_that_is_called_as_it_is(
    tmp_path: Path, images_dir: str, python_image: object
) -> None:
    assert python_image is not None
    with attacked(tmp_path / "data", images_dir, dialects_otari_open="true") as target:
        made = target.service.run("keys", "create", "otari", "--json")
        key = {"Authorization": f"Bearer {json.loads(made.stdout)['secret']}"}
        with httpx.Client(base_url=target.url, timeout=DEADLINE_S, trust_env=False) as anonymous:
            sandbox = anonymous.post("/api/v1/sandboxes", headers=key).json()["id"]
            assert anonymous.get(f"/sessions/{sandbox}", headers=key).status_code == 200
            assert anonymous.get(f"/sessions/{sandbox}").status_code == 404
            assert anonymous.delete(f"/api/v1/sandboxes/{sandbox}", headers=key).status_code == 204
