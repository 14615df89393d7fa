"""Package index of sandboxes: its pages, its cache, and its behaviour while an index is down."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import os
import re
import subprocess
import sys
import threading
from typing import TYPE_CHECKING

import anyio
import pytest

from api.package_server import build_wheel, shelving
from unit.core.mirrored import HOST, JSON, Mirror, mirroring
from warren.bootstrap.package_sources import build_sources
from warren.core.packages.downloads import MAX_DOWNLOADS
from warren.core.packages.setup import PackageDoor, PackageSetup
from warren.core.packages.sources import Source
from warren.domain.records import Owner
from warren.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path


DEADLINE_S = 60.0


def run(body: Callable[[], Awaitable[None]]) -> None:
    anyio.run(body)


@pytest.mark.parametrize("is_html", [False, True])
def test_a_page_names_the_files_of_the_index_at_addresses_of_ours(tmp_path: Path, is_html: bool) -> None:
    async def body() -> None:
        with shelving() as shelf:
            shelf.is_html = is_html
            path = shelf.put("little-thing", "1.0", with_metadata=True)
            sha256 = hashlib.sha256(shelf.files[path]).hexdigest()
            async with mirroring(tmp_path, shelf) as mirror:
                as_json = await mirror.ask("/pypi/simple/Little_Thing/", **JSON)
                as_html = await mirror.ask("/pypi/simple/little-thing/")
                [file] = await mirror.page("little-thing")
                metadata = await mirror.ask(f"{file['url']}.metadata")
                missing = await mirror.ask("/pypi/simple/no-such-project/")

        assert as_json.headers["content-type"] == "application/vnd.pypi.simple.v1+json"
        assert json.loads(as_json.body)["name"] == "little-thing"
        name = "little_thing-1.0-py3-none-any.whl"
        assert file["url"] == f"{HOST}/pypi/files/little-thing/{sha256}/{name}"
        assert (file["hashes"], file["core-metadata"]["sha256"]) == (
            {"sha256": sha256},
            hashlib.sha256(metadata.body).hexdigest(),
        )
        assert f'href="{file["url"]}#sha256={sha256}"' in as_html.body.decode()
        assert (missing.status, missing.body) == (404, b"no package index has no-such-project.\n")

    run(body)


def test_what_was_downloaded_once_is_there_when_the_index_is_not(tmp_path: Path) -> None:
    async def body() -> None:
        with shelving() as shelf:
            path = shelf.put("little", "1.0")
            shelf.put("other", "1.0")
            content = shelf.files[path]
            async with mirroring(tmp_path, shelf) as mirror:
                first = await mirror.download("little")
                await mirror.page("other")
                again = await mirror.download("little")
                counted = shelf.count(path)
        # The shelf is gone: also for another service, later.
        async with mirroring(tmp_path, shelf) as mirror:
            offline = await mirror.download("little")
            page = await mirror.ask("/pypi/simple/little/", **JSON)
            unseen = await mirror.ask("/pypi/simple/unseen/", **JSON)
            other = await mirror.download("other")

        assert first.body == again.body == offline.body == content
        assert counted == 1
        assert first.headers["content-length"] == str(len(content))
        assert "warning" in page.headers
        assert (unseen.status, other.status) == (502, 502)
        assert b"cannot be reached" in unseen.body

    run(body)


def test_pages_are_asked_for_again_and_only_what_changed_is_sent(tmp_path: Path) -> None:
    async def body() -> None:
        with shelving() as shelf:
            shelf.put("little", "1.0")
            async with mirroring(tmp_path / "asks", shelf) as mirror:
                first = await mirror.ask("/pypi/simple/little/", **JSON)
                same = await mirror.ask("/pypi/simple/little/", if_none_match=first.headers["etag"], **JSON)
                shelf.put("little", "2.0")
                newer = await mirror.page("little")
            asked = [headers.get("if-none-match", "") for headers in shelf.headers]
            shelf.max_age = 1000
            async with mirroring(tmp_path / "believes", shelf, page_s=1000.0) as mirror:
                await mirror.page("little")
                before = shelf.count("/simple/little/")
                shelf.put("little", "3.0")
                believed = await mirror.page("little")
                after = shelf.count("/simple/little/")

        assert (same.status, same.body) == (304, b"")
        assert [bool(each) for each in asked] == [False, True, True]
        assert len(newer) == len(believed) == 2
        assert before == after

    run(body)


def test_parts_of_files_are_given_and_heads_without_bodies(tmp_path: Path) -> None:
    async def body() -> None:
        with shelving() as shelf:
            content = shelf.files[shelf.put("little", "1.0", pad=1000)]
            async with mirroring(tmp_path, shelf) as mirror:
                url = (await mirror.page("little"))[0]["url"]
                head = await mirror.ask(url, method="HEAD")
                early = await mirror.ask(url, range="bytes=10-19")
                await mirror.ask(url)
                parts = [await mirror.ask(url, range=f"bytes={each}") for each in ("0-0", "-20", "30-", "5-4", "x")]
                beyond = await mirror.ask(url, range=f"bytes={len(content)}-")

        size = len(content)
        assert (head.status, head.headers["content-length"], head.body) == (200, str(size), b"")
        assert (early.status, early.body) == (206, content[10:20])
        assert early.headers["content-range"] == f"bytes 10-19/{size}"
        assert [each.body for each in parts] == [content[:1], content[-20:], content[30:], b"", content]
        assert (parts[3].status, beyond.status) == (416, 416)
        assert beyond.headers["content-range"] == f"bytes */{size}"

    run(body)


def test_two_who_ask_at_once_share_one_download(tmp_path: Path) -> None:
    async def body() -> None:
        with shelving() as shelf:
            path = shelf.put("little", "1.0", pad=3 << 20)
            hold = shelf.held[path] = type(shelf.middle)()
            async with mirroring(tmp_path, shelf) as mirror:
                url = (await mirror.page("little"))[0]["url"]
                got: list[bytes] = []

                async def ask() -> None:
                    got.append((await mirror.ask(url)).body)

                async with anyio.create_task_group() as tasks:
                    for _ in range(3):
                        tasks.start_soon(ask)
                    await anyio.to_thread.run_sync(shelf.middle.wait)
                    _, _, pending_deletes = await mirror.begin(url)
                    first = await anext(pending_deletes)
                    await pending_deletes.aclose()
                    hold.set()

        content = shelf.files[path]
        assert got == [content] * 3
        assert content.startswith(first)
        assert 0 < len(first) < len(content)
        assert shelf.count(path) == 1

    run(body)


def test_who_looks_at_a_part_and_then_asks_for_all_has_it_downloaded_once(tmp_path: Path) -> None:
    async def body() -> None:
        with shelving() as shelf:
            path = shelf.put("little", "1.0", pad=1 << 20)
            hold = shelf.held[path] = type(shelf.middle)()
            async with mirroring(tmp_path, shelf) as mirror:
                url = (await mirror.page("little"))[0]["url"]
                part = await mirror.ask(url, range="bytes=0-99")
                _, _, pending_deletes = await mirror.begin(url)
                await pending_deletes.aclose()
                hold.set()
                whole = await mirror.ask(url)
            shelf.held[shelf.put("other", "1.0")] = type(hold)()
            async with mirroring(tmp_path, shelf) as mirror:
                # A service that ends does not wait for unread downloads.
                await mirror.begin((await mirror.page("other"))[0]["url"])

        assert (part.body, whole.body) == (shelf.files[path][:100], shelf.files[path])
        assert shelf.count(path) == 1
        assert os.listdir(tmp_path / "incoming") == []

    run(body)


def test_the_least_recently_used_goes_when_the_cache_is_full(tmp_path: Path) -> None:
    async def body() -> None:
        with shelving() as shelf:
            paths = {name: shelf.put(name, "1.0", pad=100_000) for name in ("one", "two", "three")}
            async with mirroring(tmp_path, shelf, cache_bytes=250_000) as mirror:
                for name in ("one", "two", "one", "three", "one"):
                    await mirror.download(name)
                counted = {name: shelf.count(path) for name, path in paths.items()}
                await mirror.download("two")

        assert counted == {"one": 1, "two": 1, "three": 1}
        assert shelf.count(paths["two"]) == 2
        kept = [entry.stat().st_size for entry in os.scandir(tmp_path / "files")]
        assert len(kept) == 2
        assert sum(kept) <= 250_000

    run(body)


def test_several_indexes_and_folders_are_one(tmp_path: Path) -> None:
    async def body() -> None:
        folder, simple = tmp_path / "wheels", tmp_path / "index" / "simple"
        folder.mkdir()
        (simple / "local").mkdir(parents=True)
        (folder / "little-3.0-py3-none-any.whl").write_bytes(build_wheel("little", "3.0"))
        (folder / "notes.txt").write_text("no package")
        wheel = build_wheel("local", "1.0")
        (tmp_path / "index" / "local-1.0-py3-none-any.whl").write_bytes(wheel)
        agent = f"../../local-1.0-py3-none-any.whl#sha256={hashlib.sha256(wheel).hexdigest()}"
        (simple / "local" / "index.html").write_text(f'<a href="{agent}">local</a>')
        with shelving() as first, shelving() as second:
            first.put("little", "1.0")
            second.put("little", "1.0", pad=10)
            second.put("little", "2.0")
            connections = Source(url=f"file://{folder}", is_links=True)
            sources = (Source(url=first.url), Source(url=second.url), Source(url=f"file://{simple}/"), connections)
            async with mirroring(tmp_path / "kept", *sources, is_merged=True) as mirror:
                files = {file["filename"].split("-")[1]: file for file in await mirror.page("little")}
                bodies = {version: (await mirror.ask(file["url"])).body for version, file in files.items()}
                local = await mirror.download("local")

        assert bodies == {version: build_wheel("little", version) for version in ("1.0", "2.0", "3.0")}
        assert second.count("/files/little-1.0-py3-none-any.whl") == 0
        assert local.body == wheel
        # What has no hash is read from its folder each time.
        assert files["3.0"]["hashes"] == {}
        assert len(os.listdir(tmp_path / "kept" / "files")) == 3

    run(body)


def test_the_first_index_that_has_a_project_serves_it_and_no_other_learns_its_name(tmp_path: Path) -> None:
    async def body() -> None:
        (tmp_path / "wheels").mkdir()
        (tmp_path / "wheels" / "private-0.5-py3-none-any.whl").write_bytes(build_wheel("private", "0.5"))
        with shelving() as own, shelving() as public:
            own.put("private", "1.0")
            own.pages["reserved"] = []
            for name in ("private", "reserved", "public"):
                public.put(name, "99.0")
            connections = Source(url=f"file://{tmp_path}/wheels", is_links=True)
            empty = Source(url=f"file://{tmp_path}/nothing/")
            sources = (empty, Source(url=own.url), Source(url=public.url), connections)
            async with mirroring(tmp_path / "kept", *sources) as mirror:
                files = [file["filename"].split("-")[1] for file in await mirror.page("private")]
                got = await mirror.download("private")
                reserved = await mirror.ask("/pypi/simple/reserved/", **JSON)
                elsewhere = await mirror.download("public")
            own.down = True
            async with mirroring(tmp_path / "new", *sources) as mirror:
                unasked = await mirror.ask("/pypi/simple/reserved/", **JSON)

        assert files == ["1.0", "0.5"]
        assert got.body == build_wheel("private", "1.0")
        # A name that is taken is taken, also without files; and who cannot be asked may have it.
        assert (reserved.status, unasked.status) == (404, 502)
        assert elsewhere.body == build_wheel("public", "99.0")
        assert [path for path in public.asked if "private" in path or "reserved" in path] == []

    run(body)


def test_an_index_that_is_away_does_not_take_along_what_another_has_and_it_had_not(tmp_path: Path) -> None:
    async def body() -> None:
        with shelving() as own, shelving() as public:
            public.put("public", "1.0")
            public.put("later", "1.0")
            public.max_age = None
            sources = (Source(url=own.url), Source(url=public.url))
            async with mirroring(tmp_path, *sources, page_s=1000.0) as mirror:
                online = await mirror.download("public")
                # Asked once, and not again for the file.
                asked = own.count("/simple/public/")
            async with mirroring(tmp_path / "new", *sources) as mirror:
                made_up = await mirror.ask("/pypi/simple/made-up/", **JSON)
            own.down = public.down = True
            async with mirroring(tmp_path, *sources) as mirror:
                offline = await mirror.download("public")
                unknown = await mirror.ask("/pypi/simple/later/", **JSON)

        assert (online.status, asked) == (200, 1)
        assert offline.body == online.body
        assert unknown.status == 502
        # Nothing is written of a project that no index has.
        assert made_up.status == 404
        assert os.listdir(tmp_path / "new" / "pages") == []

    run(body)


def test_a_slow_owner_with_many_downloads_delays_no_other(tmp_path: Path) -> None:
    async def body() -> None:
        with shelving() as shelf:
            hold = threading.Event()
            paths = {f"slow{number}": shelf.put(f"slow{number}", "1.0") for number in range(MAX_DOWNLOADS + 16)}
            shelf.held |= dict.fromkeys(paths.values(), hold)
            shelf.put("quick", "1.0")
            got: dict[str, bytes] = {}

            async def download(mirror: Mirror, name: str) -> None:
                got[name] = (await mirror.download(name)).body

            async with mirroring(tmp_path, shelf) as mirror, anyio.create_task_group() as tasks:
                for name in paths:
                    tasks.start_soon(download, mirror, name)
                with anyio.fail_after(DEADLINE_S):
                    while len(set(shelf.asked) & set(paths.values())) < MAX_DOWNLOADS * 2 // 3:  # noqa: ASYNC110
                        await anyio.sleep(0.01)
                    other = Mirror(mirror.index)
                    other.owner = Owner("other", "bob")
                    quick = await other.download("quick")
                    # What waits behind all of them does not delay other requests for it.
                    waiting = next(name for name, path in paths.items() if path not in shelf.asked)
                    del shelf.held[paths[waiting]]
                    joined = await other.download(waiting)
                before = set(got)
                hold.set()

        assert quick.body == build_wheel("quick", "1.0")
        assert joined.body == build_wheel(waiting, "1.0")
        assert before <= {waiting}
        assert got == {name: build_wheel(name, "1.0") for name in paths}

    run(body)


def test_large_pages_are_read_from_a_file_that_lives_until_the_last_reader_ends(tmp_path: Path) -> None:
    async def body() -> None:
        with shelving() as shelf:
            shelf.put("large", "1.0")
            entry = shelf.pages["large"][0]
            shelf.pages["large"] = [
                {**entry, "filename": f"large-{number}.0-py3-none-any.whl"} for number in range(3000)
            ]
            async with mirroring(tmp_path, shelf) as mirror:
                whole = await mirror.ask("/pypi/simple/large/", **JSON)
                before = open_files(tmp_path)
                begun = [(await mirror.begin("/pypi/simple/large/", **JSON))[2] for _ in range(20)]
                firsts = [await anext(each) for each in begun]
                held = open_files(tmp_path)
                rest = b"".join([piece async for piece in begun[0]])
                for each in begun:
                    await each.aclose()

        assert len(json.loads(whole.body)["files"]) == 3000
        assert (held, {len(first) for first in firsts}) == (before, {256 << 10})
        assert firsts[0] + rest == whole.body
        assert whole.headers["content-length"] == str(len(whole.body))

    run(body)


def open_files(folder: Path) -> list[str]:
    """List what is open below a folder; what else this process has open comes and goes."""
    found = []
    for descriptor in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):
            found.append(os.readlink(f"/proc/self/fd/{descriptor}"))
    return sorted(path for path in found if path.startswith(f"{folder}/"))


def test_npm_packages_are_checked_and_kept_too(tmp_path: Path) -> None:
    async def body() -> None:
        with shelving() as shelf:
            path = shelf.put_npm("@scope/thing", "1.0.0")
            old = shelf.put_npm("old", "0.1.0", with_integrity=False)
            async with mirroring(tmp_path, shelf) as mirror:
                replies = [await mirror.ask(f"/npm/{name}") for name in ("@scope%2fthing", "@scope/thing")]
                dist = json.loads(replies[0].body)["versions"]["1.0.0"]["dist"]
                files = [await mirror.ask(dist["tarball"]) for _ in range(2)]
                olds = [await mirror.ask("/npm/old/-/old-0.1.0.tgz") for _ in range(2)]
                missing = await mirror.ask("/npm/@scope/thing/-/thing-9.9.9.tgz")
                ping = await mirror.ask("/npm/-/ping")
            shelf.files[path] = shelf.files[old] = b"something else"

        content = files[0].body
        assert replies[0].body == replies[1].body
        assert dist["tarball"] == f"{HOST}/npm/@scope/thing/-/thing-1.0.0.tgz"
        assert dist["integrity"] == f"sha512-{base64.b64encode(hashlib.sha512(content).digest()).decode()}"
        assert files[1].body == content
        assert (shelf.count(path), shelf.count(old)) == (1, 2)
        assert olds[0].body == olds[1].body
        assert (missing.status, ping.status) == (404, 200)

    run(body)


def test_packages_of_a_scope_come_from_its_registry_and_no_other_is_told_their_names(tmp_path: Path) -> None:
    async def body() -> None:
        with shelving() as own, shelving() as public:
            path = own.put_npm("@corp/tool", "1.0.0")
            public.put_npm("@corp/tool", "99.0.0")
            public.put_npm("@corp/other", "99.0.0")
            public.put_npm("tool", "2.0.0")
            scopes = {"@corp": Source(url=own.npm_url)}
            async with mirroring(tmp_path, public, npm_scopes=scopes) as mirror:
                page = json.loads((await mirror.ask("/npm/@corp%2ftool")).body)
                file = await mirror.ask(page["versions"]["1.0.0"]["dist"]["tarball"])
                other = await mirror.ask("/npm/@corp/other")
                plain = await mirror.ask("/npm/tool")

        assert list(page["versions"]) == ["1.0.0"]
        assert file.body == own.files[path]
        assert (other.status, plain.status) == (404, 200)
        assert public.asked == ["/npm/tool"]

    run(body)


def _read_pip() -> dict[str, str]:
    """Ask pip which index it is configured for, and whom it trusts: Warren reads no file of pip's."""
    asked = subprocess.run([sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=False)
    said = dict(reversed(re.findall(r"^[^.=]*\.([a-z-]+)='(.*)'$", asked.stdout, re.MULTILINE)))
    known = {"index-url": "PIP_INDEX_URL", "cert": "WARREN_PACKAGES_CA_FILE", "proxy": "WARREN_PACKAGES_PROXY"}
    return {variable: said[key] for key, variable in known.items() if key in said}


def test_the_index_that_pip_is_configured_for_is_read(tmp_path: Path) -> None:
    settings = Settings.load({"WARREN_DATA_DIR": str(tmp_path), **_read_pip()}, folder=str(tmp_path))
    sources = build_sources(settings.packages, settings.read_pip_index())

    async def body() -> None:
        async with PackageDoor(PackageSetup(load=lambda: sources, folder=str(tmp_path))) as index:
            mirror = Mirror(index)
            reply = await mirror.ask("/pypi/simple/idna/", **JSON)
            if reply.status == 502:
                pytest.skip(f"the configured index cannot be asked here: {reply.body.decode().strip()}")
            hashed = [file for file in json.loads(reply.body)["files"] if file["hashes"]]
            whole = await mirror.ask(hashed[-1]["url"])
            if whole.status == 502:
                pytest.skip(f"the configured index gives no file here: {whole.body.decode().strip()}")

        assert hashlib.sha256(whole.body).hexdigest() == hashed[-1]["hashes"]["sha256"]

    run(body)


def test_credentials_go_to_the_index_they_are_for_and_nowhere_else(tmp_path: Path) -> None:
    async def body() -> None:
        with shelving() as shelf, shelving() as files:
            files.put("little", "1.0")
            shelf.pages["little"] = [
                {**files.pages["little"][0], "url": f"http://127.0.0.1:{files.port}/files/little-1.0-py3-none-any.whl"}
            ]
            source = Source(url=shelf.url, authorization="Basic c2VjcmV0")
            async with mirroring(tmp_path, source, Source(url=files.url)) as mirror:
                reply = await mirror.download("little")

        assert reply.status == 200
        assert {headers.get("authorization") for headers in shelf.headers} == {"Basic c2VjcmV0"}
        assert {headers.get("authorization") for headers in files.headers} == {None}

    run(body)
