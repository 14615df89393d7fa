"""Connections to servers inside sandboxes: none outlives its request."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio
import pytest

from unit.core.estate import ANN, Estate
from warren.core.audit.log import Audit
from warren.core.ports.ports import Ports
from warren.core.telemetry.counters import Counters

if TYPE_CHECKING:
    from unit.core.conftest import Serve


class LeavingAudit(Audit):
    """An audit record whose caller goes away while an entry is written."""

    scope: anyio.CancelScope | None = None

    async def settle(self) -> None:
        if self.scope is not None:
            self.scope.cancel()
            await anyio.lowlevel.checkpoint()
        await super().settle()


def test_a_client_who_leaves_while_its_connection_is_written_down_leaves_none_open(serve: Serve) -> None:
    async def scenario(estate: Estate) -> None:
        sandbox = await estate.create()
        audit = LeavingAudit(estate.store, estate.policy)
        ports = Ports(estate.sandboxes, audit, Counters())
        has_ended = anyio.Event()

        async def serve_one(stream: anyio.abc.SocketStream) -> None:
            async with stream:
                with pytest.raises(anyio.EndOfStream):
                    await stream.receive()
                has_ended.set()

        # The programs of the bare engine are on this host's network.
        async with (
            await anyio.create_tcp_listener(local_host="127.0.0.1") as listener,
            anyio.create_task_group() as all_,
        ):
            all_.start_soon(listener.serve, serve_one)
            port = listener.extra(anyio.abc.SocketAttribute.local_port)
            with anyio.CancelScope() as audit.scope:
                async with ports.connect(ANN, sandbox.id, port, "GET"):
                    pytest.fail("its client has left")
            with anyio.fail_after(60):
                await has_ended.wait()
            all_.cancel_scope.cancel()
        assert not estate.transitions.live_sandboxes[sandbox.id].is_busy

    serve(scenario)
