"""Terminals over WebSockets: typed into, left, come back to, and refused."""

from __future__ import annotations

import json
import re
import threading
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Any

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.typing import Subprotocol

from api.served import Served, wait_for
from api.terminal_client import TerminalClient, open_terminal

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    import httpx

    Open = Callable[..., AbstractContextManager[TerminalClient]]

CAT = "command=stty+-echo%3B+echo+up%3B+exec+cat"


@pytest.fixture
def open_one(served: Served, sandbox: str) -> Open:
    """Open a terminal of ann's sandbox."""

    def open_it(name: str = "main", *, who: str | None = "ann", query: str = "", **options: Any) -> Any:
        key = None if who is None else served.keys[who]
        return open_terminal(served.port, sandbox, name, key=key, query=query, **options)

    return open_it


def test_bash_is_typed_into_and_its_exit_code_comes_back(open_one: Open) -> None:
    with open_one(query="cols=90&rows=30") as terminal:
        terminal.type("stty size; echo mar$((40 + 2))ker\n")
        assert b"30 90" in terminal.wait_for("mar42ker")
        terminal.say("resize", cols=120, rows=40)
        terminal.type("stty size; echo again$((1))\n")
        assert b"40 120" in terminal.wait_for("again1")
        terminal.type("exit 5\n")

        assert terminal.wait_end() == (1000, "")
    assert terminal.ready == {"type": "ready", "name": "main", "created": True, "scrollback": 0}
    assert terminal.said[-1] == {"type": "exit", "exit_code": 5}


def test_who_comes_back_sees_what_was_shown_and_the_program_still_runs(
    ann: httpx.Client, sandbox: str, open_one: Open
) -> None:
    with open_one("kept", query=CAT + "&cols=90&rows=30") as terminal:
        terminal.wait_for("up")
        terminal.type("before\n")
        terminal.wait_for("before\r\n")
        terminal.cut()
    wait_for(lambda: _attached(ann, sandbox) == {"kept": 0})
    with open_one("kept") as terminal:
        shown = terminal.wait_for("before\r\n")
        terminal.type("after\n")
        terminal.wait_for("after")

    assert shown == b"up\r\nbefore\r\n"
    assert terminal.ready == {"type": "ready", "name": "kept", "created": False, "scrollback": len(shown)}


def test_two_clients_see_the_same_and_both_type(ann: httpx.Client, sandbox: str, open_one: Open) -> None:
    with open_one("pair", query=CAT) as one:
        one.wait_for("up")
        with open_one("pair", query="cols=100&rows=20") as other:
            other.type("from the other\n")
            one.wait_for("from the other")
            one.type("from the one\n")
            other.wait_for("from the one")
            listed = ann.get(f"/sandboxes/{sandbox}/terminals").json()["items"]
            other.type(b"\x04")
            ends = [client.wait_end() for client in (one, other)]

    assert [(each["name"], each["attached"], each["cols"], each["rows"]) for each in listed] == [("pair", 2, 100, 20)]
    assert ends == [(1000, ""), (1000, "")]
    assert ann.get(f"/sandboxes/{sandbox}/terminals").json() == {"items": []}


def test_a_terminal_is_hung_up_on_by_a_message_or_by_its_name(ann: httpx.Client, sandbox: str, open_one: Open) -> None:
    with open_one("one", query="command=echo+up%3B+exec+sleep+1000") as terminal:
        terminal.wait_for("up")
        terminal.say("close")
        terminal.wait_end()
    with open_one("two", query="command=echo+up%3B+exec+sleep+1000") as other:
        other.wait_for("up")
        answers = [ann.delete(f"/sandboxes/{sandbox}/terminals/two").status_code]
        other.wait_end()
    wait_for(lambda: ann.delete(f"/sandboxes/{sandbox}/terminals/two").status_code == 404)

    assert [terminal.said[-1], other.said[-1]] == [{"type": "exit", "exit_code": -1}] * 2
    assert answers == [204]


def test_who_used_a_terminal_and_for_how_long_is_in_the_audit_record(
    served: Served, sandbox: str, open_one: Open
) -> None:
    with open_one("noted", query=CAT) as terminal:
        terminal.wait_for("up")
        terminal.type("secret\n")
        terminal.wait_for("secret")
        terminal.type(b"\x04")
        terminal.wait_end()
    with served.client("ann") as client:
        rows = wait_for(lambda: _audit(client, sandbox, "terminal.close"))
        opened = _audit(client, sandbox, "terminal.open")[0]

    details = rows[0]["details"]
    assert opened["details"] == {"terminal": "noted", "command": "stty -echo; echo up; exec cat", "created": True}
    assert (details["typed_bytes"], details["shown_bytes"], details["exit_code"]) == (8, 12, 0)
    assert details["duration_ms"] > 0
    assert (rows[0]["outcome"], rows[0]["subject"]) == ("ok", "ann")
    assert "secret" not in json.dumps(rows)


def test_a_stopped_sandbox_is_started_for_a_terminal_and_not_for_a_list(
    ann: httpx.Client, sandbox: str, open_one: Open
) -> None:
    assert ann.post(f"/sandboxes/{sandbox}/stop").status_code == 200
    assert ann.get(f"/sandboxes/{sandbox}/terminals").json() == {"items": []}
    assert ann.get(f"/sandboxes/{sandbox}").json()["status"] == "stopped"
    with open_one(query=CAT) as terminal:
        terminal.wait_for("up")

    assert ann.get(f"/sandboxes/{sandbox}").json()["status"] == "running"


def test_a_sandbox_that_is_stopped_or_deleted_ends_its_terminals_with_the_reason(
    ann: httpx.Client, sandbox: str, open_one: Open
) -> None:
    with open_one(query=CAT) as terminal:
        terminal.wait_for("up")
        ann.post(f"/sandboxes/{sandbox}/stop")
        stopped = terminal.wait_end()
    with open_one(query=CAT) as terminal:
        terminal.wait_for("up")
        ann.delete(f"/sandboxes/{sandbox}")
        deleted = terminal.wait_end()

    assert stopped == (4409, f"sandbox {sandbox} was stopped; connecting again starts it")
    assert deleted == (4404, f"sandbox {sandbox} was deleted")


def test_strangers_readers_and_anonymous_callers_are_refused_before_it_opens(
    served: Served, sandbox: str, open_one: Open
) -> None:
    refused = {who: _refusal(open_one(who=who)) for who in ("bob", "adam", "rita", None)}
    missing = _refusal(open_terminal(served.port, "sbx_00000000000000000000", key=served.keys["ann"]))

    assert {who: status for who, (status, _) in refused.items()} == {"bob": 404, "adam": 403, "rita": 403, None: 401}
    assert refused["bob"][1]["code"] == "not_found"
    assert refused["bob"][1]["detail"] == f"there is no sandbox {sandbox}"
    assert missing[0] == 404


def test_a_web_page_sends_its_key_as_a_subprotocol_which_is_not_agreed_to(served: Served, open_one: Open) -> None:
    offered = [Subprotocol("warren.v1"), Subprotocol(f"warren.key.{served.keys['ann']}")]
    own = f"http://127.0.0.1:{served.port}"
    with open_one(who=None, query=CAT, subprotocols=offered, origin=own) as terminal:
        terminal.wait_for("up")
        agreed = terminal.connection.subprotocol
        answered = str(terminal.connection.response)
    wrong = _refusal(open_one(who=None, subprotocols=[Subprotocol("warren.key.wrn_wrong")]))

    assert agreed == "warren.v1"
    assert served.keys["ann"] not in answered
    assert wrong[0] == 401


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://127.0.0.1:1"])
def test_a_foreign_page_is_refused_even_with_a_key(open_one: Open, origin: str) -> None:
    status, problem = _refusal(open_one(origin=origin))

    assert (status, problem["code"]) == (403, "forbidden")


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ("cols=0&rows=1", 422),
        ("cols=1001&rows=1", 422),
        ("cols=-1&rows=99999999999999999999", 422),
        ("cols=80", 400),
        ("command=%00", 422),
        ("command=" + "x" * 5000, 422),
        ("colour=red", 422),
    ],
)
def test_what_cannot_be_opened_is_refused_with_a_sentence(open_one: Open, query: str, status: int) -> None:
    answered, problem = _refusal(open_one(query=query))

    assert answered == status
    assert problem["detail"]


@pytest.mark.parametrize(
    "message",
    [
        "",
        "{",
        "[1]",
        "null",
        '"close"',
        '{"type": "fly"}',
        '{"type": "resize"}',
        '{"type": "resize", "cols": 80}',
        '{"type": "resize", "cols": 0, "rows": 24}',
        '{"type": "resize", "cols": 1e9, "rows": 24}',
        '{"type": "resize", "cols": "80; reboot", "rows": 24}',
        '{"type": "close", "more": 1}',
        '{"type": ' + "[" * 3000 + "]" * 3000 + "}",
        "[" * 100_000,
        "\ud83d\ude00".encode("utf-16", "surrogatepass").decode("utf-16") * 2000,
    ],
    ids=range(15),
)
def test_what_is_no_message_ends_the_connection_and_not_the_program(open_one: Open, message: str) -> None:
    with open_one("tough", query=CAT) as terminal:
        terminal.wait_for("up")
        terminal.connection.send(message)
        code, reason = terminal.wait_end()
    with open_one("tough") as terminal:
        terminal.wait_for("up")
        terminal.say("close")
        terminal.wait_end()

    assert code in {4400, 4422}
    assert reason


def test_a_message_over_the_limit_ends_the_connection_and_not_the_program(open_one: Open) -> None:
    with open_one("large", query=CAT) as terminal:
        terminal.wait_for("up")
        terminal.type(b"x" * ((1 << 20) + 1))
        code, _ = terminal.wait_end()
    with open_one("large") as terminal:
        terminal.wait_for("up")

    assert code == 1009


def test_keys_that_the_program_does_not_read_hold_up_only_who_typed_them(open_one: Open) -> None:
    with open_one("deaf", query="command=stty+raw+-echo%3B+echo+up%3B+exec+sleep+1000") as terminal:
        terminal.wait_for("up")
        with open_one("other", query=CAT) as other:
            other.wait_for("up")
            sender = threading.Thread(target=_type_much, args=(terminal,))
            sender.start()
            for number in range(20):
                other.type(f"still here {number}\n")
                other.wait_for(f"still here {number}")
            terminal.cut()
            sender.join()


def test_more_terminals_than_there_may_be_are_refused(ann: httpx.Client, sandbox: str, open_one: Open) -> None:
    with ExitStack() as opened:
        for number in range(32):
            opened.enter_context(open_one(f"t{number}", query="command=exec+sleep+1000"))
        refusal = _refusal(open_one("more"))
        again = opened.enter_context(open_one("t0"))
        listed = ann.get(f"/sandboxes/{sandbox}/terminals").json()["items"]

    assert (refusal[0], refusal[1]["code"]) == (409, "conflict")
    assert not again.ready["created"]
    assert len(listed) == 32


def test_more_connections_than_one_may_have_are_refused(bare: Served) -> None:
    with bare.client("bob") as bob, ExitStack() as opened:
        sandbox = bob.post("/sandboxes", json={}).json()["id"]
        for number in range(128):
            attempt = open_terminal(bare.port, sandbox, f"t{number % 2}", key=bare.keys["bob"])
            opened.enter_context(attempt)
        status, problem = _refusal(open_terminal(bare.port, sandbox, "t0", key=bare.keys["bob"]))
        opened.close()
        wait_for(lambda: _attached(bob, sandbox) == {"t0": 0, "t1": 0})
        with open_terminal(bare.port, sandbox, "t0", key=bare.keys["bob"]) as terminal:
            terminal.type("exit\n")
            terminal.wait_end()
        bob.delete(f"/sandboxes/{sandbox}")

    assert (status, problem["code"]) == (429, "quota_exceeded")


def test_opening_and_leaving_over_and_over_leaves_nothing(served: Served, sandbox: str, open_one: Open) -> None:
    for _ in range(500):
        with open_one("again", query=CAT):
            pass
    with served.client("ann") as client:
        wait_for(lambda: _attached(client, sandbox) == {"again": 0})
        wait_for(lambda: _metric(client, "warren_websockets") == 0)


def test_a_plain_request_is_told_that_this_is_a_websocket(ann: httpx.Client, sandbox: str) -> None:
    answer = ann.get(f"/sandboxes/{sandbox}/terminals/main")

    assert (answer.status_code, answer.json()["code"]) == (426, "upgrade_required")
    assert answer.headers["upgrade"] == "websocket"


def test_a_websocket_elsewhere_is_not_found(served: Served) -> None:
    for name in ("../kernels", "..", "main/more"):
        with pytest.raises(InvalidStatus) as refused, open_terminal(served.port, "x", name, key=served.keys["ann"]):
            pass
        assert refused.value.response.status_code == 404


def _refusal(attempt: AbstractContextManager[TerminalClient]) -> tuple[int, dict[str, Any]]:
    with pytest.raises(InvalidStatus) as refused, attempt:
        pass
    response = refused.value.response
    assert response.headers["content-type"] == "application/problem+json"
    assert re.fullmatch(r"req_\w+", response.headers["x-request-id"])
    return response.status_code, json.loads(response.body or b"")


def _attached(client: httpx.Client, sandbox: str) -> dict[str, int]:
    items = client.get(f"/sandboxes/{sandbox}/terminals").json()["items"]
    return {each["name"]: each["attached"] for each in items}


def _audit(client: httpx.Client, sandbox: str, action: str) -> list[dict[str, Any]]:
    rows = client.get("/audit", params={"sandbox_id": sandbox, "action": action}).json()["items"]
    return [dict(row) for row in rows]


def _metric(client: httpx.Client, name: str) -> float:
    text = client.get(str(client.base_url).removesuffix("/api/v1/") + "/metrics").text
    found = re.search(rf"^{name} (\S+)$", text, re.MULTILINE)
    assert found is not None
    return float(found[1])


def _type_much(terminal: TerminalClient) -> None:
    # It is cut off in the middle.
    with suppress(ConnectionClosed, OSError):
        for _ in range(1000):
            terminal.type(b"x" * 65_536)
