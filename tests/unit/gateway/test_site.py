"""The documentation site as a folder: types, revalidation, the policy of its scripts, and no escape from it."""

from __future__ import annotations

import base64
import gzip
import hashlib
from typing import TYPE_CHECKING

import httpx
import pytest
from starlette.exceptions import HTTPException

from warren.gateway.pages.documents import Documents
from warren.gateway.pages.files import StaticFile
from warren.settings import Settings

if TYPE_CHECKING:
    from pathlib import Path

    from starlette.types import Receive, Scope, Send

SCRIPT = "let a = 1 < 2;"


@pytest.fixture
def site(tmp_path: Path) -> Path:
    folder = tmp_path / "site"
    (folder / "howto").mkdir(parents=True)
    (folder / "index.html").write_text(f'<script src="a.js"></script><script>{SCRIPT}</script><p>home')
    (folder / "howto" / "index.html").write_text("<p>how to")
    (folder / "404.html").write_text("<p>lost")
    (folder / "a.js").write_text("let b;")
    (folder / "font.woff2").write_bytes(b"font")
    (tmp_path / "secret.txt").write_text("secret")
    (folder / "link.txt").symlink_to(tmp_path / "secret.txt")
    return folder


async def ask(site: Path, path: str, **headers: str) -> httpx.Response:
    documents = Documents(Settings(), (), (), site=str(site))

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await documents({**scope, "state": {}}, receive, send)
        except HTTPException as exc:
            await send({"type": "http.response.start", "status": exc.status_code, "headers": []})
            await send({"type": "http.response.body", "body": b""})

    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://warren.test") as client:
        return await client.get(path, headers=headers)


@pytest.mark.anyio
async def test_pages_and_files_have_their_types_and_are_revalidated(site: Path) -> None:
    home, how, script, font = [
        await ask(site, path) for path in ("/docs/", "/docs/howto/", "/docs/a.js", "/docs/font.woff2")
    ]
    again = await ask(site, "/docs/a.js", **{"If-None-Match": script.headers["etag"]})

    assert (home.text.endswith("home"), how.text) == (True, "<p>how to")
    assert home.headers["content-type"] == "text/html; charset=utf-8"
    assert script.headers["content-type"].startswith("text/javascript")
    assert font.headers["content-type"] == "font/woff2"
    assert script.headers["cache-control"] == "no-cache"
    assert (again.status_code, again.headers["etag"]) == (304, script.headers["etag"])


@pytest.mark.anyio
@pytest.mark.parametrize("form", ["*", "{}", '"other", {}', "W/{}"])
async def test_a_page_is_known_by_its_tag_in_any_form(site: Path, form: str) -> None:
    tag = (await ask(site, "/docs/a.js")).headers["etag"].removeprefix("W/")

    assert (await ask(site, "/docs/a.js", **{"If-None-Match": form.format(tag)})).status_code == 304


@pytest.mark.anyio
async def test_the_page_of_a_lost_browser_is_never_unchanged(site: Path) -> None:
    lost = await ask(site, "/docs/nowhere", Accept="text/html")
    again = await ask(site, "/docs/nowhere", Accept="text/html", **{"If-None-Match": lost.headers["etag"]})

    assert [(each.status_code, each.text) for each in (lost, again)] == [(404, "<p>lost")] * 2


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("accepted", "is_packed"),
    [("gzip", True), ("br, GZIP;q=0.5", True), ("gzip;q=0", False), ("br, gzip; q=0.000", False), ("br", False)],
)
async def test_a_packed_file_is_sent_as_the_client_takes_it(accepted: str, is_packed: bool) -> None:
    file = StaticFile(content=gzip.compress(b"let b;"), name="a.js", is_gzip=True)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(file), base_url="http://warren.test") as client:
        answer = await client.get("/", headers={"Accept-Encoding": accepted})

    assert (answer.headers.get("content-encoding") == "gzip") is is_packed
    assert answer.text == "let b;"


@pytest.mark.anyio
async def test_the_policy_allows_the_scripts_of_the_page_and_no_other(site: Path) -> None:
    policy = (await ask(site, "/docs/")).headers["content-security-policy"]
    digest = base64.b64encode(hashlib.sha256(SCRIPT.encode()).digest()).decode()

    assert f"script-src 'self' 'sha256-{digest}';" in policy
    assert "default-src 'none'" in policy
    assert "sandbox" not in (await ask(site, "/docs/a.js")).headers["content-security-policy"], (
        "a worker would not start"
    )


@pytest.mark.anyio
async def test_a_folder_has_a_slash_and_a_browser_that_is_lost_gets_the_page_for_that(site: Path) -> None:
    folder = await ask(site, "/docs/howto")
    lost, program = await ask(site, "/docs/none", accept="text/html"), await ask(site, "/docs/none")

    assert (folder.status_code, folder.headers["location"]) == (307, "./howto/")
    assert (lost.status_code, lost.text, program.status_code) == (404, "<p>lost", 404)


@pytest.mark.anyio
@pytest.mark.parametrize(
    "path", ["/docs/%2e%2e/secret.txt", "/docs/howto/%2e%2e/%2e%2e/secret.txt", "/docs//etc/passwd", "/docs/link.txt"]
)
async def test_no_path_leaves_the_folder(site: Path, path: str) -> None:
    assert (await ask(site, path)).status_code == 404


@pytest.mark.anyio
async def test_without_a_site_one_sentence_says_what_builds_it(tmp_path: Path) -> None:
    home = await ask(tmp_path, "/docs/")

    assert "make docs-site" in home.text
    assert 'href="/docs/api"' in home.text
    assert (await ask(tmp_path, "/docs/howto/")).status_code == 404
