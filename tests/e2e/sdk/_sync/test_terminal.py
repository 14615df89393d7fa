# Made from tests/e2e/sdk/_async/test_terminal.py by `make sdk`: change that instead.
from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import pytest

import warren

if TYPE_CHECKING:
    from warren import Sandbox, Terminal


def read_until(terminal: Terminal, text: bytes) -> bytes:
    """Read what is shown until that is among it."""
    shown = b""
    while text not in shown:
        data = terminal.receive()
        assert data, f"it ended before {text!r} came: {shown!r}"
        shown += data
    return shown


def test_what_is_typed_runs_and_what_it_shows_comes_back(sandbox: Sandbox) -> None:
    with sandbox.terminal("typed", cols=91, rows=17) as terminal:
        terminal.send("stty size; echo $((40 + 2))\n")
        shown = read_until(terminal, b"42")
        assert b"17 91" in shown

        terminal.resize(120, 40)
        terminal.send(b"stty size\n")
        read_until(terminal, b"40 120")

        terminal.send("exit 3\n")
        rest = b""
        for data in terminal:
            rest += data

    assert (terminal.is_new, terminal.name, terminal.exit_code) == (True, "typed", 3)


def test_a_program_outlives_the_connection(sandbox: Sandbox) -> None:
    with sandbox.terminal("kept") as terminal:
        terminal.send("echo before-$((1 + 1))\n")
        read_until(terminal, b"before-2")

    (listed,) = [each for each in sandbox.terminals() if each.name == "kept"]
    with sandbox.terminal("kept") as again:
        assert b"before-2" in read_until(again, b"before-2")
        assert (again.is_new, again.scrollback > 0, listed.cols) == (False, True, 80)
        again.hang_up()
        with contextlib.suppress(warren.Error):
            while again.receive():
                pass

    assert "kept" not in [each.name for each in sandbox.terminals()]


def test_a_command_is_run_instead_of_a_shell(sandbox: Sandbox) -> None:
    with sandbox.terminal("once", command="echo 'only & this'; cat") as terminal:
        read_until(terminal, b"only & this")
        sandbox.close_terminal("once")
        while terminal.receive():
            pass

    assert terminal.exit_code != 0


def test_a_sandbox_that_is_not_there_has_no_terminal(sandbox: Sandbox) -> None:
    with warren.Client(sandbox._connection.address.url, sandbox._connection.api_key) as client:
        terminal = client.sandboxes.at("sbx_aaaaaaaaaaaaaaaa").terminal()
        with pytest.raises(warren.NotFound):
            contextlib.ExitStack().enter_context(terminal)
    with warren.Client(sandbox._connection.address.url) as client:
        terminal = client.sandboxes.at(sandbox.id).terminal()
        with pytest.raises(warren.Unauthenticated, match="WARREN_API_KEY"):
            contextlib.ExitStack().enter_context(terminal)
