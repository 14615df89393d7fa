"""Makes the client without `await`, and its tests, from those with it: `make sdk`.

A table of words and nothing else, so that a reader of `_async` knows `_sync`.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

WORDS = (
    (r"AsyncGenerator", "Generator"),
    (r"Generator\[(\w+), None\]", r"Generator[\1, None, None]"),
    (r"AsyncIterator", "Iterator"),
    (r"httpx\.Async(\w+)", r"httpx.\1"),
    (r"asynccontextmanager", "contextmanager"),
    (r"AbstractAsyncContextManager", "AbstractContextManager"),
    (r"AsyncExitStack", "ExitStack"),
    (r"enter_async_context", "enter_context"),
    (r"aclosing", "closing"),
    (r"\baclose\b", "close"),
    (r"\baread\b", "read"),
    (r"handle_async_request", "handle_request"),
    (r"\baiter_(\w+)", r"iter_\1"),
    (r"__a(enter|exit|iter|next)__", r"__\1__"),
    (r"io_async", "io_sync"),
    (r"_async\b", "_sync"),
    (r"\bAsync(?=[A-Z])", ""),
    (r"async (def|with|for)\b", r"\1"),
    (r"\bawait ", ""),
    (r"^pytestmark = pytest\.mark\.anyio\n+", ""),
)
"""What stands in the one, and what in the other. A word that is found nowhere any more is an error."""

HEAD = "# Made from {source} by `make sdk`: change that instead.\n"

PLACES = (("src/warren/sdk/_async", "src/warren/sdk/_sync"), ("tests/e2e/sdk/_async", "tests/e2e/sdk/_sync"))
"""Folders of the repository: what is written, and what is made of it."""


def translate(text: str, used: set[str]) -> str:
    """Return a module without `await`; `used` gathers the words that were found."""
    for word, other in WORDS:
        text, count = re.subn(word, other, text, flags=re.MULTILINE)
        if count:
            used.add(word)
    return text


def make_all(root: str) -> dict[str, str]:
    """Return every module that is made, by its path. Raises ValueError for a word that nothing needs."""
    made: dict[str, str] = {}
    used: set[str] = set()
    for source, target in PLACES:
        for name in sorted(os.listdir(os.path.join(root, source))) if os.path.isdir(os.path.join(root, source)) else ():
            if name.endswith(".py"):
                with open(os.path.join(root, source, name), encoding="utf-8") as file:
                    text = translate(file.read(), used)
                made[f"{target}/{name}"] = _format(
                    HEAD.format(source=f"{source}/{name}") + text, f"{target}/{name}", root
                )
    if unused := {word for word, _ in WORDS} - used:
        raise ValueError(f"nothing has these words any more: {sorted(unused)}")
    return made


def find_stale(root: str) -> Iterator[str]:
    """Name the files that are not what would be made now, and those that nothing makes."""
    made = make_all(root)
    for path, text in made.items():
        if _read(os.path.join(root, path)) != text:
            yield path
    for _, target in PLACES:
        folder = os.path.join(root, target)
        names = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
        yield from (f"{target}/{name}" for name in names if name.endswith(".py") and f"{target}/{name}" not in made)


def _format(text: str, path: str, root: str) -> str:
    """Sort imports and wrap lines anew: without `await` many are shorter."""
    ruff = os.path.join(os.path.dirname(sys.executable), "ruff")
    for command in (
        ["check", "--quiet", "--select", "I,F401,TC", "--fix", "--exit-zero"],
        ["format", "--quiet"],
    ):
        argv = [ruff, *command, "--stdin-filename", path, "-"]
        text = subprocess.run(argv, input=text, capture_output=True, text=True, check=True, cwd=root).stdout
    return text


def _read(path: str) -> str | None:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except FileNotFoundError:
        return None


if __name__ == "__main__":
    top = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
    for where, content in make_all(top).items():
        os.makedirs(os.path.dirname(os.path.join(top, where)), exist_ok=True)
        with open(os.path.join(top, where), "w", encoding="utf-8") as page:
            page.write(content)
