"""Attacks on the package cache: by tenants, and by indexes that lie, break off or change."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import threading
from typing import TYPE_CHECKING

import anyio
import pytest
from anyio import to_thread

from api.package_server import build_wheel, shelving
from unit.core.mirrored import HOST, JSON, mirroring
from unit.local.forked import needs_root
from warren.core.packages.fetch import Fetcher, Unfetched
from warren.core.packages.sources import PackageSources, Source

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
    from pathlib import Path


def run(body: Callable[[], Awaitable[None]]) -> None:
    anyio.run(body)


def kept(folder: Path) -> dict[str, str]:
    """Return what is kept: the hash in each name, and that of what is there."""
    found = {}
    for entry in os.scandir(folder / "files"):
        with open(entry.path, "rb") as file:
            found[entry.name] = hashlib.new(entry.name.partition("-")[0], file.read()).hexdigest()
    return found


async def read(pieces: AsyncIterator[bytes], got: list[bytes]) -> None:
    """Read what comes, as far as it comes."""
    async for piece in pieces:
        got += [piece]


@pytest.mark.parametrize("in_one_piece", [True, False])
def test_a_file_with_a_wrong_hash_is_never_served(tmp_path: Path, in_one_piece: bool) -> None:
    async def body() -> None:
        with shelving() as shelf:
            path = shelf.put("little", "1.0", pad=0 if in_one_piece else 3 << 20)
            honest = shelf.files[path]
            shelf.files[path] = honest[:-1] + b"!"
            async with mirroring(tmp_path, shelf) as mirror:
                url = (await mirror.page("little"))[0]["url"]
                _, _, pieces = await mirror.begin(url)
                got: list[bytes] = []
                with pytest.raises(Unfetched, match="does not have the hash that its index names"):
                    await read(pieces, got)
                assert sum(map(len, got)) < len(honest)
                assert os.listdir(tmp_path / "files") == []
                shelf.files[path] = honest
                assert (await mirror.ask(url)).body == honest
            assert os.listdir(tmp_path / "incoming") == []

    run(body)


def test_an_index_that_changes_a_file_changes_nothing_that_is_kept(tmp_path: Path) -> None:
    async def body() -> None:
        with shelving() as shelf:
            path = shelf.put("little", "1.0")
            honest = shelf.files[path]
            async with mirroring(tmp_path, shelf) as mirror:
                url = (await mirror.page("little"))[0]["url"]
                await mirror.ask(url)
                evil = shelf.files[path] = build_wheel("little", "1.0", script="evil")
                before = (await mirror.ask(url)).body
                # Now the page says so too: it is another file, and who asks for the one before gets none.
                shelf.pages["little"][0]["hashes"] = {"sha256": hashlib.sha256(evil).hexdigest()}
                after = (await mirror.page("little"))[0]["url"]
                gone = await mirror.ask(url)
                other = (await mirror.ask(after)).body

        assert before == honest
        assert (gone.status, other, after != url) == (404, evil, True)
        assert {name.partition("-")[2] for name in kept(tmp_path)} == set(kept(tmp_path).values())

    run(body)


def test_what_breaks_off_is_not_kept_and_begun_again(tmp_path: Path) -> None:
    async def body() -> None:
        with shelving() as shelf:
            path = shelf.put("little", "1.0", pad=100_000)
            shelf.cut[path] = 50_000
            async with mirroring(tmp_path, shelf) as mirror:
                url = (await mirror.page("little"))[0]["url"]
                with pytest.raises(Unfetched):
                    await mirror.ask(url)
                left = os.listdir(tmp_path / "files")
                shelf.cut.clear()
                whole = await mirror.ask(url)

        assert (left, os.listdir(tmp_path / "incoming")) == ([], [])
        assert whole.body == shelf.files[path]

    run(body)


TRICKS = (
    "/pypi/simple/../../etc/passwd",
    "/pypi/simple/%2e%2e/",
    "/pypi/simple/a%2fb/",
    "/pypi/simple//",
    "/pypi/simple/little%00/",
    "/pypi/simple/-x/",
    "/pypi/files/little/../../x.whl",
    "/pypi/files/little/{sha}/..%2f..%2fevil.whl",
    "/pypi/files/little/{sha}/other-1.0-py3-none-any.whl",
    "/pypi/files/other/{sha}/little-1.0-py3-none-any.whl",
    "/pypi/files/little/unhashed/little-1.0-py3-none-any.whl",
    "/pypi/files/little/{zeros}/little-1.0-py3-none-any.whl",
    "/pypi/files/Little/{sha}/little-1.0-py3-none-any.whl",
    "/pypi/files/little/{sha}/little-1.0-py3-none-any.whl.metadata",
    "/npm/../pypi",
    "/npm/@a/b/c/d",
    "/npm/http:%2f%2f127.0.0.1%2fx",
    "/npm/thing/-/..%2fthing.tgz",
    "/files/sha256-{sha}",
    "//pypi/simple/little/",
    "http://127.0.0.1/",
    "",
    "/" + "x" * 5000,
    "/pypi/simple/" + "x" * 300,
    "/pypi/simple/ü/",
)


def test_a_request_names_what_the_index_names_or_nothing(tmp_path: Path) -> None:
    async def body() -> None:
        with shelving() as shelf:
            path = shelf.put("little", "1.0")
            shelf.put("other", "2.0")
            shelf.put_npm("thing", "1.0.0")
            sha = hashlib.sha256(shelf.files[path]).hexdigest()
            async with mirroring(tmp_path, shelf) as mirror:
                await mirror.download("little")
                before, asked = kept(tmp_path), len(shelf.asked)
                statuses = {trick: (await mirror.ask(trick.format(sha=sha, zeros="0" * 64))).status for trick in TRICKS}

            assert statuses == dict.fromkeys(TRICKS, 404)
            # Only names that were checked became part of an address.
            assert set(shelf.asked[asked:]) <= {"/simple/little/", "/simple/other/", "/npm/thing"}
            assert kept(tmp_path) == before

    run(body)


def test_nothing_can_be_put_into_the_cache(tmp_path: Path) -> None:
    async def body() -> None:
        with shelving() as shelf:
            shelf.put("little", "1.0")
            async with mirroring(tmp_path, shelf) as mirror:
                url = (await mirror.page("little"))[0]["url"]
                statuses = {
                    (await mirror.ask(each, method=method)).status
                    for each in (url, "/pypi/simple/little/", "/npm/x")
                    for method in ("PUT", "POST", "DELETE", "PATCH", "OPTIONS", "CONNECT")
                }

        assert statuses == {405}
        assert os.listdir(tmp_path / "files") == []

    run(body)


def test_what_has_no_hash_is_served_and_never_shared(tmp_path: Path) -> None:
    async def body() -> None:
        with shelving() as shelf:
            path = shelf.put("little", "1.0", with_hash=False)
            weak = shelf.put_npm("old", "1.0.0", with_integrity=False)
            async with mirroring(tmp_path, shelf) as mirror:
                first = await mirror.download("little")
                shelf.files[path] = build_wheel("little", "1.0", pad=10)
                second = await mirror.download("little")
                assert (await mirror.ask("/npm/old/-/old-1.0.0.tgz")).status == 200
                shelf.files[weak] += b"!"
                with pytest.raises(Unfetched, match="does not have the hash"):
                    await mirror.ask("/npm/old/-/old-1.0.0.tgz")

        assert (first.body, second.body) == (build_wheel("little", "1.0"), shelf.files[path])
        assert (first.headers["cache-control"], os.listdir(tmp_path / "files")) == ("no-store", [])

    run(body)


def test_md5_and_broken_hashes_do_not_count(tmp_path: Path) -> None:
    async def body() -> None:
        with shelving() as shelf:
            for name, hashes in (
                ("weak", {"md5": "0" * 32}),
                ("short", {"sha256": "abc"}),
                ("odd", {"sha256": "../x"}),
            ):
                shelf.put(name, "1.0")
                shelf.pages[name][0]["hashes"] = hashes
            async with mirroring(tmp_path, shelf) as mirror:
                pages = [(await mirror.page(name))[0] for name in ("weak", "short", "odd")]

        assert [page["hashes"] for page in pages] == [{}, {}, {}]
        assert all("/unhashed/" in page["url"] for page in pages)

    run(body)


def test_an_index_leads_nowhere_inside(tmp_path: Path) -> None:
    """Neither by a link nor by a redirect, nor to a file of this machine."""
    secret = tmp_path / "secret-1.0-py3-none-any.whl"
    secret.write_bytes(b"secret")

    async def body() -> None:
        with shelving() as shelf, shelving() as inside:
            path = inside.put("little", "1.0")
            places = (
                f"http://127.0.0.1:{inside.port}{path}",
                f"http://localhost:{inside.port}{path}",
                "http://169.254.169.254/latest-1.0-py3-none-any.whl",
                "http://[::1]:1/x-1.0-py3-none-any.whl",
                f"file://{secret}",
                "ftp://127.0.0.1/x-1.0-py3-none-any.whl",
            )
            refused = []
            async with mirroring(tmp_path / "kept", shelf) as mirror:
                for at, place in enumerate(places):
                    linked, redirected = f"linked{at}", f"redirected{at}"
                    shelf.put(linked, "1.0")
                    shelf.pages[linked][0]["url"] = place.replace("little", linked).replace("x-1", f"{linked}-1")
                    shelf.redirects[shelf.put(redirected, "1.0")] = place
                    for name in (linked, redirected):
                        page = await mirror.ask(f"/pypi/simple/{name}/", **JSON)
                        found = json.loads(page.body)["files"] if page.status == 200 else []
                        refused += [page] if not found else [await mirror.ask(found[0]["url"])]
            assert inside.asked == []

        assert len(refused) == 2 * len(places)
        assert {reply.status for reply in refused} <= {404, 502}

    run(body)


def test_redirects_go_to_the_index_itself_or_where_the_operator_says_and_not_in_circles(tmp_path: Path) -> None:
    async def body() -> None:
        with shelving() as shelf, shelving() as inside:
            path = shelf.put("little", "1.0")
            inside.files[path] = shelf.files[path]
            shelf.files["/moved"] = shelf.files.pop(path)
            shelf.redirects[path] = "/moved"
            shelf.redirects[shelf.put("round", "1.0")] = "/files/round-1.0-py3-none-any.whl"
            shelf.put("other", "1.0")
            shelf.redirects["/files/other-1.0-py3-none-any.whl"] = f"http://localhost:{inside.port}/o"
            inside.files["/o"] = shelf.files["/files/other-1.0-py3-none-any.whl"]
            async with mirroring(tmp_path, shelf, hosts=frozenset({"localhost"})) as mirror:
                replies = {name: await mirror.download(name) for name in ("little", "round", "other")}

        assert {name: reply.status for name, reply in replies.items()} == {"little": 200, "round": 502, "other": 200}
        assert b"in circles" in replies["round"].body

    run(body)


def test_an_https_index_leads_to_https_only(tmp_path: Path) -> None:
    async def body() -> None:
        with shelving() as shelf:
            shelf.put("little", "1.0")
            secure = Source(url=f"https://127.0.0.1:{shelf.port}/simple/")
            async with mirroring(tmp_path, secure) as mirror:
                reply = await mirror.ask("/pypi/simple/little/", **JSON)
            # What a page of such an index may lead to.
            fetcher = Fetcher(PackageSources(python=(secure,)))
            with pytest.raises(Unfetched, match="only https is followed"):
                await fetcher.get_page(shelf.url, secure, {})

        # It speaks no TLS, and is not asked without.
        assert (reply.status, shelf.asked) == (502, [])

    run(body)


def test_files_are_bounded_whatever_the_index_says_of_them(tmp_path: Path) -> None:
    async def body() -> None:
        with shelving() as shelf:
            path = shelf.put("little", "1.0", pad=100_000)
            async with mirroring(tmp_path, shelf, file_bytes=50_000) as mirror:
                reply = await mirror.download("little")

        assert (reply.status, shelf.count(path)) == (502, 1)
        assert b"packages.file_bytes" in reply.body
        assert (os.listdir(tmp_path / "files"), os.listdir(tmp_path / "incoming")) == ([], [])

    run(body)


_DOOMED = """
import sys
import anyio
from unit.core.mirrored import mirroring
from warren.core.packages.sources import Source

async def main(folder, url):
    async with mirroring(folder, Source(url=url)) as mirror:
        await mirror.download("little")

anyio.run(main, sys.argv[1], sys.argv[2])
"""


def start_doomed(*arguments: str) -> subprocess.Popen[bytes]:
    """Start a process that downloads, to be killed."""
    env = {"PYTHONPATH": os.pathsep.join(["tests", "src"]), "PATH": os.defpath}
    return subprocess.Popen([sys.executable, "-c", _DOOMED, *arguments], env=env)


@pytest.mark.rest("kills a download at every point: half a minute of processor time")
def test_a_service_that_is_killed_in_the_middle_leaves_nothing_half(tmp_path: Path) -> None:
    async def body() -> None:
        with shelving() as shelf:
            path = shelf.put("little", "1.0", pad=1 << 20)
            hold = shelf.held[path] = threading.Event()
            process = start_doomed(str(tmp_path), shelf.url)
            await to_thread.run_sync(shelf.middle.wait)
            process.send_signal(signal.SIGKILL)
            await to_thread.run_sync(process.wait)
            left = os.listdir(tmp_path / "incoming")
            hold.set()
            async with mirroring(tmp_path, shelf) as mirror:
                reply = await mirror.download("little")

        assert len(left) <= 1
        assert os.listdir(tmp_path / "incoming") == []
        assert reply.body == shelf.files[path]
        assert [name.partition("-")[2] for name in kept(tmp_path)] == [*kept(tmp_path).values()]

    run(body)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "disk"
    path.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", path], check=True)
    yield path
    subprocess.run(["umount", path], check=True)


@pytest.mark.root
@needs_root
def test_a_full_disk_is_said_and_loses_nothing_that_was_kept(small_disk: Path) -> None:
    async def body() -> None:
        with shelving() as shelf:
            small, large = shelf.put("small", "1.0", pad=100_000), shelf.put("large", "1.0", pad=3 << 20)
            async with mirroring(small_disk, shelf) as mirror:
                first = await mirror.download("small")
                failed = await ask_in_vain(mirror.download, "large")
                again = await mirror.download("small")

        assert first.body == again.body == shelf.files[small]
        assert (shelf.count(small), shelf.count(large)) == (1, 1)
        assert "the disk of the service is full" in failed
        assert os.listdir(small_disk / "incoming") == []

    run(body)


async def ask_in_vain(ask: Callable[..., Awaitable[object]], *arguments: str) -> str:
    """Return why an answer broke off, or the body of a refusal."""
    try:
        reply = await ask(*arguments)
    except Exception as error:  # noqa: BLE001 - whatever it was, its words are looked at
        return str(error)
    return bytes(getattr(reply, "body", b"")).decode()


def test_pages_that_are_garbage_are_refused_and_do_not_replace_what_was_kept(tmp_path: Path) -> None:
    async def body() -> None:
        with shelving() as shelf:
            shelf.put("little", "1.0")
            async with mirroring(tmp_path, shelf) as mirror:
                good = await mirror.page("little")
                replies = []
                for shelf.garbage in (b"{", b"[]", b'{"files": 7}', b'{"files": [{"filename": 1}]}', b"\xff" * 100):
                    replies.append(await mirror.ask("/pypi/simple/little/", **JSON))
                shelf.garbage = None
                after = await mirror.page("little")

        assert {reply.status for reply in replies} <= {404, 502}
        assert after == good
        assert good[0]["url"].startswith(f"{HOST}/pypi/files/little/")

    run(body)


def test_one_tenant_cannot_learn_from_the_cache_what_another_has_installed(tmp_path: Path) -> None:
    """Only by how long it takes: nothing lists what is kept."""

    async def body() -> None:
        with shelving() as shelf:
            shelf.put("little", "1.0")
            async with mirroring(tmp_path, shelf) as mirror:
                await mirror.download("little")
                listings = [await mirror.ask(each) for each in ("/", "/pypi/simple/", "/pypi/files/", "/npm/")]

        assert {reply.status for reply in listings} == {404}
        assert os.stat(tmp_path / "files").st_mode & 0o777 == 0o700

    run(body)
