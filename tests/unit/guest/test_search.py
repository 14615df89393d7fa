"""Search by name, text and pattern, in a worker with a clock."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from warren.domain.errors import InvalidRequest, NotFound

if TYPE_CHECKING:
    from unit.guest.agent_workspace import AgentWorkspace
    from warren.core.agent.client import AgentClient


@pytest.fixture
def here(here: AgentWorkspace) -> AgentWorkspace:
    here.make(
        {
            "src/one.py": b"import os\nprint('hello')\n",
            "src/two.py": b"x = 1\r\nprint('bye')\r\n",
            "notes.txt": "gr\u00fc\u00dfe\nhello\n".encode(),
            "data.bin": b"hello\0hello",
            "long.txt": b"a" * 200_000 + b"needle\n" + b"next needle\n",
        }
    )
    return here


def test_names_are_matched_by_glob(here: AgentWorkspace) -> None:
    async def story(link: AgentClient) -> None:
        found, complete = await link.search(name="*.py")
        assert [match.path for match in found] == ["src/one.py", "src/two.py"]
        assert complete
        found, _ = await link.search(name="src/t*")
        assert [match.path for match in found] == ["src/two.py"]

    here.do(story)


def test_lines_are_found_by_text_and_binary_files_are_skipped(here: AgentWorkspace) -> None:
    async def story(link: AgentClient) -> None:
        found, complete = await link.search(text="hello")
        assert [(match.path, match.line, match.text) for match in found] == [
            ("notes.txt", 2, "hello"),
            ("src/one.py", 2, "print('hello')"),
        ]
        assert complete
        found, _ = await link.search(text="gr\u00fc\u00dfe")
        assert [match.line for match in found] == [1]

    here.do(story)


def test_a_pattern_and_a_name_narrow_each_other(here: AgentWorkspace) -> None:
    async def story(link: AgentClient) -> None:
        found, _ = await link.search("src", name="*.py", regex=r"^print\('(\w+)'\)$")
        assert [(match.path, match.line) for match in found] == [("src/one.py", 2), ("src/two.py", 2)]

    here.do(story)


def test_a_long_line_is_searched_in_pieces_and_counted_once(here: AgentWorkspace) -> None:
    async def story(link: AgentClient) -> None:
        found, _ = await link.search(text="needle")
        assert [(match.line, len(match.text or "") <= 500) for match in found] == [(1, True), (2, True)]

    here.do(story)


def test_the_limit_is_kept_and_said(here: AgentWorkspace) -> None:
    async def story(link: AgentClient) -> None:
        found, complete = await link.search(limit=2)
        assert len(found) == 2
        assert not complete

    here.do(story)


def test_nonsense_is_refused(here: AgentWorkspace) -> None:
    async def story(link: AgentClient) -> None:
        with pytest.raises(InvalidRequest, match="regular expression"):
            await link.search(regex="(")
        with pytest.raises(InvalidRequest, match="not both"):
            await link.search(text="a", regex="b")
        with pytest.raises(NotFound):
            await link.search("missing", text="a")

    here.do(story)
