"""Skill registry: packages that callers keep here and install in their sandboxes.

A skill belongs to its owner. Once it is shared, its tenant may see and install it; only the owner changes it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import math
import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

import anyio
from anyio import to_thread

from warren.core.files.stored import write_row
from warren.core.policy.policy import check_may
from warren.core.skills.package import is_text_alone, pack_text, read_text, with_front
from warren.domain.errors import Conflict, Forbidden, NotFound, StoreError
from warren.domain.records import Scope, Skill, SkillQuery
from warren.domain.values import new_id

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence

    from warren.blobs.filesystem import Blobs, Reading
    from warren.core.audit.log import Audit
    from warren.core.policy.policy import Policy
    from warren.core.skills.package import Package
    from warren.domain.records import Caller, Page
    from warren.stores.base import Store

_SWEEP_S = 3600.0

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class SkillChanges:
    """Changes to a skill; None keeps a value."""

    name: str | None = None
    description: str | None = None
    text: str | None = None
    """The new SKILL.md, for a skill without other files."""
    metadata: Mapping[str, object] | None = None
    is_shared: bool | None = None
    category: str | None = None
    tags: Sequence[str] | None = None

    @property
    def in_text(self) -> bool:
        """Whether SKILL.md changes."""
        return not (self.text is None and self.name is None and self.description is None)


class Skills:
    """The skills of all owners. A skill that is neither the caller's nor shared does not exist for the caller."""

    def __init__(self, store: Store, blobs: Blobs, audit: Audit, policy: Policy) -> None:
        self._store = store
        self._blobs = blobs
        self._audit = audit
        self._policy = policy

    async def add(
        self,
        caller: Caller,
        package: Package,
        *,
        source: str,
        replace: bool = False,
        metadata: Mapping[str, object] | None = None,
        server_id: str | None = None,
    ) -> Skill:
        """Store a package as a new skill, or with `replace` as that of one. Raises Conflict and QuotaExceeded."""
        async with self._audited(caller, "skill.create", Scope.RUN, name=package.name) as noted:
            owner = caller.principal.owner
            before = await self._store.find_skill(owner, package.name) if replace else None
            async with self._blobs.write(package.content) as blob:
                now = time.time()
                skill = Skill(
                    id=new_id("skl"),
                    owner=owner,
                    name=package.name,
                    description=package.description,
                    source=source,
                    metadata=dict(metadata or {}),
                    server_id=server_id,
                    folder=package.folder,
                    blob=blob.name,
                    size=blob.size,
                    sha256=blob.sha256,
                    created_at=now,
                    changed_at=now,
                )
                skill, is_new = await self._put(skill, before, replace=replace)
            noted |= {"skill_id": skill.id, "bytes": skill.size, "replaced": not is_new}
        return skill

    async def get(self, caller: Caller, skill_id: str) -> Skill:
        """Return a skill. Raises NotFound, also for one that the caller may not see."""
        check_may(caller, Scope.READ)
        skill = await self._store.skill(skill_id)
        if skill is None or not _may_see(caller, skill):
            _refuse(skill_id)
        return skill

    async def get_usable(self, caller: Caller, skill_id: str) -> Skill:
        """Return a skill that the caller may install. Raises NotFound, and Forbidden to an admin."""
        skill = await self.get(caller, skill_id)
        if skill.owner != caller.principal.owner and not _is_shared_with(caller, skill):
            raise Forbidden(
                f"skill {skill.name!r} has another owner: with the scope admin you may see it, but not use it"
            )
        return skill

    async def get_text(self, skill: Skill) -> str:
        """Return the SKILL.md of a skill that `get` returned."""
        content = await self._read(skill)
        return await to_thread.run_sync(read_text, content, skill.folder)

    async def get_with_text(self, caller: Caller, skill_id: str) -> tuple[Skill, str]:
        """Return a skill and its SKILL.md, both of the same version. Raises NotFound as `get`."""
        while True:
            skill = await self.get(caller, skill_id)
            try:
                return skill, await self.get_text(skill)
            except Conflict:
                # Replaced meanwhile: read again. Unchanged: its package is gone.
                if (await self.get(caller, skill_id)).blob == skill.blob:
                    raise

    async def list(self, caller: Caller, *, offset: int = 0, limit: int = 50, everybody: bool = False) -> Page[Skill]:
        """Return a page of the caller's own and their tenant's shared skills, by name; to an admin, of all."""
        check_may(caller, Scope.ADMIN if everybody else Scope.READ)
        owner = None if everybody else caller.principal.owner
        return await self._store.skills(SkillQuery(owner=owner, offset=offset, limit=limit))

    async def update(self, caller: Caller, skill_id: str, changes: SkillChanges) -> Skill:
        """Change a skill of the caller's own. Raises NotFound, Forbidden, Conflict and InvalidRequest."""
        async with self._audited(caller, "skill.update", Scope.RUN, skill_id=skill_id):
            before = await self._get_own(caller, skill_id)
            skill = dataclasses.replace(
                before,
                metadata=before.metadata if changes.metadata is None else dict(changes.metadata),
                is_shared=before.is_shared if changes.is_shared is None else changes.is_shared,
                category=before.category if changes.category is None else changes.category,
                tags=before.tags if changes.tags is None else tuple(changes.tags),
                changed_at=_later(before),
            )
            if not changes.in_text:
                await self._swap(skill, before)
                return skill
            package = await self._rewrite(before, changes)
            async with self._blobs.write(package.content) as blob:
                skill = dataclasses.replace(
                    skill,
                    name=package.name,
                    description=package.description,
                    blob=blob.name,
                    size=blob.size,
                    sha256=blob.sha256,
                )
                await self._swap(skill, before)
            return skill

    async def delete(self, caller: Caller, skill_id: str) -> None:
        """Delete a skill of the caller's own; as admin, any. Installed copies in sandboxes stay."""
        async with self._audited(caller, "skill.delete", Scope.RUN, skill_id=skill_id) as noted:
            skill = await self.get(caller, skill_id)
            if skill.owner != caller.principal.owner and not caller.principal.may(Scope.ADMIN):
                raise Forbidden(f"skill {skill.name!r} has another owner: you may use it, but not delete it")
            noted["name"] = skill.name
            with anyio.CancelScope(shield=True):
                if not await self._store.remove_skill(skill.id):
                    _refuse(skill_id)
                await self._blobs.remove(skill.blob)

    @contextlib.asynccontextmanager
    async def read(self, skill: Skill) -> AsyncIterator[Reading]:
        """Open the package of a skill that `get` returned. Raises Conflict when it was replaced since."""
        async with contextlib.AsyncExitStack() as held:
            try:
                content = await held.enter_async_context(self._blobs.read(skill.blob))
            except NotFound as exc:
                raise Conflict(f"skill {skill.name!r} was just replaced or deleted: try again") from exc
            yield content

    async def run(self) -> None:
        """Remove packages that a crash left without a skill, until the service stops."""
        while True:
            try:
                swept = await self._blobs.sweep(self._store.skill_blobs)
                if swept:
                    _log.info("skills.swept", extra={"packages": swept})
            except StoreError as error:
                _log.warning("skills.sweep_failed", extra={"reason": str(error)})
            await anyio.sleep(_SWEEP_S)

    async def _read(self, skill: Skill) -> bytes:
        async with self.read(skill) as content:
            return b"".join([piece async for piece in content])

    async def _rewrite(self, skill: Skill, changes: SkillChanges) -> Package:
        """Build the package of a skill with another name, description or text."""
        content = await self._read(skill)
        if not await to_thread.run_sync(is_text_alone, content):
            raise Conflict(
                f"skill {skill.name!r} came as a package with more files: upload it again with replace=true to change "
                "its name, description or text"
            )
        name, description = changes.name or skill.name, changes.description or skill.description
        text = changes.text
        if text is None:
            # Only the head changes.
            text = read_text(content, skill.folder).partition("\n---")[2].partition("\n")[2].lstrip("\r\n")
        return await to_thread.run_sync(lambda: pack_text(with_front(text, name, description)))

    async def _get_own(self, caller: Caller, skill_id: str) -> Skill:
        skill = await self.get(caller, skill_id)
        if skill.owner != caller.principal.owner:
            raise Forbidden(f"skill {skill.name!r} has another owner: you may use it, but not change it")
        return skill

    async def _put(self, skill: Skill, before: Skill | None, *, replace: bool) -> tuple[Skill, bool]:
        """Store a skill as new, or in place of `before`; return it, and whether it is new."""
        if before is None:
            store, policy = self._store, self._policy
            row = store.add_skill(skill, most=policy.own_skills, most_bytes=policy.own_skill_bytes)
            try:
                await write_row(row, partial(store.remove_skill, skill.id))
            except Conflict:
                # Another request may have created a skill of that name meanwhile.
                before = await self._store.find_skill(skill.owner, skill.name) if replace else None
                if before is None:
                    raise
            else:
                return skill, True
        kept = ("id", "metadata", "server_id", "is_shared", "category", "tags", "created_at")
        same = {name: getattr(before, name) for name in kept}
        skill = dataclasses.replace(skill, **same, changed_at=_later(before))
        await self._swap(skill, before)
        return skill, False

    async def _swap(self, skill: Skill, before: Skill) -> None:
        with anyio.CancelScope(shield=True):
            if not await self._store.swap_skill(skill, was=before, most_bytes=self._policy.own_skill_bytes):
                raise Conflict(f"skill {before.name!r} was changed by another request meanwhile: read it again")
            if skill.blob != before.blob:
                # A failure here is swept later; the new package, which has a row, must stay.
                with contextlib.suppress(StoreError):
                    await self._blobs.remove(before.blob)

    @contextlib.asynccontextmanager
    async def _audited(
        self, caller: Caller, action: str, scope: Scope, **details: Any
    ) -> AsyncIterator[dict[str, Any]]:
        async with self._audit.operation(caller, action, **details) as noted:
            check_may(caller, scope)
            self._audit.check_writable()
            yield noted


def _later(before: Skill) -> float:
    """Return the time of a change, later than the last one however coarse the clock: it tells versions apart."""
    return max(time.time(), math.nextafter(before.changed_at, math.inf))


def _may_see(caller: Caller, skill: Skill) -> bool:
    principal = caller.principal
    return skill.owner == principal.owner or _is_shared_with(caller, skill) or principal.may(Scope.ADMIN)


def _is_shared_with(caller: Caller, skill: Skill) -> bool:
    return skill.is_shared and skill.owner.tenant == caller.principal.tenant


def _refuse(skill_id: str) -> NoReturn:
    raise NotFound(f"there is no skill {skill_id[:64]!r}")
