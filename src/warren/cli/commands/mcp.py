"""`warren mcp`: tools for a model, over standard input and output."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Annotated

from warren.cli.options import Target, option
from warren.cli.service.connection import reachable
from warren.cli.service.image_build import prepare_image_apart

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from warren.cli.terminal.signals import Signals

EXAMPLES = """\b
Examples:
  warren mcp                        # what a client's configuration names as its command
  warren mcp --session notes        # a sandbox that is there again the next time
  warren mcp --url https://sandboxes.example.com
"""

_PREFIX = "stdio-"


def mcp(
    *,
    session: Annotated[
        str | None, option("NAME", "Use the sandbox of this name and keep it. Default: a new one, removed at the end.")
    ] = None,
    target: Target,
    api_key: Annotated[str | None, option("KEY", "API key for --url; WARREN_API_KEY unless set.", "--api-key")] = None,
) -> int:
    """Serve MCP over standard input and output, for one client, until it leaves.

    Uses the service of --url, else the service of this machine, else an embedded one: no service has to run.
    """
    from warren.mcp_server.stdio import claimed_descriptors

    with claimed_descriptors() as streams:
        return _serve(streams, target, session, api_key)


def _serve(streams: tuple[int, int], target: Target, session: str | None, api_key: str | None) -> int:
    import anyio

    from warren.cli.quick.owner import is_orphan, new_owned_id
    from warren.cli.terminal.signals import run_with_signals
    from warren.mcp_server.relay import Relay
    from warren.mcp_server.upstream import Upstream

    settings = None if target.is_remote else target.load_settings()

    async def work(_signals: Signals) -> int:
        upstream = Upstream(
            lambda: _reach(target, upstream.tell),
            api_key=api_key,
            session=session or f"{_PREFIX}{new_owned_id()}",
            is_kept=session is not None,
            is_orphan=None if target.is_remote else lambda key: is_orphan(key.removeprefix(f"mcp/{_PREFIX}")),
        )
        await Relay(upstream, settings).serve(*streams)
        return 0

    return anyio.run(run_with_signals, work)


@contextlib.asynccontextmanager
async def _reach(target: Target, tell: Callable[[str], None]) -> AsyncIterator[str]:
    """Find the service, or be it; an image that is not built yet is built first, while the client is answered."""
    from anyio import to_thread

    await to_thread.run_sync(prepare_image_apart, target, tell, abandon_on_cancel=True)
    # It may run for days and finds the next service by itself: an ending one need not wait.
    async with reachable(target, is_waited_for=False) as url:
        yield url
