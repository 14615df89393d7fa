"""Keys, stored files, skills, renders, callbacks, grants and secrets in memory."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

from warren.domain.errors import Conflict
from warren.stores.memory.tables import OpenTables, first, newest, oldest, page
from warren.stores.quotas import check_file, check_skill_bytes, check_skill_count

if TYPE_CHECKING:
    from warren.domain.egress import Brokered, Grant
    from warren.domain.records import ApiKey, Callbacks, Owner, Page, Render, Skill, SkillQuery, StoredFile


class EgressRecords(OpenTables):
    """The methods of the store that are about what a sandbox may reach and call."""

    async def keep_callbacks(self, callbacks: Callbacks) -> None:
        if callbacks.sandbox_id in self._tables.sandboxes:
            self._tables.callbacks[callbacks.sandbox_id] = callbacks

    async def callbacks(self) -> tuple[Callbacks, ...]:
        return tuple(self._tables.callbacks.values())

    async def keep_grant(self, grant: Grant) -> None:
        if grant.sandbox_id in self._tables.sandboxes:
            self._tables.grants[grant.id] = grant

    async def remove_grant(self, grant_id: str) -> bool:
        return self._tables.grants.pop(grant_id, None) is not None

    async def grants(self) -> tuple[Grant, ...]:
        return oldest(self._tables.grants.values(), "created_at", "id")

    async def keep_secret(self, secret: Brokered) -> None:
        if secret.sandbox_id in self._tables.sandboxes:
            self._tables.secrets[secret.sandbox_id, secret.name] = secret

    async def remove_secret(self, sandbox_id: str, name: str) -> bool:
        return self._tables.secrets.pop((sandbox_id, name), None) is not None

    async def secrets(self) -> tuple[Brokered, ...]:
        return oldest(self._tables.secrets.values(), "created_at", "name")


class KeyRecords(OpenTables):
    """The methods of the store that are about API keys and idempotency keys."""

    async def add_key(self, key: ApiKey) -> None:
        rows, now = self._tables.keys, time.time()
        if any(each.name == key.name and _in_force(each, now) for each in rows.values()):
            raise Conflict(f"there is a key {key.name!r} already: revoke it first, or choose another name")
        if any(key.id == each.id or key.hash == each.hash for each in rows.values()):
            raise Conflict(f"there is a key {key.id} already, or one of the same secret")
        rows[key.hash] = key

    async def key(self, hash: str) -> ApiKey | None:  # noqa: A002 - the field's name
        return self._tables.keys.get(hash)

    async def keys(self) -> tuple[ApiKey, ...]:
        return oldest(self._tables.keys.values(), "created_at")

    async def revoke_key(self, key_id: str, at: float) -> bool:
        key = first(each for each in self._tables.keys.values() if each.id == key_id and _in_force(each, at))
        if key is not None:
            self._tables.keys[key.hash] = replace(key, revoked_at=at)
        return key is not None

    async def remember(self, owner: Owner, key: str, fingerprint: str, target: str, *, ttl_s: float) -> str:
        rows, now = self._tables.idempotency, time.time()
        for name in [name for name, (_, _, expires_at) in rows.items() if expires_at <= now]:
            del rows[name]
        tied, first, _ = rows.setdefault((owner, key), (fingerprint, target, now + ttl_s))
        if tied != fingerprint:
            raise Conflict(f"the idempotency key {key!r} was used for another request: use a new one")
        return first

    async def forget(self, owner: Owner, key: str, target: str) -> None:
        tied = self._tables.idempotency.get((owner, key))
        if tied is not None and tied[1] == target:
            del self._tables.idempotency[owner, key]


class FileRecords(OpenTables):
    """The methods of the store that are about stored files."""

    async def add_file(self, file: StoredFile, *, own_bytes: int = 0, all_bytes: int = 0) -> None:
        check_file(file, own_bytes, all_bytes, self._weigh_files)
        if file.id in self._tables.files:
            raise Conflict(f"there is a file {file.id} already")
        self._tables.files[file.id] = file

    async def file(self, file_id: str) -> StoredFile | None:
        return self._tables.files.get(file_id)

    async def files(self, owner: Owner | None) -> tuple[StoredFile, ...]:
        rows = self._tables.files.values()
        return oldest((each for each in rows if owner in {None, each.owner}), "created_at")

    async def remove_file(self, file_id: str) -> bool:
        return self._tables.files.pop(file_id, None) is not None

    async def remove_files(self, *, expired_at: float, limit: int) -> tuple[StoredFile, ...]:
        rows = self._tables.files
        found = oldest((each for each in rows.values() if each.expires_at <= expired_at), "expires_at")[:limit]
        for file in found:
            del rows[file.id]
        return found

    async def file_bytes(self, owner: Owner | None) -> int:
        return self._weigh_files(owner)

    def _weigh_files(self, owner: Owner | None) -> int:
        return sum(each.weight for each in self._tables.files.values() if owner in {None, each.owner})


class SkillRecords(OpenTables):
    """The methods of the store that are about skills."""

    async def add_skill(self, skill: Skill, *, most: int = 0, most_bytes: int = 0) -> None:
        owned = self._skills_of(skill.owner)
        check_skill_count(len(owned), most)
        check_skill_bytes(skill, was=0, have=sum(each.size for each in owned), most=most_bytes)
        if skill.id in self._tables.skills or any(each.name == skill.name for each in owned):
            raise _skill_conflict(skill)
        self._tables.skills[skill.id] = skill

    async def skill(self, skill_id: str) -> Skill | None:
        return self._tables.skills.get(skill_id)

    async def find_skill(self, owner: Owner, name: str) -> Skill | None:
        return first(each for each in self._skills_of(owner) if each.name == name)

    async def skills(self, query: SkillQuery) -> Page[Skill]:
        owner = query.owner
        found = [
            each
            for each in self._tables.skills.values()
            if owner is None or each.owner == owner or (each.is_shared and each.owner.tenant == owner.tenant)
        ]
        return page(oldest(found, "name"), query.offset, query.limit)

    async def swap_skill(self, skill: Skill, *, was: Skill, most_bytes: int = 0) -> bool:
        owned = self._skills_of(skill.owner)
        check_skill_bytes(skill, was=was.size, have=sum(each.size for each in owned), most=most_bytes)
        now = self._tables.skills.get(skill.id)
        if now is None or (now.blob, now.changed_at) != (was.blob, was.changed_at):
            return False
        if any(each.name == skill.name and each.id != skill.id for each in self._skills_of(now.owner)):
            raise _skill_conflict(skill)
        self._tables.skills[skill.id] = replace(skill, owner=now.owner, created_at=now.created_at)
        return True

    async def remove_skill(self, skill_id: str) -> bool:
        return self._tables.skills.pop(skill_id, None) is not None

    async def skill_blobs(self) -> frozenset[str]:
        return frozenset(each.blob for each in self._tables.skills.values())

    def _skills_of(self, owner: Owner) -> tuple[Skill, ...]:
        return tuple(each for each in self._tables.skills.values() if each.owner == owner)


class RenderRecords(OpenTables):
    """The methods of the store that are about renders."""

    async def add_render(self, render: Render) -> None:
        if render.id in self._tables.renders:
            raise Conflict(f"there is a render {render.id} already")
        self._tables.renders[render.id] = render

    async def keep_render(self, render: Render) -> bool:
        if render.id not in self._tables.renders:
            return False
        self._tables.renders[render.id] = render
        return True

    async def render(self, render_id: str) -> Render | None:
        return self._tables.renders.get(render_id)

    async def renders(self, owner: Owner) -> tuple[Render, ...]:
        return tuple(newest([each for each in self._tables.renders.values() if each.owner == owner], "created_at"))

    async def unfinished_renders(self) -> tuple[Render, ...]:
        return tuple(each for each in self._tables.renders.values() if each.finished_at is None)

    async def remove_render(self, render_id: str) -> bool:
        return self._tables.renders.pop(render_id, None) is not None

    async def remove_renders(self, *, expired_at: float) -> int:
        rows = self._tables.renders
        over = [each.id for each in rows.values() if each.finished_at is not None and each.expires_at <= expired_at]
        for render_id in over:
            del rows[render_id]
        return len(over)


def _in_force(key: ApiKey, at: float) -> bool:
    return key.revoked_at is None and (key.expires_at is None or key.expires_at > at)


def _skill_conflict(skill: Skill) -> Conflict:
    return Conflict(f"you have a skill {skill.name!r} already: delete it, or replace it")
