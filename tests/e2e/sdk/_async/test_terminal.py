from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import pytest

import warren

if TYPE_CHECKING:
    from warren import AsyncSandbox, AsyncTerminal

pytestmark = pytest.mark.anyio


async def read_until(terminal: AsyncTerminal, text: bytes) -> bytes:
    """Read what is shown until that is among it."""
    shown = b""
    while text not in shown:
        data = await terminal.receive()
        assert data, f"it ended before {text!r} came: {shown!r}"
        shown += data
    return shown


async def test_what_is_typed_runs_and_what_it_shows_comes_back(sandbox: AsyncSandbox) -> None:
    async with sandbox.terminal("typed", cols=91, rows=17) as terminal:
        await terminal.send("stty size; echo $((40 + 2))\n")
        shown = await read_until(terminal, b"42")
        assert b"17 91" in shown

        await terminal.resize(120, 40)
        await terminal.send(b"stty size\n")
        await read_until(terminal, b"40 120")

        await terminal.send("exit 3\n")
        rest = b""
        async for data in terminal:
            rest += data

    assert (terminal.is_new, terminal.name, terminal.exit_code) == (True, "typed", 3)


async def test_a_program_outlives_the_connection(sandbox: AsyncSandbox) -> None:
    async with sandbox.terminal("kept") as terminal:
        await terminal.send("echo before-$((1 + 1))\n")
        await read_until(terminal, b"before-2")

    (listed,) = [each for each in await sandbox.terminals() if each.name == "kept"]
    async with sandbox.terminal("kept") as again:
        assert b"before-2" in await read_until(again, b"before-2")
        assert (again.is_new, again.scrollback > 0, listed.cols) == (False, True, 80)
        await again.hang_up()
        with contextlib.suppress(warren.Error):
            while await again.receive():
                pass

    assert "kept" not in [each.name for each in await sandbox.terminals()]


async def test_a_command_is_run_instead_of_a_shell(sandbox: AsyncSandbox) -> None:
    async with sandbox.terminal("once", command="echo 'only & this'; cat") as terminal:
        await read_until(terminal, b"only & this")
        await sandbox.close_terminal("once")
        while await terminal.receive():
            pass

    assert terminal.exit_code != 0


async def test_a_sandbox_that_is_not_there_has_no_terminal(sandbox: AsyncSandbox) -> None:
    async with warren.AsyncClient(sandbox._connection.address.url, sandbox._connection.api_key) as client:
        terminal = client.sandboxes.at("sbx_aaaaaaaaaaaaaaaa").terminal()
        with pytest.raises(warren.NotFound):
            await contextlib.AsyncExitStack().enter_async_context(terminal)
    async with warren.AsyncClient(sandbox._connection.address.url) as client:
        terminal = client.sandboxes.at(sandbox.id).terminal()
        with pytest.raises(warren.Unauthenticated, match="WARREN_API_KEY"):
            await contextlib.AsyncExitStack().enter_async_context(terminal)
