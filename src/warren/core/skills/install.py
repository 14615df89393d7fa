"""Installs skills in sandboxes: the agent unpacks each beside its destination, and renames it into place."""

from __future__ import annotations

import contextlib
import secrets
from typing import TYPE_CHECKING, Any

import anyio

from warren.core.concurrency.keyed_lock import KeyedLock
from warren.core.skills.package import MARK
from warren.domain.errors import Conflict, Error, InvalidRequest, NotFound

if TYPE_CHECKING:
    from collections.abc import Sequence

    from warren.core.agent.client import AgentClient
    from warren.core.audit.log import Audit
    from warren.core.sandboxes.creation import NewSandbox
    from warren.core.sandboxes.sandboxes import Sandboxes
    from warren.core.skills.registry import Skills
    from warren.domain.records import Caller, Sandbox, Skill

FOLDER = "skills"
_MARK_BYTES = 256


class SkillInstallation:
    """Installs skills under `/workspace/skills/<name>`. An identical one that is there is left alone."""

    def __init__(self, skills: Skills, sandboxes: Sandboxes, audit: Audit) -> None:
        self._skills = skills
        self._sandboxes = sandboxes
        self._audit = audit
        self._installing = KeyedLock()

    async def install(
        self, caller: Caller, sandbox_id: str, skill_ids: Sequence[str]
    ) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Install skills; return the names of the new ones, and of those that were there.

        Raises NotFound for a skill that the caller may not see, before any is installed, and Conflict where another
        folder has its place.
        """
        skills = await self._find(caller, skill_ids)
        installed: list[str] = []
        known: list[str] = []
        self._audit.check_writable()
        # The entry holds the lists, with their content at the end.
        noted: dict[str, Any] = {"installed": installed, "already_installed": known}
        ids = [skill.id for skill in skills]
        async with (
            self._audit.operation(caller, "skill.install", sandbox_id=sandbox_id, skills=ids, **noted),
            self._sandboxes.use(caller, sandbox_id) as live,
            self._installing.hold(sandbox_id),
        ):
            for skill in skills:
                is_new = await self._install(live.agent, skill)
                (installed if is_new else known).append(skill.name)
        return tuple(installed), tuple(known)

    async def create(self, caller: Caller, new: NewSandbox, skill_ids: Sequence[str]) -> tuple[Sandbox, bool]:
        """Create or find a sandbox with these skills; a new one that cannot have them is removed."""
        await self._find(caller, skill_ids)
        sandbox, is_new = await self._sandboxes.create(caller, new)
        try:
            await self.install(caller, sandbox.id, skill_ids)
        except BaseException:
            if is_new:
                with anyio.CancelScope(shield=True), contextlib.suppress(Error):
                    await self._sandboxes.delete(caller, sandbox.id)
            raise
        return sandbox, is_new

    async def _find(self, caller: Caller, skill_ids: Sequence[str]) -> list[Skill]:
        found: dict[str, Skill] = {}
        for skill_id in dict.fromkeys(skill_ids):
            skill = await self._skills.get_usable(caller, skill_id)
            if found.setdefault(skill.name, skill) is not skill:
                raise InvalidRequest(f"two of these skills are called {skill.name!r}, and a sandbox has room for one")
        return list(found.values())

    async def _install(self, agent: AgentClient, skill: Skill) -> bool:
        """Install one skill; False if it was there."""
        target, mark = f"{FOLDER}/{skill.name}", f"{skill.id} {skill.sha256}\n".encode()
        before = await _read_mark(agent, target)
        if before == mark:
            return False
        if before is None and await _is_there(agent, target):
            raise Conflict(
                f"there is a folder {target} in the workspace that Warren did not put there: move it away, or delete it"
            )
        draft = f"{FOLDER}/.warren-{secrets.token_hex(8)}"
        await agent.mkdir(draft)
        try:
            async with self._skills.read(skill) as package:
                await agent.unpack(draft, package, "zip")
            inner = f"{draft}/{skill.folder}" if skill.folder else draft
            await agent.write(f"{inner}/{MARK}", mark)
            if before is not None:
                await agent.delete(target, recursive=True)
            await agent.move(inner, target)
        finally:
            # The draft is gone already if the whole of it was renamed.
            with anyio.CancelScope(shield=True), contextlib.suppress(Error):
                await agent.delete(draft, recursive=True)
        return True


async def _read_mark(agent: AgentClient, target: str) -> bytes | None:
    try:
        return await agent.read_bytes(f"{target}/{MARK}", _MARK_BYTES)
    except (NotFound, Conflict):
        return None


async def _is_there(agent: AgentClient, path: str) -> bool:
    try:
        await agent.stat(path, follow=False)
    except NotFound:
        return False
    return True
