"""The page about the shell, followed from its beginning to its end, without a service and with one."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest

from e2e import forked
from e2e.test_docs_run import blocks

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from e2e.serving import RunningService


@pytest.mark.timeout(400)
@pytest.mark.parametrize("is_served", [False, True], ids=["embedded", "served"])
def test_the_page_about_the_shell_works(
    serve: Callable[..., RunningService], tmp_path: Path, *, is_served: bool
) -> None:
    service = serve("bare")
    if is_served:
        service.start()
    script = "\n".join(blocks("docs/howto/use-from-the-shell.md"))
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        env=service.env | {"PATH": forked.search_path(), "HOME": str(tmp_path)},
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    for wanted in ("42\n", "note.txt\n", "8\n", "step 3\n", "['running']\n"):
        assert wanted in done.stdout
    assert (tmp_path / "backup" / "table.csv").read_text() == "a,b\n"
    assert (tmp_path / ".local/share/bash-completion/completions/warren").stat().st_size > 100
