"""The native API: what a sandbox is granted for a while, and the secrets that it uses and never has."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from warren.core.egress.control import NewGrant, NewSecret
from warren.domain.records import Scope
from warren.gateway.api.operations import NO_CONTENT, Answer, Routes, json_reply
from warren.gateway.dialects.native.common import sandbox_id
from warren.gateway.dialects.native.schemas_egress import (
    CreateGrant,
    CreateSecret,
    GrantShown,
    GrantsShown,
    SecretShown,
    SecretsShown,
)
from warren.gateway.dialects.native.translate import render_grant, render_secret
from warren.gateway.dialects.native.translate_requests import parse_rule

if TYPE_CHECKING:
    from warren.gateway.api.operations import Call, Reply

_GRANT_ID = re.compile(r"grt_[a-z0-9]{8,40}")
_SECRET_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")

_GRANTS = "/sandboxes/{sandbox_id}/egress/grants"
_SECRETS = "/sandboxes/{sandbox_id}/secrets"

routes = Routes("Egress")


@routes.add(
    f"POST {_GRANTS}",
    Scope.RUN,
    description="Added to what its `egress` allows, at once and until it expires; then connections by it are cut.",
    body=CreateGrant,
    example={"host": "api.example.org", "ports": [443], "expires_in_seconds": 600},
    answers=(Answer("It is in force.", GrantShown, status=201),),
    errors=(404, 409),
)
async def create_grant(call: Call) -> Reply:
    """Let a sandbox reach something for a while."""
    asked = call.body(CreateGrant)
    new = NewGrant(rule=parse_rule(asked), expires_in_s=asked.expires_in_seconds)
    return json_reply(render_grant(await call.service.egress.grant(call.caller, sandbox_id(call), new)), 201)


@routes.add(f"GET {_GRANTS}", Scope.READ, answers=(Answer("The grants, oldest first.", GrantsShown),), errors=(404,))
async def list_grants(call: Call) -> Reply:
    """List what a sandbox was granted and still has."""
    grants = await call.service.egress.grants(call.caller, sandbox_id(call))
    return json_reply({"items": [render_grant(grant) for grant in grants]})


@routes.add(
    f"DELETE {_GRANTS}/{{grant_id}}", Scope.RUN, answers=(Answer("It is gone.", status=204),), errors=(404, 409)
)
async def delete_grant(call: Call) -> Reply:
    """Take back a grant; connections that nothing else allows are cut."""
    await call.service.egress.revoke(call.caller, sandbox_id(call), call.id("grant_id", _GRANT_ID, "grant"))
    return NO_CONTENT


@routes.add(
    f"POST {_SECRETS}",
    Scope.RUN,
    description="The sandbox gets a placeholder, in a variable of that name for every command and kernel that "
    "begins from now on. A program calls `http://` and one of the hosts; the service puts in the value, speaks "
    "TLS to that host, and gives the answer back. The same name again replaces the value and the hosts.",
    body=CreateSecret,
    example={"name": "API_TOKEN", "value": "the-real-token", "hosts": ["api.example.org"]},
    answers=(Answer("It can be used.", SecretShown, status=201),),
    errors=(404, 409, 502),
)
async def create_secret(call: Call) -> Reply:
    """Let a sandbox use a secret that it never has."""
    asked = call.body(CreateSecret)
    new = NewSecret(name=asked.name, value=asked.value, hosts=tuple(asked.hosts))
    return json_reply(render_secret(await call.service.egress.create_secret(call.caller, sandbox_id(call), new)), 201)


@routes.add(f"GET {_SECRETS}", Scope.READ, answers=(Answer("The secrets.", SecretsShown),), errors=(404,))
async def list_secrets(call: Call) -> Reply:
    """List the secrets of a sandbox, without their values."""
    secrets = await call.service.egress.secrets(call.caller, sandbox_id(call))
    return json_reply({"items": [render_secret(secret) for secret in secrets]})


@routes.add(
    f"DELETE {_SECRETS}/{{secret}}", Scope.RUN, answers=(Answer("It is gone.", status=204),), errors=(404, 409, 502)
)
async def delete_secret(call: Call) -> Reply:
    """Take back a secret; its placeholder means nothing from then on."""
    await call.service.egress.delete_secret(call.caller, sandbox_id(call), call.id("secret", _SECRET_NAME, "secret"))
    return NO_CONTENT
