"""The client of the browser's protocol, over real pipes, against what a browser may send."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from typing import TYPE_CHECKING, Any

import pytest

from warren.render.browser import cdp

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


def play(act: Callable[[cdp.Connection, int, int], Awaitable[None]]) -> None:
    """Connect, and play the browser with the other ends: one to read commands from, one to write answers to."""

    async def run() -> None:
        theirs_in, ours_out = os.pipe()
        ours_in, theirs_out = os.pipe()
        connection = await cdp.Connection.open(ours_in, ours_out)
        try:
            async with asyncio.timeout(20):
                await act(connection, theirs_in, theirs_out)
        finally:
            connection.close()
            for fd in (theirs_in, theirs_out):
                with contextlib.suppress(OSError):
                    os.close(fd)

    asyncio.run(run())


def send(fd: int, **message: Any) -> None:
    os.write(fd, json.dumps(message).encode() + b"\0")


async def heard(fd: int, method: str) -> None:
    """Wait until a command has come."""
    got = b""
    while json.dumps(method).encode() not in got:
        got += await asyncio.to_thread(os.read, fd, 10_000)


def test_answers_come_in_any_order_and_in_pieces() -> None:
    async def act(connection: cdp.Connection, commands: int, answers: int) -> None:
        first = asyncio.create_task(connection.call("A"))
        second = asyncio.create_task(connection.call("B"))
        await heard(commands, "B")
        send(answers, id=2, result={"who": "second"})
        text = json.dumps({"id": 1, "result": {"who": "first"}}).encode() + b"\0"
        os.write(answers, text[:9])
        assert await second == {"who": "second"}
        os.write(answers, text[9:])
        assert await first == {"who": "first"}

    play(act)


def test_a_refusal_is_an_error_that_names_the_call() -> None:
    async def act(connection: cdp.Connection, _commands: int, answers: int) -> None:
        send(answers, id=1, error={"message": "no such page"})
        with pytest.raises(cdp.CallRefused, match=r"Page\.x: no such page"):
            await connection.call("Page.x")

    play(act)


def test_events_reach_only_listeners_of_their_page() -> None:
    async def act(connection: cdp.Connection, _commands: int, answers: int) -> None:
        heard: list[Any] = []
        connection.on("Page.e", lambda params: heard.append(("mine", params)), "me")
        connection.on("Page.e", lambda params: heard.append(("browser", params)))
        send(answers, method="Page.e", params={"n": 1}, sessionId="me")
        send(answers, method="Page.e", params={"n": 2}, sessionId="other")
        send(answers, method="Page.e", params={"n": 3})
        send(answers, id=1, result={})
        await connection.call("A")
        assert heard == [("mine", {"n": 1}), ("browser", {"n": 3})]

    play(act)


def test_calls_end_with_the_browser_and_with_their_page() -> None:
    async def act(connection: cdp.Connection, commands: int, answers: int) -> None:
        page = asyncio.create_task(connection.call("A", session_id="page"))
        browser = asyncio.create_task(connection.call("B"))
        await heard(commands, "B")
        connection.end_session("page", "it crashed")
        with pytest.raises(cdp.BrowserGone, match="it crashed"):
            await page
        with pytest.raises(cdp.BrowserGone, match="it crashed"):
            await connection.call("C", session_id="page")
        os.close(answers)
        with pytest.raises(cdp.BrowserGone, match="has ended"):
            await browser

    play(act)


def test_a_call_without_an_answer_ends_at_its_deadline() -> None:
    async def act(connection: cdp.Connection, _commands: int, _answers: int) -> None:
        with pytest.raises(TimeoutError):
            await connection.call("A", timeout_s=0.01)

    play(act)
