"""Egress of a sandbox: temporary grants, and secrets that it uses and never has."""

from __future__ import annotations

from typing import TYPE_CHECKING

from warren.sdk.address import encode
from warren.sdk.request import api
from warren.sdk.values_sandboxes import Grant, Secret

if TYPE_CHECKING:
    from collections.abc import Sequence

    from warren.sdk._async.connection import AsyncConnection


class AsyncWayOut:
    """Grants and secrets of a sandbox; `Sandbox.update(egress=…)` sets what it may reach permanently."""

    def __init__(self, connection: AsyncConnection, sandbox_id: str) -> None:
        self._connection = connection
        self._grants = ("sandboxes", sandbox_id, "egress", "grants")
        self._secrets = ("sandboxes", sandbox_id, "secrets")

    async def grant(
        self,
        host: str,
        *,
        ports: Sequence[int] = (80, 443),
        methods: Sequence[str] = (),
        expires_in_seconds: float = 3600,
    ) -> Grant:
        """Allow a host for a while: a name, a glob, an address or a network. Raises Error."""
        body = {
            "host": host,
            "ports": list(ports),
            "methods": list(methods),
            "expires_in_seconds": expires_in_seconds,
        }
        return await self._connection.ask_for(Grant, api("POST", *self._grants, json=body))

    async def grants(self) -> tuple[Grant, ...]:
        """List its current grants. Raises Error."""
        return await self._connection.ask_all(Grant, api("GET", *self._grants))

    async def revoke(self, grant_id: str) -> None:
        """Revoke a grant. Raises NotFound and other Errors."""
        await self._connection.ask(api("DELETE", *self._grants, encode(grant_id)))

    async def add_secret(self, name: str, value: str, *, hosts: Sequence[str]) -> Secret:
        """Let it use a secret at some hosts; it holds a placeholder, in a variable of that name. Raises Error."""
        body = {"name": name, "value": value, "hosts": list(hosts)}
        request = api("POST", *self._secrets, json=body, repeatable=True)
        return await self._connection.ask_for(Secret, request)

    async def secrets(self) -> tuple[Secret, ...]:
        """List its secrets, without their values. Raises Error."""
        return await self._connection.ask_all(Secret, api("GET", *self._secrets))

    async def remove_secret(self, name: str) -> None:
        """Revoke a secret. Raises NotFound and other Errors."""
        await self._connection.ask(api("DELETE", *self._secrets, encode(name)))
