"""Whole answers at their bounds: nothing is lost where one answer becomes a series of events."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from warren.guest.executions.execution import MAX_EVENT_BYTES, USUAL
from warren.guest.wire.frames import CHUNK, EVENT_COST

if TYPE_CHECKING:
    from unit.guest.agent_client import Client, Reply

ALWAYS = {"exec", "duration_ms", "cpu_ms"}


def run_whole(client: Client, code: str, **params: Any) -> Reply:
    return client.wait(client.start_run(code, stream=False, whole=True, **params))


@pytest.mark.parametrize(("count", "size"), [(3, 3 << 20), (29_000, 1)])
def test_more_than_what_is_kept_is_displayed_and_none_of_it_is_missed(client: Client, count: int, size: int) -> None:
    # And not more than a connection takes at once, however slowly we read.
    assert count * (size + 40 + EVENT_COST) > MAX_EVENT_BYTES
    code = f"for i in range({count}): display({{'text/plain': str(i % 10) * {size}}}, raw=True)"
    reply = run_whole(client, code)

    assert reply.end is not None
    assert "displays" not in reply.end
    assert [header["seq"] for header, _ in reply.events] == list(range(1, count + 2))
    shown = [json.loads(payload)["data"]["text/plain"] for _, payload in reply.events[:-1]]
    assert [(text[0], len(text)) for text in shown] == [(str(number % 10), size) for number in range(count)]
    assert reply.result["notes"] == []


@pytest.mark.parametrize("size", [CHUNK - 2048, CHUNK - 512, CHUNK - 256, CHUNK, CHUNK + 1])
def test_at_the_edge_it_is_one_or_the_other(client: Client, size: int) -> None:
    reply = run_whole(client, f"print('x' * {size - 1})")

    assert reply.end is not None
    if reply.events:
        assert reply.end == {"t": "ok", "id": reply.end["id"]}
        assert reply.result["stdout_bytes"] == size
    else:
        assert len(reply.payload) <= CHUNK
        assert reply.end["parts"][1] == size
    assert bool(reply.events) == (size >= CHUNK - 256)


def test_very_many_small_displays_fit_the_header_of_their_answer(client: Client) -> None:
    reply = run_whole(client, "for i in range(600): display({'a': ''}, raw=True)")

    assert reply.end is not None
    assert reply.end["displays"] == ["display"] * 600


@pytest.mark.parametrize(("kind", "code"), [("cell", "1"), ("cell", "1/0"), ("shell", "true"), ("script", "1")])
def test_an_answer_that_is_not_whole_has_every_field(client: Client, kind: str, code: str) -> None:
    told = []
    for stream in (True, False):
        reply = client.wait(client.start_run(code, kind=kind, stream=stream))
        header, payload = reply.events[-1]
        told.append(json.loads(payload[: header["parts"][0]]).keys())

    # Scripts and commands alone can have something collected.
    assert told == [{*ALWAYS, *USUAL} - {"collected", "collected_complete"}] * 2


def test_an_answer_is_for_whom_asked_and_others_get_the_same_in_events(client: Client) -> None:
    stream = client.start_run(
        "import os; os.mkfifo('hold'); display(1); open('hold').read()", exec="exe_held", stream=False, whole=True
    )
    other = client.start("attach", exec="exe_held")
    client.wait_for(other, lambda reply: reply.events)
    client.run("echo > hold", kind="shell")

    whole, events = client.wait(stream), client.wait(other)
    assert whole.end is not None
    assert whole.events == []
    assert [header["kind"] for header, _ in events.events] == ["display", "display", "result"]
    assert [len(payload) for _, payload in events.events[:-1]] == whole.end["parts"][3:]
    assert events.events[-1][1] == whole.payload[: sum(whole.end["parts"][:3])]
