"""Shared links: they open one thing, for a while, in the name of their owner, and nothing else."""

from __future__ import annotations

import base64
import contextlib
import json
import os
from typing import TYPE_CHECKING, Any

import anyio
import httpx
import pytest
from websockets.sync.client import connect
from websockets.typing import Origin

from api.inside import Inside
from api.served import DEADLINE_S, Served, wait_for
from warren.core.audit.log import Audit
from warren.core.identity.keys import Keys
from warren.core.policy.policy import Policy
from warren.stores.sqlite import SqliteStore

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from warren.settings import Settings


@pytest.fixture(scope="module")
def inside(bare: Served) -> Iterator[Inside]:
    with bare.client("ann") as ann:
        made = ann.post("/sandboxes", json={}).json()["id"]
        yield Inside(ann, made)
        ann.delete(f"/sandboxes/{made}")


@pytest.fixture
def anybody(bare: Served) -> Iterator[httpx.Client]:
    """A client without a key."""
    with httpx.Client(base_url=bare.url, timeout=DEADLINE_S, trust_env=False) as client:
        yield client


def share(inside: Inside, **asked: Any) -> str:
    made = inside.client.post(f"/sandboxes/{inside.sandbox}/links", json=asked)
    assert made.status_code == 201, made.text
    url: str = made.json()["url"]
    return url


def test_a_shared_link_shows_a_server_without_a_key(inside: Inside, anybody: httpx.Client) -> None:
    url = share(inside, kind="port", port=inside.port)

    said = anybody.post(f"{url}echo?x=1", content=b"hi").json()
    headers = {name.lower(): value for name, value in said["headers"]}

    assert url.startswith("/s/")
    assert (said["target"], said["body"]) == ("/echo?x=1", "hi")
    assert headers["x-forwarded-prefix"] == url.rstrip("/")


def test_a_link_without_its_slash_leads_to_the_one_with_it(inside: Inside, anybody: httpx.Client) -> None:
    url = share(inside, kind="port", port=inside.port)

    answer = anybody.get(f"{url.rstrip('/')}?a=1")

    assert answer.status_code == 308
    assert answer.next_request is not None
    assert answer.next_request.url.raw_path.decode() == f"{url}?a=1"


def test_a_redirect_stays_below_the_link(inside: Inside, anybody: httpx.Client) -> None:
    url = share(inside, kind="port", port=inside.port)
    raw = b"HTTP/1.1 302 Found\r\nLocation: /next\r\nContent-Length: 0\r\n\r\n"

    assert anybody.get(url.rstrip("/") + inside.say(raw)).headers["location"] == f"{url}next"


def test_a_file_is_read_by_its_link(inside: Inside, anybody: httpx.Client) -> None:
    inside.client.put(f"/sandboxes/{inside.sandbox}/files/out/r%C3%A9sum%C3%A9.txt", content=b"0123456789")
    url = share(inside, kind="file", path="out/résumé.txt")

    assert url.endswith("/r%C3%A9sum%C3%A9.txt")
    assert anybody.get(url).content == b"0123456789"
    assert anybody.get(url.rpartition("/")[0]).content == b"0123456789"
    assert anybody.head(url).headers["content-length"] == "10"
    part = anybody.get(url, headers={"Range": "bytes=2-4"})
    assert (part.status_code, part.content) == (206, b"234")


@pytest.mark.parametrize("method", ["PUT", "DELETE", "POST", "PATCH"])
def test_a_link_to_read_does_nothing_else(inside: Inside, anybody: httpx.Client, method: str) -> None:
    inside.client.put(f"/sandboxes/{inside.sandbox}/files/kept.txt", content=b"kept")
    url = share(inside, kind="file", path="kept.txt")

    answer = anybody.request(method, url, content=b"changed")

    assert (answer.status_code, answer.headers["allow"]) == (405, "GET, HEAD")
    assert inside.client.get(f"/sandboxes/{inside.sandbox}/files/kept.txt").content == b"kept"


def test_a_file_is_written_by_its_link_and_no_larger_than_it_says(inside: Inside, anybody: httpx.Client) -> None:
    url = share(inside, kind="file", path="in/data.bin", method="PUT", max_bytes=10)
    unsaid = (piece for piece in (b"12345", b"678901"))

    assert anybody.put(url, content=b"0123456789").status_code == 204
    assert anybody.put(url, content=b"0123456789x").status_code == 413
    assert anybody.put(url, content=unsaid).status_code == 413
    assert anybody.put(f"{url}?mode=0777", content=b"again").status_code == 204
    assert anybody.get(url).status_code == 405
    found = inside.client.get(f"/sandboxes/{inside.sandbox}/files/in/data.bin")
    assert found.content == b"again"


def test_a_link_leads_to_one_thing(inside: Inside, anybody: httpx.Client) -> None:
    inside.client.put(f"/sandboxes/{inside.sandbox}/files/one/a.txt", content=b"a")
    inside.client.put(f"/sandboxes/{inside.sandbox}/files/b.txt", content=b"b")
    url = share(inside, kind="file", path="one/a.txt").rpartition("/")[0]

    for rest in ("/b.txt", "/../b.txt", "/a.txt/x", "/a.txt/", "/..%2fb.txt"):
        assert anybody.get(url + rest).status_code == 404, rest


def test_a_token_that_was_changed_anywhere_opens_nothing(inside: Inside, anybody: httpx.Client) -> None:
    inside.client.put(f"/sandboxes/{inside.sandbox}/files/a.txt", content=b"a")
    token = share(inside, kind="file", path="a.txt").split("/")[2]
    body, _, mac = token.partition(".")
    claims = json.loads(base64.urlsafe_b64decode(body + "=="))
    other = base64.urlsafe_b64encode(json.dumps(claims | {"target": "b.txt"}).encode()).rstrip(b"=").decode()
    forged = [f"{other}.{mac}", f"{body}.{'A' * 43}", body, f"{body}.", f".{mac}", f"{token}A", token[:-1], "x.y"]

    for each in forged:
        answer = anybody.get(f"/s/{each}")
        assert answer.status_code == 404, each
        assert each not in answer.text
    assert anybody.get(f"/s/{token}").status_code == 200


def test_a_link_expires(inside: Inside, anybody: httpx.Client) -> None:
    inside.client.put(f"/sandboxes/{inside.sandbox}/files/a.txt", content=b"a")
    url = share(inside, kind="file", path="a.txt", expires_in_seconds=1)

    answer = wait_for(lambda: found if (found := anybody.get(url)).status_code != 200 else None)

    assert answer.status_code == 403
    assert answer.json()["detail"] == "this link has expired: ask its sender for another"


def test_nothing_is_shared_for_longer_than_the_operator_allows(inside: Inside) -> None:
    body = {"kind": "port", "port": 5000, "expires_in_seconds": 8 * 86_400}

    answer = inside.client.post(f"/sandboxes/{inside.sandbox}/links", json=body)

    assert answer.status_code == 400
    assert answer.json()["detail"] == "a link is good for 1 to 604800 seconds"


@pytest.mark.parametrize(
    "body",
    [
        {"kind": "port"},
        {"kind": "port", "port": 0},
        {"kind": "port", "port": 5000, "path": "x"},
        {"kind": "port", "port": 5000, "method": "PUT"},
        {"kind": "file"},
        {"kind": "file", "path": "folder/"},
        {"kind": "file", "path": "x", "max_bytes": 1},
        {"kind": "file", "path": "x", "method": "DELETE"},
        {"kind": "terminal", "terminal": "../x"},
        {"kind": "all"},
    ],
)
def test_what_makes_no_sense_is_not_shared(inside: Inside, body: dict[str, Any]) -> None:
    assert inside.client.post(f"/sandboxes/{inside.sandbox}/links", json=body).status_code == 422


def test_only_the_owner_shares_and_no_more_than_their_key_allows(bare: Served, inside: Inside) -> None:
    body = {"kind": "file", "path": "a.txt"}
    for who, status in {"anonymous": 401, "bob": 404, "adam": 403, "rita": 404}.items():
        with bare.client(who) as client:
            assert client.post(f"/sandboxes/{inside.sandbox}/links", json=body).status_code == status, who
    with bare.client("rita") as rita:
        answer = rita.post(f"/sandboxes/{inside.sandbox}/links", json=body | {"method": "PUT"})

    assert answer.status_code == 403


def test_a_link_ends_with_its_sandbox(bare: Served, anybody: httpx.Client) -> None:
    with bare.client("ann") as ann:
        sandbox = ann.post("/sandboxes", json={}).json()["id"]
        ann.put(f"/sandboxes/{sandbox}/files/a.txt", content=b"a")
        url = ann.post(f"/sandboxes/{sandbox}/links", json={"kind": "file", "path": "a.txt"}).json()["url"]
        assert anybody.get(url).status_code == 200
        ann.delete(f"/sandboxes/{sandbox}")

    assert anybody.get(url).status_code == 404


def test_a_links_websocket_needs_no_key_and_no_origin(bare: Served, inside: Inside) -> None:
    """A page that a link shows has no origin, and its WebSockets say so."""
    url = share(inside, kind="port", port=inside.port)

    with pytest.raises(Exception, match="502"):
        connect(f"ws://127.0.0.1:{bare.port}{url}echo", origin=Origin("null"), proxy=None)


def test_a_terminal_is_shared_by_its_link(bare: Served, inside: Inside) -> None:
    url = share(inside, kind="terminal", terminal="shared")

    with connect(f"ws://127.0.0.1:{bare.port}{url}?cols=100&rows=30", origin=Origin("null"), proxy=None) as terminal:
        ready = json.loads(terminal.recv(timeout=DEADLINE_S))
        terminal.send(b"echo $((6*7))\n")
        shown = b""
        while b"42" not in shown:
            message = terminal.recv(timeout=DEADLINE_S)
            assert isinstance(message, bytes)
            shown += message
        terminal.send(json.dumps({"type": "close"}))

    assert ready["name"] == "shared"
    assert httpx.get(f"{bare.url}{url}", timeout=DEADLINE_S, trust_env=False).status_code == 404
    assert httpx.delete(f"{bare.url}{url}", timeout=DEADLINE_S, trust_env=False).status_code == 404


def test_the_record_names_the_signer_and_the_link(bare: Served, inside: Inside, anybody: httpx.Client) -> None:
    inside.client.put(f"/sandboxes/{inside.sandbox}/files/noted.txt", content=b"a")
    made = inside.client.post(f"/sandboxes/{inside.sandbox}/links", json={"kind": "file", "path": "noted.txt"}).json()
    anybody.get(made["url"])
    # A download is written down once all of it was sent, which its reader may know first.
    asked: dict[str, str | int] = {"sandbox_id": inside.sandbox, "action": "file.read", "limit": 1}
    with bare.client("adam") as adam:
        wait_for(lambda: "noted.txt" in str(adam.get("/audit", params=asked).json()["items"]))
        entries = adam.get("/audit", params={"sandbox_id": inside.sandbox, "limit": 100}).json()["items"]

    read = next(each for each in entries if each["action"] == "file.read" and "noted.txt" in str(each["details"]))
    assert read["subject"] == "ann"
    assert (read["details"]["via"], read["details"]["link"]) == ("link", made["id"])
    given = next(each for each in entries if each["action"] == "link.create" and each["details"]["link"] == made["id"])
    assert given["details"]["target"] == "noted.txt"
    assert made["url"].split("/")[2] not in json.dumps(entries)


def test_links_are_told_apart_from_paths_in_the_metrics(bare: Served, inside: Inside, anybody: httpx.Client) -> None:
    token = share(inside, kind="port", port=inside.port).split("/")[2]
    anybody.get(f"/s/{token}/go")
    anybody.get(f"/s/{token[:-2]}/go")
    with bare.client("adam") as adam:
        numbers = adam.get(f"{bare.url}/metrics").text

    assert 'route="/s/…"' in numbers
    assert token[:20] not in numbers


def test_keys_rotate_and_links_are_taken_back_with_their_key(make_settings: Callable[..., Settings]) -> None:
    served = Served(make_settings("bare"))
    served.start()
    path = os.path.join(served.settings.data_dir, "links.key")
    try:
        with (
            served.client("ann") as ann,
            httpx.Client(base_url=served.url, timeout=DEADLINE_S, trust_env=False) as anybody,
        ):
            sandbox = ann.post("/sandboxes", json={}).json()["id"]
            ann.put(f"/sandboxes/{sandbox}/files/a.txt", content=b"a")

            def share_file() -> str:
                body = {"kind": "file", "path": "a.txt"}
                url: str = ann.post(f"/sandboxes/{sandbox}/links", json=body).json()["url"]
                return url

            first = share_file()
            assert os.stat(path).st_mode & 0o777 == 0o600
            new = f"{os.urandom(32).hex()}\n"
            with open(path) as file:
                replace(path, new + file.read())
            second = share_file()
            assert [anybody.get(url).status_code for url in (first, second)] == [200, 200]
            replace(path, new)
            assert [anybody.get(url).status_code for url in (first, second)] == [404, 200]
            os.unlink(path)
            assert [anybody.get(url).status_code for url in (first, second)] == [404, 404]
            assert anybody.get(share_file()).status_code == 200
            ann.delete(f"/sandboxes/{sandbox}")
    finally:
        served.stop()


def replace(path: str, text: str) -> None:
    """Write another file in the place of one, as an operator does."""
    with open(f"{path}.new", "w", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
        file.write(text)
    os.rename(f"{path}.new", path)


@contextlib.asynccontextmanager
async def keys_of(served: Served) -> AsyncIterator[Keys]:
    """The keys of a service, as another process on its data folder has them."""
    store = SqliteStore(served.settings.data_dir)
    await store.open()
    try:
        yield Keys(store, Audit(store, Policy()))
    finally:
        await store.close()


async def make_key(served: Served, name: str) -> str:
    async with keys_of(served) as keys:
        return (await keys.create(name, tenant="tests", subject="ann"))[1]


async def revoke_key(served: Served, name: str) -> None:
    async with keys_of(served) as keys:
        await keys.revoke(name)


def test_a_link_ends_with_the_key_that_gave_it(bare: Served, anybody: httpx.Client) -> None:
    with bare.client("ann") as ann:
        sandbox = ann.post("/sandboxes", json={}).json()["id"]
    secret = anyio.run(make_key, bare, "short")
    with bare.client("ann", headers={"Authorization": f"Bearer {secret}"}) as short:
        short.put(f"/sandboxes/{sandbox}/files/a.txt", content=b"a")
        url = short.post(f"/sandboxes/{sandbox}/links", json={"kind": "file", "path": "a.txt"}).json()["url"]
    assert anybody.get(url).status_code == 200
    anyio.run(revoke_key, bare, "short")

    answer = wait_for(lambda: found if (found := anybody.get(url)).status_code != 200 else None)

    assert answer.status_code == 403
    assert answer.json()["detail"] == "the sender of this link may no longer do what it is for: ask for another"
    with bare.client("ann") as ann:
        ann.delete(f"/sandboxes/{sandbox}")
