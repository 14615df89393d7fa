"""ChatUI's containers over HTTP: make, show and remove them."""

from __future__ import annotations

import contextlib
import logging
import secrets
import time
import uuid
from typing import TYPE_CHECKING

import anyio

from warren.core.concurrency.admission import RateExceeded
from warren.core.sandboxes.sandboxes import NewSandbox
from warren.domain.egress import Egress, EgressMode
from warren.domain.errors import Error, NotFound, Overloaded, QuotaExceeded
from warren.domain.records import Scope
from warren.domain.values import Storage
from warren.gateway.api.bodies import BodyAnnouncedTooLarge
from warren.gateway.api.operations import Answer, Routes, json_reply
from warren.gateway.dialects import details
from warren.gateway.dialects.chatui import (
    containers,
    report,
    routes_about,
    routes_execute,
    routes_latex,
    routes_render,
    schemas,
    translate,
    words,
)
from warren.gateway.dialects.details import IgnoredQuery, Refused
from warren.gateway.dialects.dialect import Dialect

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from warren.domain.records import Sandbox
    from warren.gateway.api.operations import Call

_GUARD_S = 30.0
_SATURATED = "Container creation is temporarily saturated. Please retry shortly."
_FAILED = "Internal error during container creation"

_log = logging.getLogger(__name__)

_PATH = "/containers/{container_id}"

routes = Routes("Containers", query=IgnoredQuery)


@routes.add(
    "POST /containers",
    Scope.RUN,
    body=schemas.CreateContainer,
    body_is_optional=True,
    body_limit=words.body_limit,
    answers=(Answer("The container.", schemas.Container),),
    errors=(400, 422, 429, 503),
)
async def create_container(call: Call) -> ASGIApp:
    """Make a container."""
    body, settings = call.body(schemas.CreateContainer), call.settings.dialects.chatui
    env = await _read_env(call) if body.inject_sandbox_env else None
    await words.check_rate(call, "creates", words.CREATE_RATE)
    known, owner = containers.containers_of(call.service), call.caller.principal.owner
    container_id = secrets.token_hex(32)
    async with known.turn(owner, _GUARD_S, Refused(503, _SATURATED, {"Retry-After": "1"})):
        await _check_room(call)
        known.creating += 1
        try:
            sandbox = await _create(call, container_id)
        finally:
            known.creating -= 1
    if env is not None:
        await _give_env(call, sandbox, env)
    known.remember(container_id, sandbox)
    return json_reply(translate.render_container(sandbox, container_id, sandbox.created_at, settings))


async def _check_room(call: Call) -> None:
    """Raise Refused when the caller, or everybody together, has enough containers."""
    settings, owner = call.settings.dialects.chatui, call.caller.principal.owner
    own, most = settings.containers_per_principal, settings.containers
    if own and await containers.count_containers(call.service, owner) >= own:
        raise Refused(429, words.TOO_MANY_OWN)
    pending = containers.containers_of(call.service).creating
    if most and await containers.count_containers(call.service, None) + pending >= most:
        raise Refused(429, words.TOO_MANY)


def _reach(call: Call) -> Egress | None:
    """Return what a container may reach: as the operator lets those that ask for a network; else the usual.

    Where programs may ask for packages, it is the package index at least.
    """
    settings, policy = call.settings.dialects.chatui, call.service.policy
    mode = EgressMode(settings.network if call.body(schemas.CreateContainer).enable_network else "none")
    if mode is EgressMode.NONE and settings.allow_pip and policy.egress.mode is EgressMode.NONE:
        mode = EgressMode.PACKAGES
    if mode is EgressMode.NONE:
        return None
    return policy.lower_egress(call.caller.principal.tenant, Egress(mode=mode))


async def _create(call: Call, container_id: str) -> Sandbox:
    settings = call.settings.dialects.chatui
    new = NewSandbox(
        image=settings.image or None,
        limits=call.service.policy.limits_with_memory(call.caller.principal.tenant, settings.memory_bytes),
        # As the original: one that is idle for long is gone, with its files.
        storage=Storage.EPHEMERAL,
        metadata=containers.DIALECT,
        session_key=containers.session_key(container_id),
        idle_timeout_s=settings.idle_timeout_s,
        max_lifetime_s=settings.max_lifetime_s,
        egress=_reach(call),
    )
    try:
        sandbox, _ = await call.service.sandboxes.create(call.caller, new)
    except RateExceeded as error:
        raise Refused(429, words.CREATE_RATE, words.retry(error)) from error
    except QuotaExceeded as error:
        raise Refused(429, words.TOO_MANY_OWN, words.retry(error)) from error
    except Overloaded as error:
        raise Refused(503, _SATURATED, words.retry(error)) from error
    except Error as error:
        _log.warning("chatui.create_failed", extra={"request_id": call.caller.request_id, "reason": error})
        raise Refused(500, _FAILED) from error
    return sandbox


async def _read_env(call: Call) -> bytes:
    settings = call.settings.dialects.chatui
    if not settings.allow_env:
        raise Refused(400, "Sandbox env injection is disabled.")
    with contextlib.suppress(OSError):
        if settings.env_file:
            return await anyio.Path(settings.env_file).read_bytes()
    raise Refused(400, "Sandbox env injection was requested, but no readable env source file is configured.")


async def _give_env(call: Call, sandbox: Sandbox, env: bytes) -> None:
    try:
        await call.service.files.write(call.caller, sandbox.id, ".env", env, mode=0o600)
    except Error as error:
        with contextlib.suppress(NotFound):
            await call.service.sandboxes.delete(call.caller, sandbox.id)
        raise Refused(500, _FAILED) from error


@routes.add(f"GET {_PATH}", Scope.READ, answers=(Answer("The container.", schemas.Container),), errors=(403, 404))
async def get_container(call: Call) -> ASGIApp:
    """Show a container."""
    container_id = call.params["container_id"]
    sandbox = await containers.find(call, container_id)
    return json_reply(translate.render_container(sandbox, container_id, time.time(), call.settings.dialects.chatui))


@routes.add(f"DELETE {_PATH}", Scope.RUN, answers=(Answer("It is gone.", schemas.Removed),), errors=(403, 404))
async def delete_container(call: Call) -> ASGIApp:
    """Remove a container."""
    container_id = call.params["container_id"]
    sandbox = await containers.find(call, container_id)
    known = containers.containers_of(call.service)
    try:
        await call.service.sandboxes.delete(call.caller, sandbox.id)
    except NotFound:
        raise known.missing(container_id) from None
    known.forget(container_id)
    return json_reply({"status": "success", "message": f"Container {container_id} removed."})


DIALECT = Dialect(
    name="chatui",
    title="ChatUI",
    about="Containers as ChatUI's code execution gateway serves them: fresh processes, files in, `/tmp/output` out.",
    operations=(
        *routes_execute.routes,
        *routes,
        *routes_about.routes,
        *routes_latex.routes,
        *routes_render.routes,
    ),
    parse_body=details.parse_body,
    parse_query=details.parse_query,
    respond=words.respond,
    headers=words.HEADERS,
    refused_early=(BodyAnnouncedTooLarge,),
    new_request_id=lambda: str(uuid.uuid4()),
    shared_paths=words.SHARED,
    own_paths=frozenset({"/health/details"}),
    report=report.ChatuiReport,
)
