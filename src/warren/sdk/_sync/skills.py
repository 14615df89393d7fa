# Made from src/warren/sdk/_async/skills.py by `make sdk`: change that instead.
"""The skills that a service keeps: packages of instructions and files for sandboxes."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from warren.sdk.address import encode
from warren.sdk.content import build_form
from warren.sdk.io_sync import in_thread
from warren.sdk.options import SkillOptions, build_body
from warren.sdk.request import api
from warren.sdk.values import build, build_page
from warren.sdk.values_service import SkillInfo

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any, Unpack

    from warren.sdk._sync.connection import Connection
    from warren.sdk.content import Progress, Uploadable
    from warren.sdk.values import Page


class Skills:
    """Your skills, and those that others of your tenant share; `Sandbox.install_skills` puts them into a sandbox."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def create(
        self, name: str, description: str, skill_md_content: str, *, skill_metadata: Mapping[str, Any] | None = None
    ) -> SkillInfo:
        """Keep a text as a skill. Raises Conflict where you have one of that name, and other Errors."""
        body = {"name": name, "description": description, "skill_md_content": skill_md_content}
        request = api("POST", "skills", json={**body, "skill_metadata": dict(skill_metadata or {})})
        return self._connection.ask_for(SkillInfo, request)

    def upload(
        self,
        package: Uploadable,
        *,
        filename: str | None = None,
        replace: bool = False,
        progress: Progress | None = None,
    ) -> SkillInfo:
        """Keep a `.zip`, `.skill` or `.md` as a skill; with `replace`, in place of yours of that name. Raises Error.

        Its name is that of the file, or `skill.zip` for what has none.
        """
        named = os.path.basename(os.fspath(package)) if isinstance(package, os.PathLike) else "skill.zip"
        content, kind = in_thread(build_form, {filename or named: package})
        request = api(
            "POST",
            "skills",
            "upload",
            params={"replace": replace},
            headers={"Content-Type": kind},
            content=content,
            repeatable=replace,
        )
        return self._connection.ask_for(SkillInfo, request, progress=progress)

    def list(self, *, offset: int = 0, limit: int = 50, everybody: bool = False) -> Page[SkillInfo]:
        """List them by name; with `everybody`, as admin, other people's too. Raises Error."""
        params = {"offset": offset, "limit": limit, "everybody": everybody or None}
        found = self._connection.ask_json(api("GET", "skills", params=params))
        return build_page(found, lambda raw: build(SkillInfo, raw))

    def get(self, skill_id: str) -> SkillInfo:
        """Get one, with its text. Raises NotFound and other Errors."""
        return self._connection.ask_for(SkillInfo, api("GET", "skills", encode(skill_id)))

    def update(self, skill_id: str, **changes: Unpack[SkillOptions]) -> SkillInfo:
        """Change or share one of yours. Raises Error."""
        request = api("PATCH", "skills", encode(skill_id), json=build_body(changes, SkillOptions))
        return self._connection.ask_for(SkillInfo, request)

    def delete(self, skill_id: str) -> None:
        """Delete one; what sandboxes have of it stays there. Raises Error."""
        self._connection.ask(api("DELETE", "skills", encode(skill_id)))

    def package(self, skill_id: str) -> bytes:
        """Read the zip of one. Raises NotFound and other Errors."""
        return (self._connection.ask(api("GET", "skills", encode(skill_id), "package"))).content
