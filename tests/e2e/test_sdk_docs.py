"""What the pages say of using Warren from Python, run as it stands there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from e2e.serving import RunningService

ROOT = os.path.join(os.path.dirname(__file__), "..", "..")
PAGES = ("README.md", "docs/howto/use-from-python.md")
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
SAID = """42
healthy
adding
6
False error IndexError
3
no * shell
HELLO
said ['0'
shows 'done'
ended exited
hello ann
remember
8 of 8 bytes
['table.csv', 'today.txt']
not_found 404
it is a xterm-256color terminal 0
True
['42', '56']"""


def read(page: str) -> str:
    with open(os.path.join(ROOT, page), encoding="utf-8") as file:
        return file.read()


def test_the_page_on_python_can_be_followed_to_its_end(serve: Callable[..., RunningService], tmp_path: Path) -> None:
    service = serve("bare").start()
    program = "\n".join(text for page in PAGES for text in BLOCK.findall(read(page)))

    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        env={"WARREN_URL": f"http://127.0.0.1:{service.port}", "WARREN_API_KEY": service.key},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    service.stop()

    assert done.returncode == 0, done.stderr
    assert [line for line in SAID.splitlines() if line not in done.stdout] == [], done.stdout
