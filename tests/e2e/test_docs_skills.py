"""The pages on skills, on the Sandboxes page and on importing a configuration, followed in a shell."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from e2e.test_docs_run import Reader, blocks, served
from warren.settings import Settings

if TYPE_CHECKING:
    from pathlib import Path

    from api.served import Served

__all__ = ["served"]

needs_curl = pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed (Debian: apt install curl)")


def follow(page: str, home: Path, served: Served) -> str:
    reader = Reader(home, served)
    return reader.run("\n".join(blocks(page)), WARREN_URL=served.url, WARREN_API_KEY=served.keys["ann"])


@needs_curl
def test_the_page_on_skills_can_be_followed(tmp_path: Path, served: Served) -> None:
    said = follow("docs/howto/skills.md", tmp_path, served)

    assert said == '{"installed":[],"already_installed":["word-counter"]}3\n\nTrue\n2\n'


@needs_curl
def test_the_calls_of_the_sandboxes_page_work(tmp_path: Path, served: Served) -> None:
    said = follow("docs/howto/migrate-from-sandboxes-page.md", tmp_path, served)

    assert said == 'Done.\n\nmain.py\n{"installed":["data-analyzer"],"already_installed":[]}'


def test_the_settings_of_the_sandboxes_page_are_settings(tmp_path: Path) -> None:
    (text,) = blocks("docs/howto/migrate-from-sandboxes-page.md", "toml")
    (tmp_path / "warren.toml").write_text(text)

    assert Settings.load({}, str(tmp_path)).quota.active == 5


def test_the_page_on_importing_prints_what_it_says(tmp_path: Path, served: Served) -> None:
    (printed,) = blocks("docs/howto/import-a-configuration.md", "toml")
    said = follow("docs/howto/import-a-configuration.md", tmp_path, served)

    assert printed in said
    assert (tmp_path / "warren.toml").read_text() == printed
