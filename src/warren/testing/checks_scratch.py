"""Engine checks: scratch folders in /tmp, empty at the start of a program and readable after its end."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio

from warren.domain.errors import InvalidRequest, NotFound, TooLarge
from warren.domain.values import ExecKind
from warren.testing.subject import DEADLINE_S, run

if TYPE_CHECKING:
    from warren.core.agent.client import AgentClient
    from warren.domain.values import ExecResult
    from warren.testing.subject import Subject

_OUT = "/tmp/warren-check-out"
_OTHER = "/tmp/warren-check-other"


async def _run(agent: AgentClient, code: str) -> ExecResult:
    return await run(agent, code, kind=ExecKind.SHELL, scratch=(_OUT, _OTHER), collect=_OUT)


async def check_what_a_program_leaves_is_collected(subject: Subject) -> None:
    """The result lists files, links and nothing else, by their path; each can be read, and no link is followed."""
    async with subject.linked_sandbox() as agent:
        result = await _run(
            agent, f"cd {_OUT} && mkdir -p a/b && echo 1 > z && echo 22 > a/b/c && ln -s /etc/passwd l && mkfifo f"
        )

        assert [(one.path, one.type) for one in result.collected] == [
            ("a/b/c", "file"),
            ("f", "other"),
            ("l", "link"),
            ("z", "file"),
        ]
        assert result.collected_complete
        assert await agent.read_scratch(_OUT, "a/b/c", 3) == b"22\n"
        for path, limit, kind in (
            ("a/b/c", 2, TooLarge),
            ("l", 100, InvalidRequest),
            ("f", 100, InvalidRequest),
            ("../warren-check-other/x", 100, InvalidRequest),
            ("none", 100, NotFound),
        ):
            try:
                await agent.read_scratch(_OUT, path, limit)
            except kind:
                continue
            raise AssertionError(f"{path} could be read")


async def check_a_program_finds_its_folders_empty(subject: Subject) -> None:
    """Files that were left there, or that replaced a folder, are gone when the next program begins."""
    async with subject.linked_sandbox() as agent:
        for left in (
            f"touch {_OUT}/a {_OUT}/.b {_OTHER}/c",
            f"mkdir -p {_OUT}/deep/er && touch {_OUT}/deep/er/x",
            f"for n in $(seq 100); do touch {_OUT}/$n; done",
            f"rm -r {_OUT} && ln -s /workspace {_OUT} && touch /workspace/mine",
            f"rm -r {_OUT} && touch {_OUT}",
            f"rm -r {_OUT}",
            f"chmod 0 {_OUT}",
            f"mkdir -p {_OUT}/a/b/c && chmod 0 {_OUT}/a/b {_OUT}/a",
        ):
            assert (await _run(agent, left)).ok, left
            result = await _run(agent, f"ls -A {_OUT} {_OTHER}; test -w {_OUT} && test -d {_OUT}")
            assert result.stdout == f"{_OTHER}:\n\n{_OUT}:\n".encode(), left
            assert result.ok, left
        # Only the link is removed, not its target.
        assert (await run(agent, "test -e /workspace/mine", kind=ExecKind.SHELL)).ok
        await _run(agent, f"touch {_OUT}/a")
        agent.empty_scratch((_OUT,))
        await _wait_until_clean(agent)


async def _wait_until_clean(agent: AgentClient) -> None:
    """Renamed folders are deleted in the background."""
    with anyio.fail_after(DEADLINE_S):
        while (await run(agent, f"ls -A {_OUT}; ls -A /tmp | grep ^.warren-", kind=ExecKind.SHELL)).stdout:  # noqa: ASYNC110 - there is no event
            await anyio.sleep(0.02)


async def check_of_very_many_files_some_are_collected(subject: Subject) -> None:
    """A result lists as many files as fit, and is marked incomplete when there are more."""
    async with subject.linked_sandbox() as agent:
        result = await _run(agent, f"cd {_OUT} && seq 1500 | xargs touch")

        assert len(result.collected) == 1000
        assert not result.collected_complete
