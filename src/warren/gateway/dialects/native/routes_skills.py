"""The native API: skills, and putting them into sandboxes."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from anyio import to_thread

from warren.core.skills.package import MAX_PACKAGE, check_package, pack_text, with_front
from warren.core.skills.registry import SkillChanges
from warren.domain.errors import Forbidden, InvalidRequest, TooLarge
from warren.domain.records import Scope
from warren.domain.values import KIB
from warren.gateway.api.large_responses import answer_with
from warren.gateway.api.operations import NO_CONTENT, Answer, Routes, json_reply
from warren.gateway.api.transfers import Streamed, Upload
from warren.gateway.dialects.multipart import Form
from warren.gateway.dialects.named_files import attachment_headers
from warren.gateway.dialects.native import schemas_skills as schemas
from warren.gateway.dialects.native.answers import render_time
from warren.gateway.dialects.native.common import sandbox_id
from warren.gateway.dialects.native.schemas_answers import ListOf
from warren.gateway.dialects.native.translate import render_page

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from warren.domain.records import Skill
    from warren.gateway.api.operations import Call

_FORM_BYTES = 64 * KIB
"""What a form has besides its file."""

_ONE = Answer("The skill.", schemas.SkillDetails)
_MADE = Answer(
    status=201,
    description="It is kept.",
    model=schemas.SkillDetails,
    headers={"Location": "Where the skill is."},
)

routes = Routes("Skills")


@routes.add(
    "POST /sandboxes/{sandbox_id}/skills",
    Scope.RUN,
    description="Each is unpacked inside, in `/workspace/skills/<name>`. One that is there already, and the same, "
    "is left alone; an earlier version of it is replaced.",
    body=schemas.InstallSkills,
    example={"skill_ids": ["skl_0123456789abcdef01234567"]},
    answers=(Answer("They are there.", schemas.Installed),),
    errors=(404, 409, 413, 502),
)
async def install_skills(call: Call) -> ASGIApp:
    """Put skills into a sandbox."""
    body = call.body(schemas.InstallSkills)
    installed, known = await call.service.skill_installation.install(call.caller, sandbox_id(call), body.skill_ids)
    return json_reply({"installed": list(installed), "already_installed": list(known)})


@routes.add(
    "POST /skills",
    Scope.RUN,
    body=schemas.CreateSkill,
    example={
        "name": "data-analyzer",
        "description": "Analyzes tables.",
        "skill_md_content": "# How to analyze a table\n\nLook at it first.\n",
    },
    answers=(_MADE,),
    errors=(409,),
)
async def create_skill(call: Call) -> ASGIApp:
    """Write a skill."""
    body = call.body(schemas.CreateSkill)
    package = await to_thread.run_sync(
        lambda: pack_text(with_front(body.skill_md_content, body.name, body.description))
    )
    skill = await call.service.skills.add(
        call.caller, package, source="manual", metadata=body.skill_metadata, server_id=body.mcp_server_id
    )
    return _made(call, skill, package.skill_md)


@routes.add(
    "POST /skills/upload",
    Scope.RUN,
    description="One file of a form: a `.zip` or `.skill` of at most 10 MiB and 100 files, with a `SKILL.md` at "
    "its root or in its only folder, or a `.md` that is one. Its head says the name and the description.",
    raw_body="multipart/form-data",
    example={"file": "skill.zip"},
    query=schemas.UploadSkill,
    answers=(_MADE,),
    errors=(409,),
)
async def upload_skill(call: Call) -> ASGIApp:
    """Upload a skill."""
    query = call.query(schemas.UploadSkill)
    async with call.service.files.transfers.one(call.caller.principal.owner):
        source = Upload(call.scope, call.receive, MAX_PACKAGE + _FORM_BYTES)
        name, content = await source.finish(_read_form(Form(call.header(b"content-type"), aiter(source))))
        package = await to_thread.run_sync(check_package, name, content)
        skill = await call.service.skills.add(call.caller, package, source="imported", replace=query.replace)
    return _made(call, skill, package.skill_md)


async def _read_form(form: Form) -> tuple[str, bytes]:
    """Return the name and the content of the one file of a form."""
    found: tuple[str, bytes] | None = None
    while (part := await form.next_part()) is not None:
        pieces: list[bytes] = []
        size = 0
        async for piece in part:
            size += len(piece)
            if size > MAX_PACKAGE:
                raise TooLarge(f"a skill may have {MAX_PACKAGE} bytes when packed")
            pieces.append(piece)
        if part.filename is not None and found is not None:
            raise InvalidRequest("the form has several files: send one skill at a time")
        if part.filename is not None:
            found = part.filename, b"".join(pieces)
    if found is None:
        raise InvalidRequest("the form has no file: send the skill as a part with a file name, such as skill.zip")
    return found


def _made(call: Call, skill: Skill, text: str) -> ASGIApp:
    location = (b"location", f"/api/v1/skills/{skill.id}".encode())
    shown = {**render_skill(skill), "skill_md_content": text}
    return answer_with(call, len(text), lambda: json_reply(shown, 201, location))


@routes.add(
    "GET /skills",
    Scope.READ,
    description="Yours, and those that others of your tenant share.",
    query=schemas.ListSkills,
    answers=(Answer("A part of the list.", ListOf[schemas.SkillShown]),),
)
async def list_skills(call: Call) -> ASGIApp:
    """List skills, by name."""
    query = call.query(schemas.ListSkills)
    if query.everybody and not call.caller.principal.may(Scope.ADMIN):
        raise Forbidden("only a key with the scope admin sees everybody's skills")
    page = await call.service.skills.list(
        call.caller, offset=query.offset, limit=query.limit, everybody=query.everybody
    )
    return json_reply(render_page(page, render_skill))


@routes.add("GET /skills/{skill_id}", Scope.READ, answers=(_ONE,), errors=(404, 409))
async def get_skill(call: Call) -> ASGIApp:
    """Show a skill."""
    async with _one_package(call):
        return _show(call, *await call.service.skills.get_with_text(call.caller, _skill_id(call)))


@routes.add(
    "PATCH /skills/{skill_id}",
    Scope.RUN,
    description="Only your own. Sandboxes that have it keep what they have until it is installed again.",
    body=schemas.UpdateSkill,
    example={"portal_visible": True},
    answers=(_ONE,),
    errors=(404, 409),
)
async def update_skill(call: Call) -> ASGIApp:
    """Change a skill."""
    body = call.body(schemas.UpdateSkill)
    changes = SkillChanges(
        name=body.name,
        description=body.description,
        text=body.skill_md_content,
        metadata=body.skill_metadata,
        is_shared=body.portal_visible,
        category=body.portal_category,
        tags=body.portal_tags,
    )
    async with _one_package(call):
        skill = await call.service.skills.update(call.caller, _skill_id(call), changes)
        return _show(call, skill, await call.service.skills.get_text(skill))


@routes.add(
    "DELETE /skills/{skill_id}",
    Scope.RUN,
    description="What sandboxes have of it stays there.",
    answers=(Answer("It is gone.", status=204),),
    errors=(404,),
)
async def delete_skill(call: Call) -> ASGIApp:
    """Delete a skill."""
    await call.service.skills.delete(call.caller, _skill_id(call))
    return NO_CONTENT


@routes.add(
    "GET /skills/{skill_id}/package",
    Scope.READ,
    answers=(
        Answer(
            description="The zip.",
            content_type="application/zip",
            headers={"ETag": "Names this state of it.", "Content-Disposition": "Always an attachment."},
        ),
    ),
    errors=(404, 409),
)
async def get_skill_package(call: Call) -> ASGIApp:
    """Get the package of a skill."""
    skill = await call.service.skills.get(call.caller, _skill_id(call))
    headers = [
        (b"content-type", b"application/zip"),
        (b"etag", f'"{skill.sha256}"'.encode()),
        *attachment_headers(f"{skill.name}.zip"),
    ]
    async with contextlib.AsyncExitStack() as held:
        await held.enter_async_context(call.service.files.transfers.one(call.caller.principal.owner))
        content = await held.enter_async_context(call.service.skills.read(skill))
        return Streamed(content, held.pop_all(), headers=headers, length=content.size)
    raise AssertionError


def _one_package(call: Call) -> contextlib.AbstractAsyncContextManager[None]:
    """Hold a place to have a package in memory, whole."""
    return call.service.executions.results.one(call.caller.principal.owner)


def _skill_id(call: Call) -> str:
    return call.id("skill_id", schemas.SKILL_ID, "skill")


def _show(call: Call, skill: Skill, text: str) -> ASGIApp:
    return answer_with(call, len(text), lambda: json_reply({**render_skill(skill), "skill_md_content": text}))


def render_skill(skill: Skill) -> dict[str, Any]:
    """Write a skill, without its text."""
    return schemas.SkillShown.render(
        skill,
        source_type=skill.source,
        source_url=None,
        mcp_server_id=skill.server_id,
        mcp_server_name=None,
        skill_metadata=dict(skill.metadata),
        package_size_bytes=skill.size,
        portal_visible=skill.is_shared,
        portal_category=skill.category,
        portal_tags=skill.tags,
        updated_at=render_time(skill.changed_at),
    )
