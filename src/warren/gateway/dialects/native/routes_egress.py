"""The native API: what a sandbox is granted for a while, and the secrets that it uses and never has."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from warren.core.egress.control import NewGrant, NewSecret
from warren.domain.records import Scope
from warren.gateway.api.operations import NO_CONTENT, Answer, Operation, json_reply
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
from warren.gateway.dialects.native.translate_egress import parse_rule

if TYPE_CHECKING:
    from warren.gateway.api.operations import Call, Reply

_GRANT_ID = re.compile(r"grt_[a-z0-9]{8,40}")
_SECRET_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")


async def create_grant(call: Call) -> Reply:
    """Let a sandbox reach something for a while."""
    asked = call.body(CreateGrant)
    new = NewGrant(rule=parse_rule(asked), expires_in_s=asked.expires_in_seconds)
    return json_reply(render_grant(await call.service.egress.grant(call.caller, sandbox_id(call), new)), 201)


async def list_grants(call: Call) -> Reply:
    """List what a sandbox was granted."""
    grants = await call.service.egress.grants(call.caller, sandbox_id(call))
    return json_reply({"items": [render_grant(grant) for grant in grants]})


async def delete_grant(call: Call) -> Reply:
    """Take back a grant."""
    await call.service.egress.revoke(call.caller, sandbox_id(call), call.id("grant_id", _GRANT_ID, "grant"))
    return NO_CONTENT


async def create_secret(call: Call) -> Reply:
    """Let a sandbox use a secret."""
    asked = call.body(CreateSecret)
    new = NewSecret(name=asked.name, value=asked.value, hosts=tuple(asked.hosts))
    return json_reply(render_secret(await call.service.egress.create_secret(call.caller, sandbox_id(call), new)), 201)


async def list_secrets(call: Call) -> Reply:
    """List the secrets of a sandbox."""
    secrets = await call.service.egress.secrets(call.caller, sandbox_id(call))
    return json_reply({"items": [render_secret(secret) for secret in secrets]})


async def delete_secret(call: Call) -> Reply:
    """Take back a secret."""
    await call.service.egress.delete_secret(call.caller, sandbox_id(call), call.id("secret", _SECRET_NAME, "secret"))
    return NO_CONTENT


_GRANTS = "/sandboxes/{sandbox_id}/egress/grants"
_SECRETS = "/sandboxes/{sandbox_id}/secrets"

OPERATIONS = (
    Operation(
        method="POST",
        path=_GRANTS,
        handler=create_grant,
        grant=Scope.RUN,
        tag="Egress",
        summary="Let a sandbox reach something for a while",
        description="Added to what its `egress` allows, at once and until it expires; then connections by it are cut.",
        body=CreateGrant,
        example={"host": "api.example.org", "ports": [443], "expires_in_seconds": 600},
        answers=(Answer(status=201, description="It is in force.", model=GrantShown),),
        errors=(404, 409),
    ),
    Operation(
        method="GET",
        path=_GRANTS,
        handler=list_grants,
        grant=Scope.READ,
        tag="Egress",
        summary="List what a sandbox was granted and still has",
        answers=(Answer(description="The grants, oldest first.", model=GrantsShown),),
        errors=(404,),
    ),
    Operation(
        method="DELETE",
        path=f"{_GRANTS}/{{grant_id}}",
        handler=delete_grant,
        grant=Scope.RUN,
        tag="Egress",
        summary="Take back a grant; connections that nothing else allows are cut",
        answers=(Answer(status=204, description="It is gone."),),
        errors=(404, 409),
    ),
    Operation(
        method="POST",
        path=_SECRETS,
        handler=create_secret,
        grant=Scope.RUN,
        tag="Egress",
        summary="Let a sandbox use a secret that it never has",
        description="The sandbox gets a placeholder, in a variable of that name for every command and kernel that "
        "begins from now on. A program calls `http://` and one of the hosts; the service puts in the value, speaks "
        "TLS to that host, and gives the answer back. The same name again replaces the value and the hosts.",
        body=CreateSecret,
        example={"name": "API_TOKEN", "value": "the-real-token", "hosts": ["api.example.org"]},
        answers=(Answer(status=201, description="It can be used.", model=SecretShown),),
        errors=(404, 409, 502),
    ),
    Operation(
        method="GET",
        path=_SECRETS,
        handler=list_secrets,
        grant=Scope.READ,
        tag="Egress",
        summary="List the secrets of a sandbox, without their values",
        answers=(Answer(description="The secrets.", model=SecretsShown),),
        errors=(404,),
    ),
    Operation(
        method="DELETE",
        path=f"{_SECRETS}/{{secret}}",
        handler=delete_secret,
        grant=Scope.RUN,
        tag="Egress",
        summary="Take back a secret; its placeholder means nothing from then on",
        answers=(Answer(status=204, description="It is gone."),),
        errors=(404, 409, 502),
    ),
)
