"""The kernels of a sandbox, which keep variables between calls."""

from __future__ import annotations

from typing import TYPE_CHECKING

from warren.sdk.address import encode
from warren.sdk.request import api
from warren.sdk.values_sandboxes import Kernel

if TYPE_CHECKING:
    from warren.sdk._async.connection import AsyncConnection


class AsyncKernels:
    """Manages kernels; `Sandbox.run(code, kernel=name)` runs code in one."""

    def __init__(self, connection: AsyncConnection, sandbox_id: str) -> None:
        self._connection = connection
        self._parts = ("sandboxes", sandbox_id, "kernels")

    async def list(self) -> tuple[Kernel, ...]:
        """List them. Raises Error."""
        return await self._connection.ask_all(Kernel, api("GET", *self._parts))

    async def create(self, name: str) -> Kernel:
        """Start one more. Raises Error."""
        return await self._connection.ask_for(Kernel, api("POST", *self._parts, json={"name": name}))

    async def restart(self, name: str = "main") -> Kernel:
        """Restart one; its variables are lost. Raises Error."""
        return await self._connection.ask_for(Kernel, api("POST", *self._parts, encode(name), "restart"))

    async def fork(self, name: str = "main", *, to: str) -> Kernel:
        """Copy one with all its variables. Raises Error."""
        request = api("POST", *self._parts, encode(name), "fork", json={"to": to})
        return await self._connection.ask_for(Kernel, request)

    async def rollback(self, name: str = "main", *, cells: int = 1) -> int:
        """Undo the last cells: variables go back, files do not. Returns how many were undone. Raises Error."""
        request = api("POST", *self._parts, encode(name), "rollback", json={"cells": cells})
        return int((await self._connection.ask_json(request))["cells_back"])

    async def delete(self, name: str) -> None:
        """End one. Raises Error."""
        await self._connection.ask(api("DELETE", *self._parts, encode(name)))
