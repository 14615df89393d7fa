"""Tools for models over HTTP: each transport with a real client, whose sandbox is whose, and what may go wrong."""

from __future__ import annotations

import base64
import json
import uuid
from typing import TYPE_CHECKING, Any

import anyio
import httpx
import pytest
from mcp.shared.exceptions import MCPError

from api.mcp_client import EVERY, MODERN, SESSION, SSE, Mcp, text
from api.served import Served
from warren.mcp_server.server import TOOLS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from mcp.client.client import Client

    from warren.settings import Settings

PICTURE = (
    "import base64\nfrom IPython.display import Image, display\n"
    "png = base64.b64decode('iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5Er"
    "kJggg==')\ndisplay(Image(data=png, format='png'))"
)
VERSION = {"MCP-Protocol-Version": MODERN, "Mcp-Method": "tools/list"}
META = {
    "io.modelcontextprotocol/protocolVersion": MODERN,
    "io.modelcontextprotocol/clientInfo": {"name": "t", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}


@pytest.fixture
def mcp(bare: Served) -> Iterator[Mcp]:
    mcp = Mcp(bare)
    yield mcp
    mcp.clear()


@pytest.mark.parametrize("by", EVERY)
def test_a_client_uses_every_tool_over_every_transport(mcp: Mcp, by: str) -> None:
    async def work(client: Client) -> None:
        listed = (await client.list_tools()).tools
        assert [tool.name for tool in listed] == list(TOOLS)
        assert all(tool.annotations and tool.output_schema and tool.description and tool.title for tool in listed)

        ran = await client.call_tool("run_python", {"code": "x = 41\nprint('hi')\nx + 1"})
        assert text(ran) == "hi\n42"
        assert not ran.is_error
        again = await client.call_tool("run_python", {"code": "open('a.txt', 'w').write('one\\ntwo\\n'); x"})
        assert again.structured_content["value"] == "41"
        assert again.structured_content["files_changed"] == [{"path": "a.txt", "action": "created", "size": 8}]

        edited = await client.call_tool("edit_file", {"path": "a.txt", "old": "two", "new": "three"})
        assert edited.structured_content["line"] == 2
        await client.call_tool("write_file", {"path": "b/c.bin", "content": "AAE=", "encoding": "base64"})
        assert text(await client.call_tool("read_file", {"path": "a.txt"})) == "one\nthree\n"
        assert "not text: 2 bytes" in text(await client.call_tool("read_file", {"path": "b/c.bin"}))
        listing = await client.call_tool("list_files", {"recursive": True})
        assert [each["path"] for each in listing.structured_content["files"]] == ["a.txt", "b", "b/c.bin"]

        resources = {each.name: each for each in (await client.list_resources()).resources}
        assert set(resources) == {"a.txt", "b/c.bin"}
        (content,) = (await client.read_resource(resources["a.txt"].uri)).contents
        assert (getattr(content, "text", ""), content.mime_type) == ("one\nthree\n", "text/plain")
        (content,) = (await client.read_resource(resources["b/c.bin"].uri)).contents
        assert base64.b64decode(getattr(content, "blob", "")) == b"\0\1"
        assert (await client.list_resource_templates()).resource_templates[0].uri_template.startswith("warren://")
        assert (await client.list_prompts()).prompts == []

        assert "variables are gone" in text(await client.call_tool("reset_sandbox", {}))
        lost = await client.call_tool("run_python", {"code": "x"})
        assert lost.is_error
        assert "NameError" in text(lost)
        await client.call_tool("reset_sandbox", {"what": "everything"})
        assert "no sandbox yet" in text(await client.call_tool("list_files", {}))

    mcp.talk(work, by=by)


def test_pictures_come_back_as_images_and_long_outputs_with_both_ends(mcp: Mcp) -> None:
    async def work(client: Client) -> None:
        drawn = await client.call_tool("run_python", {"code": PICTURE})
        assert [each.type for each in drawn.content] == ["text", "image"]
        assert drawn.structured_content["images"] == 1

        long = await client.call_tool(
            "run_bash", {"command": "echo begin; head -c 3000000 /dev/zero | tr '\\0' x; echo end"}
        )
        assert len(text(long)) < 25_000
        assert text(long).startswith("begin\nxxx")
        assert text(long).endswith("end")
        assert "left out" in text(long)

    mcp.talk(work)


def test_a_command_in_the_background_is_followed_and_ended(mcp: Mcp) -> None:
    async def work(client: Client) -> None:
        started = await client.call_tool("run_bash", {"command": "echo one; sleep 600", "background": True})
        command = started.structured_content["command_id"]
        seen: dict[str, Any] = {"stdout": ""}
        while not seen["stdout"]:
            seen = (await client.call_tool("check_command", {"command_id": command})).structured_content
        assert (seen["stdout"], seen["running"]) == ("one\n", True)
        ended = await client.call_tool("check_command", {"command_id": command, "kill": True, "after": seen["next"]})
        assert ended.structured_content["running"] is False
        assert "no command exe_nope" in text(await client.call_tool("check_command", {"command_id": "exe_nope"}))

    mcp.talk(work)


@pytest.mark.parametrize("by", EVERY)
def test_a_cancelled_call_kills_what_it_runs_and_progress_tells_how_far_it_is(mcp: Mcp, by: str) -> None:
    async def work(client: Client) -> None:
        heard: list[str | None] = []
        # All processes of this machine are in sight, and another may run the same tests.
        sleep = f"sleep 31415.{uuid.uuid4().int}"

        async def hear(progress: float, total: float | None, message: str | None) -> None:
            assert (progress > 0, total) == (True, None)
            heard.append(message)
            scope.cancel()

        with anyio.CancelScope() as scope:
            await client.call_tool("run_bash", {"command": f"echo alive; exec {sleep}"}, progress_callback=hear)
        assert scope.cancelled_caught
        assert heard[0] == "alive"
        with anyio.fail_after(60):
            while "31415" in text(
                await client.call_tool("run_bash", {"command": f"pgrep -fa '[s]{sleep[1:]}' || echo gone"})
            ):
                pass

    mcp.talk(work, by=by, **{"Warren-Session": f"cancel-{by}"})


def test_whose_sandbox_a_call_is_for(mcp: Mcp) -> None:
    async def story() -> None:
        async with mcp.connect(by=SESSION) as one, mcp.connect(by=SESSION) as two, mcp.connect() as three:
            for client, name in ((one, "one"), (two, "two"), (three, "three")):
                await client.call_tool("write_file", {"path": "who", "content": name})
            for client, name in ((one, "one"), (two, "two"), (three, "three")):
                assert text(await client.call_tool("read_file", {"path": "who"})) == name
            await one.call_tool("write_file", {"path": "who", "content": "shared", "session_id": "../../x"})
            shared = await two.call_tool("read_file", {"path": "who", "session_id": "../../x"})
            assert text(shared) == "shared"
            async with mcp.connect() as four:
                assert text(await four.call_tool("read_file", {"path": "who"})) == "three"
            async with mcp.connect(by=SSE) as five:
                assert text(await five.call_tool("read_file", {"path": "who"})) == "three"
            async with mcp.connect(**{"Warren-Session": "other"}) as six:
                assert "no sandbox yet" in text(await six.call_tool("read_file", {"path": "who"}))

    anyio.run(story)
    with mcp.served.client() as http:
        keys = [each["session_key"] for each in http.get("/sandboxes").json()["items"]]
    # Those of sessions are gone with them: their clients said so when they left.
    assert sum(key.startswith("mcp/session-") for key in keys) == 0
    assert len(keys) == len(set(keys)) == 2


def test_no_caller_reaches_what_belongs_to_another(mcp: Mcp) -> None:
    mcp.call("write_file", path="secret", content="ann's", session_id="same")
    (uri,) = mcp.talk(_uris, **{"Warren-Session": "same"})

    assert "no sandbox yet" in text(mcp.call("read_file", "bob", path="secret", session_id="same"))

    async def read(client: Client) -> None:
        with pytest.raises(MCPError, match="not found"):
            await client.read_resource(uri)
        with pytest.raises(MCPError, match="not found"):
            await client.read_resource("warren://../../etc/passwd")

    mcp.talk(read, "bob")
    opened = mcp.post(_initialize())
    session = opened.headers["mcp-session-id"]
    listing = {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}
    assert mcp.post(listing, **{"Mcp-Session-Id": session}).status_code == 200
    assert mcp.post(listing, "bob", **{"Mcp-Session-Id": session}).status_code == 404


async def _uris(client: Client) -> list[str]:
    return [each.uri for each in (await client.list_resources()).resources]


def _initialize(version: str = "2025-06-18") -> dict[str, Any]:
    client = {"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    return {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": client}


def test_keys_and_scopes_hold_here_too(mcp: Mcp) -> None:
    assert mcp.post(_initialize(), "anonymous").status_code == 401
    assert mcp.post(_initialize(), "anonymous", Authorization="Bearer wrn_nope").status_code == 401
    with mcp.served.client("anonymous") as http:
        assert http.get(f"{mcp.served.url}/sse").status_code == 401
    assert mcp.post(b"{}", "anonymous", path="/messages/?session_id=0").status_code == 401
    by_path = mcp.post(_initialize(), "anonymous", path=f"/k/{mcp.served.keys['ann']}/mcp")
    assert by_path.status_code == 200
    assert mcp.post(_initialize(), "anonymous", **{"X-API-Key": mcp.served.keys["ann"]}).status_code == 200

    refused = mcp.call("run_python", "rita", code="1")
    assert refused.is_error
    assert "scope" in text(refused)
    assert len(mcp.talk(lambda client: client.list_tools(), "rita").tools) == len(TOOLS)


def test_a_key_in_the_address_is_enough_for_the_transport_of_before(mcp: Mcp) -> None:
    url = f"{mcp.served.url}/k/{mcp.served.keys['ann']}"
    with (
        httpx.Client(timeout=60, trust_env=False) as http,
        http.stream("GET", f"{url}/sse/", headers={"Accept": "text/event-stream"}) as stream,
    ):
        lines = stream.iter_lines()
        where = next(line for line in lines if line.startswith("data: ")).removeprefix("data: ")
        assert where.startswith(f"/k/{mcp.served.keys['ann']}/messages/?session_id=")
        assert http.post(mcp.served.url + where, json=_initialize()).status_code == 202
        answer = json.loads(next(line for line in lines if line.startswith("data: "))[6:])
        assert answer["result"]["serverInfo"]["name"] == "warren"
        # Bob knows the address, and his key is good; the conversation is Ann's.
        other = where.replace(mcp.served.keys["ann"], mcp.served.keys["bob"])
        assert http.post(mcp.served.url + other, json=_initialize()).status_code == 404


def test_pages_of_elsewhere_and_nonsense_are_refused_and_the_service_goes_on(mcp: Mcp) -> None:
    assert mcp.post(_initialize(), Origin="https://evil.example").status_code == 403
    assert mcp.post(_initialize(), Origin=mcp.served.url).status_code == 200
    listing = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": META}}
    hostile: list[bytes | object] = [
        b"",
        b"{",
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"a":' * 5000 + b"1" + b"}" * 5000,
        json.dumps([listing] * 20_000).encode(),
        [listing, listing],
        [],
        "text",
        17,
        {"jsonrpc": "1.0", "id": 1, "method": "tools/list"},
        {"jsonrpc": "2.0", "id": {}, "method": "tools/list"},
        {"jsonrpc": "2.0", "id": 1, "method": 5},
        {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": 5, "_meta": META}},
        {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": []},
        {"jsonrpc": "2.0", "id": 1, "method": "no/such", "params": {"_meta": META}},
    ]
    for body in hostile:
        for headers in ({}, VERSION):
            assert 400 <= mcp.post(body, **headers).status_code < 500, body
    assert mcp.post(b"x" * (17 << 20)).status_code == 413
    assert mcp.post(_initialize(), **{"Content-Type": "text/plain"}).status_code in {400, 415}
    assert mcp.post(listing, **VERSION).status_code == 200
    assert mcp.post(listing, path="/mcp/", **VERSION).status_code == 200
    assert mcp.post(listing, **VERSION | {"Mcp-Method": "tools/call"}).status_code == 400
    assert mcp.post(listing, **VERSION | {"MCP-Protocol-Version": "1999-01-01"}).status_code == 400
    with mcp.served.client() as http:
        assert http.put(f"{mcp.served.url}/mcp").status_code == 405
        assert http.get(f"{mcp.served.url}/messages/").status_code == 405


WRONG: tuple[tuple[str, dict[str, Any], str], ...] = (
    ("run_python", {"cod": "1"}, "It takes: code, timeout, session_id"),
    ("run_python", {"code": 5}, "valid string"),
    ("run_python", {"code": "1", "timeout": 0}, "greater than or equal to 1"),
    ("run_bash", {"command": "a\0b"}, "NUL"),
    ("read_file", {"path": "../../etc/passwd"}, "workspace"),
    ("read_file", {"path": "nope"}, "list_files shows"),
    ("write_file", {"path": "x", "content": "?", "encoding": "base64"}, "not base64"),
    ("edit_file", {"path": "f", "old": "nope", "new": ""}, "read_file shows"),
    ("edit_file", {"path": "f", "old": "a", "new": ""}, "3 times"),
    ("no_such", {}, "Unknown tool: no_such"),
)


def test_errors_tell_the_model_what_to_do(mcp: Mcp) -> None:
    async def work(client: Client) -> None:
        await client.call_tool("write_file", {"path": "f", "content": "aaa"})
        for name, arguments, said in WRONG:
            refused = await client.call_tool(name, arguments)
            assert refused.is_error, name
            assert said in text(refused)

    mcp.talk(work)


def test_what_an_operator_switches_off_is_not_there(make_settings: Callable[..., Settings]) -> None:
    chosen = {"sse": False, "tools": ("run_python",), "sandbox_per_session": False, "own_sessions": 2}
    served = Served(make_settings("bare", mcp=chosen))
    served.start()
    try:
        mcp = Mcp(served)

        async def work(client: Client) -> None:
            assert [tool.name for tool in (await client.list_tools()).tools] == ["run_python"]
            assert "Unknown tool" in text(await client.call_tool("run_bash", {"command": "ls"}))
            await client.call_tool("run_python", {"code": "x = 1"})

        mcp.talk(work, by=SESSION)
        assert text(mcp.call("run_python", code="x")) == "1"
        with served.client() as http:
            assert http.get(f"{served.url}/sse").status_code == 404
            assert mcp.post(_initialize()).status_code == 200
            assert mcp.post(_initialize(), "bob").status_code == 200
            # The stream of a session that is open does not hold up the end of the service.
            opened = mcp.post(_initialize())
            headers = {"Mcp-Session-Id": opened.headers["mcp-session-id"], "Accept": "text/event-stream"}
            with http.stream("GET", f"{served.url}/mcp", headers=headers) as stream:
                assert stream.status_code == 200
            refused = mcp.post(_initialize())
            assert (refused.status_code, refused.json()["code"]) == (429, "quota_exceeded")
            assert text(mcp.call("run_python", code="x")) == "1"
        mcp.clear()
    finally:
        served.stop()
    assert served.left == []
