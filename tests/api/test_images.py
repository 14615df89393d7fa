"""The catalog of images over HTTP: its states, building with progress, and removing unused ones."""

from __future__ import annotations

import contextlib
import http.server
import os
import threading
import zipfile
from typing import TYPE_CHECKING, Any

import pytest

from api.served import DEADLINE_S, Served, read_events, wait_for
from warren.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import httpx

WHEEL = "burrow-1.0-py3-none-any.whl"


def write_wheel(path: Path) -> None:
    """Make a wheel with one empty module."""
    info = "burrow-1.0.dist-info"
    files = {
        "burrow.py": "",
        f"{info}/METADATA": "Metadata-Version: 2.1\nName: burrow\nVersion: 1.0\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    files[f"{info}/RECORD"] = "".join(f"{name},,\n" for name in [*files, f"{info}/RECORD"])
    with zipfile.ZipFile(path, "w") as wheel:
        for name, content in files.items():
            wheel.writestr(name, content)


class Shop:
    """Where packages come from, once its door is open."""

    def __init__(self, folder: Path) -> None:
        write_wheel(folder / WHEEL)
        self.door = threading.Event()
        self.door.set()
        self.asked = threading.Event()
        shop = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_HEAD(self) -> None:
                self.do_GET()

            def do_GET(self) -> None:
                shop.asked.set()
                assert shop.door.wait(DEADLINE_S)
                is_wheel = self.path.endswith(WHEEL)
                body = (folder / WHEEL).read_bytes() if is_wheel else f'<a href="/{WHEEL}">{WHEEL}</a>'.encode()
                with contextlib.suppress(OSError):
                    self.send_response(200)
                    self.send_header("Content-Type", "application/octet-stream" if is_wheel else "text/html")
                    self.send_header("Content-Length", str(len(body)))
                    self.end_headers()
                    self.wfile.write(body if self.command == "GET" else b"")

            def log_message(self, *_args: object) -> None:
                """Say nothing."""

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_port}/"

    def close(self) -> None:
        self.door.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shop]:
    shop = Shop(tmp_path)
    monkeypatch.setenv("UV_FIND_LINKS", shop.url)
    monkeypatch.setenv("UV_NO_INDEX", "1")
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "cache"))
    yield shop
    shop.close()


@pytest.fixture
def built_here(tmp_path: Path, shop: Shop, request: pytest.FixtureRequest) -> Iterator[Served]:
    """A service with images of its own: `tiny`, which can be built, `other`, and `wrong`, which cannot."""
    specs = tmp_path / "specs"
    specs.mkdir()
    (specs / "tiny.toml").write_text('name = "tiny"\naliases = ["acme/tiny"]\npackages = ["burrow==1.0"]\n')
    (specs / "other.toml").write_text('name = "other"\npackages = ["burrow==1.0"]\n[env]\nA = "1"\n')
    (specs / "wrong.toml").write_text('name = "wrong"\npackages = ["burrow==1.0"]\npreload = ["nothing"]\n')
    settings = Settings.model_validate(
        {
            "data_dir": str(tmp_path / "data"),
            "engine": getattr(request, "param", "bare"),
            "allow_bare": True,
            "image": "tiny",
            "image_dirs": (str(specs),),
            "pool": {"size": 1},
        }
    )
    assert shop.url
    served = Served(settings)
    served.start()
    yield served
    shop.door.set()
    served.stop()


@pytest.fixture
def adam(built_here: Served) -> Iterator[httpx.Client]:
    with built_here.client("adam") as client:
        yield client


def look(client: httpx.Client, name: str = "tiny") -> dict[str, Any]:
    found: dict[str, Any] = client.get(f"/images/{name}").json()
    return found


def finish(client: httpx.Client, name: str = "tiny") -> dict[str, Any]:
    """Wait until nothing is built any more."""
    return wait_for(lambda: found if (found := look(client, name))["state"] != "building" else None)


def test_an_image_is_built_and_removed(built_here: Served, adam: httpx.Client) -> None:
    assert (look(adam)["state"], look(adam)["build"], look(adam)["aliases"]) == ("not_built", None, ["acme/tiny"])
    begun = adam.post("/images/tiny/build")
    assert (begun.status_code, begun.headers["location"]) == (202, "/api/v1/images/tiny")
    image = finish(adam)
    assert (image["state"], image["build"]["phase"], image["build"]["error"]) == ("built", "done", None)
    assert image["size_bytes"] > 0
    assert adam.post("/images/tiny/build").status_code == 200
    listed = {each["name"]: each["state"] for each in adam.get("/images").json()["items"]}
    assert (listed["tiny"], listed["wrong"]) == ("built", "not_built")

    with built_here.client("ann") as ann:
        sandbox = ann.post("/sandboxes", json={"image": "acme/tiny:3.12"}).json()
        assert sandbox["image"] == "tiny"
        refused = adam.delete("/images/tiny")
        assert refused.status_code == 409
        assert refused.json()["detail"] == "1 sandbox is made from image tiny, stopped ones too: delete them first"
        assert ann.post("/sandboxes", json={}).status_code == 201
        for each in ann.get("/sandboxes").json()["items"]:
            ann.delete(f"/sandboxes/{each['id']}")
    removed = adam.delete("/images/tiny")
    assert (removed.status_code, removed.json()["freed_bytes"]) == (200, image["size_bytes"])
    assert look(adam)["state"] == "not_built"
    assert adam.post("/sandboxes", json={}).status_code == 404


def test_progress_is_streamed_to_the_end(adam: httpx.Client) -> None:
    with adam.stream("POST", "/images/tiny/build", headers={"Accept": "text/event-stream"}) as response:
        events = list(read_events(response))

    phases = [event.data["phase"] for event in events if event.name == "progress"]
    assert list(dict.fromkeys(phases)) == ["resolving", "downloading", "installing", "compiling", "finishing", "done"]
    assert (events[-1].name, events[-1].data["state"]) == ("result", "built")
    with adam.stream("POST", "/images/tiny/build", headers={"Accept": "text/event-stream"}) as response:
        assert [event.name for event in read_events(response)] == ["result"]


def test_a_build_that_fails_says_why(adam: httpx.Client) -> None:
    with adam.stream("POST", "/images/wrong/build", headers={"Accept": "text/event-stream"}) as response:
        last = list(read_events(response))[-1]

    assert (last.name, last.data["code"]) == ("error", "build_failed")
    assert "preloads nothing" in last.data["detail"]
    image = look(adam, "wrong")
    assert (image["state"], image["build"]["error"]) == ("not_built", last.data["detail"])


def test_one_is_built_at_a_time_and_goes_on_when_the_client_leaves(adam: httpx.Client, shop: Shop) -> None:
    shop.door.clear()
    with adam.stream("POST", "/images/tiny/build", headers={"Accept": "text/event-stream"}) as response:
        assert next(iter(read_events(response))).data["phase"] == "resolving"
    assert shop.asked.wait(DEADLINE_S)

    assert look(adam)["state"] == "building"
    assert adam.post("/images/tiny/build").status_code == 202
    for refused in (adam.post("/images/other/build"), adam.delete("/images/tiny")):
        assert refused.status_code == 409
        assert "image tiny is being built" in refused.json()["detail"]
    shop.door.set()
    assert finish(adam)["state"] == "built"
    assert adam.post("/images/other/build").status_code == 202
    assert finish(adam, "other")["state"] == "built"


def test_a_service_that_ends_stops_its_build_and_leaves_nothing(
    built_here: Served, adam: httpx.Client, shop: Shop
) -> None:
    shop.door.clear()
    adam.post("/images/tiny/build")
    assert shop.asked.wait(DEADLINE_S)
    built_here.stop()

    assert os.listdir(os.path.join(built_here.settings.data_dir, "images")) == [".lock"]


def test_what_is_not_current_any_more_is_stale(built_here: Served, adam: httpx.Client) -> None:
    adam.post("/images/tiny/build")
    before = finish(adam)
    spec = os.path.join(built_here.settings.image_dirs[0], "tiny.toml")
    with open(spec, "a", encoding="utf-8") as file:
        file.write('[env]\nB = "2"\n')
    stale = look(adam)

    assert (stale["state"], stale["stale"]) == ("stale", [before["digest"]])
    assert adam.delete("/images/tiny", params={"stale_only": True}).json()["freed_bytes"] == before["size_bytes"]
    assert look(adam)["state"] == "not_built"


def test_only_an_admin_builds_and_removes(built_here: Served) -> None:
    with built_here.client("ann") as ann:
        assert ann.get("/images/tiny").status_code == 200
        assert ann.post("/images/tiny/build").status_code == 403
        assert ann.delete("/images/tiny").status_code == 403


def test_what_is_not_in_the_catalog_is_not_found(adam: httpx.Client) -> None:
    answers = [adam.get("/images/tinny"), adam.post("/images/tinny/build"), adam.delete("/images/tinny")]

    assert [each.status_code for each in answers] == [404, 404, 404]
    assert "did you mean tiny?" in answers[0].json()["detail"]


def test_what_is_done_with_images_is_recorded(adam: httpx.Client) -> None:
    adam.post("/images/tiny/build")
    digest = finish(adam)["digest"]
    adam.delete("/images/tiny")
    rows = [row for row in adam.get("/audit").json()["items"] if row["action"].startswith("image.")]

    assert [(row["action"], row["outcome"]) for row in rows] == [("image.remove", "ok"), ("image.build", "ok")]
    assert rows[1]["details"] == {"image": "tiny", "digest": digest}


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="the local engine is tested as root here")
@pytest.mark.parametrize("built_here", ["local"], indirect=True)
def test_an_image_that_was_removed_while_it_was_warm_is_built_again_and_whole(adam: httpx.Client) -> None:
    for _ in range(2):
        adam.post("/images/tiny/build")
        assert finish(adam)["state"] == "built"
        made = adam.post("/sandboxes", json={})
        assert made.status_code == 201, made.text
        path = f"/sandboxes/{made.json()['id']}"
        ran = adam.post(f"{path}/exec", json={"code": "import burrow; print(burrow.__name__)"}).json()
        assert (ran["stdout"], ran["error"]) == ("burrow\n", None)
        assert adam.delete("/images/tiny").status_code == 409
        adam.delete(path)
        removed = adam.delete("/images/tiny")
        assert removed.status_code == 200, removed.text
