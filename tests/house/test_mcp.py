"""The page on MCP says what the tools say, and only those who speak it load what speaks it."""

from __future__ import annotations

import subprocess
import sys

from house import mcp_page
from house.repository import ROOT, read


def test_the_page_on_mcp_is_what_the_tools_say() -> None:
    assert read("docs/reference/mcp.md") == mcp_page.render(), "run `make docs`"


def test_neither_commands_nor_a_service_that_starts_load_the_library() -> None:
    # It takes longer than all the rest of them.
    code = (
        "import sys, warren.cli.main, warren.cli.commands.run, warren.cli.commands.serve\n"
        "import warren.cli.execution.program\n"
        "import warren.gateway.app, warren.bootstrap.app, warren.cli.service.listening, warren.cli.registry\n"
        "assert not {'mcp', 'mcp_types'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT, timeout=60)
