"""Programs that fill the screen, driven as a person drives them: key by key, over a WebSocket, in a real service."""

from __future__ import annotations

import re
import shutil
from typing import TYPE_CHECKING

import pytest

from api.terminal_client import open_terminal
from e2e.serving import create, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

    import httpx

    from e2e.serving import RunningService

HEADINGS = re.compile(rb"PID USER.*RES.*\x1b\[H", re.DOTALL)
"""Those of a table, up to the next one."""


@pytest.fixture(params=["bare", "local"])
def service(request: pytest.FixtureRequest, serve: Callable[..., RunningService]) -> RunningService:
    return serve(request.param).start()


def _find(*programs: str) -> str:
    """Return the first of these programs that the host has, and with it the images made of its files."""
    for program in programs:
        if shutil.which(program) is not None:
            return program
    pytest.skip(f"{programs[0]} is not installed on this host: `make tools` installs it")


def test_a_file_is_written_with_vim_over_a_connection_that_breaks_in_the_middle(service: RunningService) -> None:
    vim = _find("vim", "vim.tiny")
    with service.client() as client:
        sandbox = create(client)
        query = f"cols=80&rows=24&command=exec+{vim}+-u+NONE+notes.txt"
        with open_terminal(service.port, sandbox, "editor", key=service.key, query=query) as terminal:
            terminal.wait_for("notes.txt")
            terminal.type("i")
            terminal.type("Written with vim.\rThe second li")
            terminal.wait_for("The second li")
            terminal.cut()
        wait_until(lambda: _attached(client, sandbox) == {"editor": 0}, "the service to notice")
        with open_terminal(service.port, sandbox, "editor", key=service.key, query="cols=100&rows=30") as terminal:
            assert not terminal.ready["created"]
            terminal.wait_for("The second li")
            # It draws anew, for the window that came back.
            terminal.wait_for("\x1b[29;1H~")
            terminal.type("ne.")
            terminal.wait_for("ne.")
            terminal.type(b"\x1b")
            terminal.type(":wq\r")
            assert terminal.wait_end() == (1000, "")
            assert terminal.said[-1] == {"type": "exit", "exit_code": 0}
        text = client.get(f"/sandboxes/{sandbox}/files/notes.txt").text
        client.delete(f"/sandboxes/{sandbox}")

    assert text == "Written with vim.\nThe second line.\n"


def test_top_draws_its_table_again_for_another_size_and_ends_with_q(service: RunningService) -> None:
    top = _find("top")
    with service.client() as client:
        sandbox = create(client)
        query = f"cols=120&rows=20&command=exec+{top}+-d+0.2"
        with open_terminal(service.port, sandbox, "top", key=service.key, query=query) as terminal:
            terminal.wait_for("COMMAND")
            assert b"Tasks:" in terminal.shown
            assert b"PID USER" in terminal.shown
            # The headings are drawn again only when the window is another.
            terminal.shown.clear()
            terminal.say("resize", cols=40, rows=10)
            terminal.wait(lambda: HEADINGS.search(terminal.shown), "a table of 40 columns")
            assert b"COMMAND" not in terminal.shown
            terminal.say("resize", cols=120, rows=20)
            terminal.wait_for("COMMAND")
            terminal.type("q")
            assert terminal.wait_end() == (1000, "")
            assert terminal.said[-1] == {"type": "exit", "exit_code": 0}
        client.delete(f"/sandboxes/{sandbox}")


def _attached(client: httpx.Client, sandbox: str) -> dict[str, int]:
    items = client.get(f"/sandboxes/{sandbox}/terminals").json()["items"]
    return {each["name"]: each["attached"] for each in items}
