"""Decks to presentations over HTTP: in our own words and in ChatUI's, with a real browser in a real sandbox."""

from __future__ import annotations

import base64
import io
import json
import time
import zipfile
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from pptx import Presentation

from api.served import DEADLINE_S, Served

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from warren.domain.values import Image
    from warren.settings import Settings

# The first who asks for the image builds it.
pytestmark = [pytest.mark.root, pytest.mark.timeout(600)]
_PIXEL = base64.b64encode(
    base64.b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==")
).decode()
_STYLE = "<style>.slide{width:1280px;height:720px;background:#fff;font:40px Inter,sans-serif}</style>"
_DECK = (
    f"{_STYLE}<section class=slide><h1>First words</h1><img src=assets/dot.png width=90 height=90></section>"
    "<section class=slide><h1>Second words</h1></section>"
)
_WAIT_S = 120.0


_RENDER = {"per_minute": 0, "timeout_s": 40, "slides": 20, "files": 2, "html_chars": 100_000, "wait_s": 60}


@pytest.fixture(scope="module")
def rendering(make_settings: Callable[..., Settings], office_image: Image) -> Iterator[Served]:
    """A service that renders."""
    assert office_image.name == "office"
    yield from _serve(make_settings("local", render=_RENDER))


@pytest.fixture
def hurried(make_settings: Callable[..., Settings], office_image: Image) -> Iterator[httpx.Client]:
    """Ann's client of a service that gives a deck 15 seconds: a browser is there by then, on a busy machine too."""
    assert office_image.name == "office"
    for served in _serve(make_settings("local", render=_RENDER | {"timeout_s": 15})):
        yield from _connect(served)


@pytest.fixture
def client(rendering: Served) -> Iterator[httpx.Client]:
    """Ann's client, of all addresses."""
    yield from _connect(rendering)


def _serve(settings: Settings) -> Iterator[Served]:
    served = Served(settings)
    served.start()
    yield served
    served.stop()
    assert served.left == []


def _connect(served: Served) -> Iterator[httpx.Client]:
    headers = {"Authorization": f"Bearer {served.keys['ann']}"}
    with httpx.Client(base_url=served.url, headers=headers, timeout=DEADLINE_S + _WAIT_S, trust_env=False) as client:
        yield client


def _names(archive: bytes) -> list[str]:
    with zipfile.ZipFile(io.BytesIO(archive)) as opened:
        assert opened.testzip() is None
        return opened.namelist()


def _words(archive: bytes) -> list[str]:
    """Return the text of each slide of the presentation in an archive."""
    with zipfile.ZipFile(io.BytesIO(archive)) as opened:
        (name,) = [each for each in opened.namelist() if each.endswith(".pptx")]
        slides = Presentation(io.BytesIO(opened.read(name))).slides
        return [" ".join(shape.text_frame.text for shape in slide.shapes if shape.has_text_frame) for slide in slides]


def test_a_deck_of_chatuis_becomes_an_archive_with_its_headers(client: httpx.Client) -> None:
    files = [{"file_name": "dot.png", "base64": _PIXEL}]
    answer = client.post("/api/render", json={"html": _DECK, "input_files": files})

    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "application/zip"
    name = answer.headers["content-disposition"].partition('filename="')[2].rstrip('"')
    assert name.startswith("presentation_v1_")
    pictures = ["slides/slide_001.png", "slides/slide_002.png"]
    assert sorted(_names(answer.content)) == [name.replace(".zip", ".pptx"), *pictures]
    assert 'warren_renders_total{outcome="successful"}' in client.get("/metrics").text
    assert answer.headers["x-rendering-version"] == "v1"
    assert answer.headers["x-slide-count"] == "2"
    assert len(answer.headers["x-render-id"]) == 12
    assert answer.headers["x-renderer-version-tag"] == "v" + answer.headers["x-renderer-version"]


def test_an_editable_presentation_has_the_words_of_the_deck(client: httpx.Client) -> None:
    answer = client.post("/api/v1/render", json={"html": _DECK, "rendering_version": "v2"})

    assert answer.status_code == 200, answer.text
    assert answer.headers["x-rendering-version"] == "v2"
    assert "x-degraded-slides" not in answer.headers
    assert [text.strip() for text in _words(answer.content)] == ["First words", "Second words"]


@pytest.mark.parametrize(
    ("body", "status", "detail"),
    [
        ({"html": "<p>nothing"}, 500, "no slide elements found for selector '.slide'"),
        ({"html": "x" * 100_001}, 400, "html is too large (>100000 characters)"),
        ({"html": "<i class=slide>x</i>" * 21}, 400, "too many slides rendered (max 20)"),
        (
            {"html": "x", "input_files": [{"file_name": f"{n}", "base64": _PIXEL} for n in "abc"]},
            400,
            "too many input_files (max 2)",
        ),
        (
            {"html": "x", "input_files": [{"file_name": "x", "base64_content": "%%"}]},
            400,
            "input file 'x' has invalid base64 content",
        ),
    ],
)
def test_what_cannot_be_rendered_is_refused_in_chatuis_words(
    client: httpx.Client, body: dict[str, Any], status: int, detail: str
) -> None:
    answer = client.post("/api/render", json=body)

    assert (answer.status_code, answer.json()) == (status, {"detail": detail})


def test_fields_that_chatui_does_not_know_are_refused(client: httpx.Client) -> None:
    twice = [{"file_name": "a", "base64": _PIXEL}] * 2
    for body, words in (
        ({"html": "x", "more": 1}, "extra_forbidden"),
        ({"html": "x", "input_files": twice}, "duplicate input file name: a"),
        (
            {"html": "x", "input_files": [{"file_name": "a/b", "base64": _PIXEL}]},
            "file_name must not contain path separators",
        ),
    ):
        answer = client.post("/api/render", json=body)
        assert answer.status_code == 422
        assert words in answer.text


def test_a_render_in_the_background_is_followed_and_its_result_kept(rendering: Served, client: httpx.Client) -> None:
    deck = f"{_DECK}<script>nowhere()</script><iframe src=https://example.com/></iframe><img src=file:///a.png>"
    deck += "<section class=slide><img src=assets/img/dot.png></section>"
    new = {"html": deck, "editable": True, "name": "deck", "background": True}
    begun = client.post("/api/v1/renders", json={**new, "assets": [{"name": "img/dot.png", "base64": _PIXEL}]})
    assert begun.status_code == 202, begun.text
    where = begun.headers["location"]
    events = client.get(f"{where}/events").text.replace("\r", "").split("\n\n")
    kinds = [line.removeprefix("event: ") for each in events for line in each.splitlines() if line[:6] == "event:"]
    assert kinds[-1] == "result"
    assert "progress" in kinds

    shown = client.get(where).json()
    assert (shown["status"], shown["slides"], shown["degraded"], shown["error"]) == ("done", 3, [], None)
    missing = {"assets/dot.png", "https://example.com/", "file:///a.png"}
    assert {each["url"] for each in shown["missing"]} == missing
    assert shown["script_errors"] == ["ReferenceError: nowhere is not defined (line 1)"]
    assert json.loads(events[-2].partition("data: ")[2]) == shown
    made = client.get(f"{where}/result")
    assert "deck.pptx" in _names(made.content)
    assert client.get("/api/v1/renders").json()["items"][0] == shown
    with rendering.client("bob") as bob:
        assert bob.get(f"/renders/{shown['id']}").status_code == 404
        assert bob.get("/renders").json() == {"items": []}
    assert client.delete(where).status_code == 204
    assert client.get(where).status_code == 404


@pytest.mark.parametrize(
    "names", [("../a",), ("/a",), ("a//b",), ("a/.b",), ("a", "a/b"), ("a", "a"), ("a/" * 8 + "b",)]
)
def test_assets_with_names_that_cannot_be_are_refused(client: httpx.Client, names: tuple[str, ...]) -> None:
    assets = [{"name": name, "text": "x"} for name in names]
    answer = client.post("/api/v1/renders", json={"html": _DECK, "assets": assets})
    assert answer.status_code in {400, 422}
    assert "assets" in answer.json()["detail"]


def test_a_deck_that_never_ends_is_ended_and_said_so(hurried: httpx.Client) -> None:
    deck = f"{_STYLE}<section class=slide>x</section><script>for(;;);</script>"
    begun = hurried.post("/api/v1/renders", json={"html": deck, "background": True}).json()
    deadline = time.monotonic() + _WAIT_S
    while (shown := hurried.get(f"/api/v1/renders/{begun['id']}").json())["finished_at"] is None:
        assert time.monotonic() < deadline
        hurried.get(f"/api/v1/renders/{begun['id']}/events")
    assert shown["status"] == "failed"
    assert shown["reason"] in {"page_hung", "timeout", "load_failed"}
    refused = hurried.get(f"/api/v1/renders/{begun['id']}/result")
    assert (refused.status_code, refused.json()["code"]) == (422, "render_failed")


def test_a_page_whose_scripts_are_not_there_fails_and_says_what_it_missed(client: httpx.Client) -> None:
    deck = "<script src=https://example.com/app.js></script><script>app.start()</script>"
    begun = client.post("/api/v1/renders", json={"html": deck, "background": True}).json()
    client.get(f"/api/v1/renders/{begun['id']}/events")

    shown = client.get(f"/api/v1/renders/{begun['id']}").json()
    assert (shown["status"], shown["reason"]) == ("failed", "no_slides")
    assert shown["missing"] == [{"url": "https://example.com/app.js", "count": 1}]
    assert shown["script_errors"] == ["ReferenceError: app is not defined (line 1)"]
    at_once = client.post("/api/v1/renders", json={"html": deck})
    assert at_once.json()["detail"] == (
        "no slide elements found for selector '.slide'; the page asked in vain for https://example.com/app.js; "
        "a script of it failed: ReferenceError: app is not defined (line 1)"
    )


def test_a_render_that_is_deleted_ends(client: httpx.Client) -> None:
    deck = f"{_STYLE}<section class=slide>x</section><script>for(;;);</script>"
    begun = client.post("/api/v1/renders", json={"html": deck, "background": True}).json()
    assert client.delete(f"/api/v1/renders/{begun['id']}").status_code == 204

    # Its place is free again, and nothing of it comes back.
    assert client.post("/api/render", json={"html": _DECK}).status_code == 200
    assert client.get(f"/api/v1/renders/{begun['id']}").status_code == 404


def test_every_render_is_in_the_audit_record(rendering: Served, client: httpx.Client) -> None:
    assert client.post("/api/render", json={"html": _DECK}).status_code == 200
    with rendering.client("adam") as adam:
        found = adam.get("/audit", params={"action": "render.create", "limit": 1}).json()["items"][0]
    assert found["outcome"] == "ok"
    assert found["sandbox_id"].startswith("sbx_")
    assert (found["details"]["slides"], found["details"]["version"]) == (2, "v1")
    assert "First words" not in json.dumps(found)


def test_a_call_does_not_wait_for_background_renders(client: httpx.Client) -> None:
    endless = f"{_STYLE}<section class=slide>x</section><script>for(;;);</script>"
    begun = [client.post("/api/v1/renders", json={"html": endless, "background": True}).json() for _ in range(3)]

    assert client.post("/api/render", json={"html": _DECK}).status_code == 200
    shown = [client.get(f"/api/v1/renders/{each['id']}").json()["status"] for each in begun]
    assert "queued" in shown
    for each in begun:
        assert client.delete(f"/api/v1/renders/{each['id']}").status_code == 204
