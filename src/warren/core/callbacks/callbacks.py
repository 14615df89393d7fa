"""Tool callbacks: programs inside call tools of a client through the sandbox's own channel, without a network.

A program names the tool and its arguments; the service makes the call. So the token stays in the store, and is never in
a sandbox, a log or a response. Input of a program is hostile until parsed.
"""

from __future__ import annotations

import keyword
import logging
import re
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import anyio
import orjson

from warren.core.callbacks.stub import MODULE, extend_path, render_stub, write_stub
from warren.core.callbacks.targets import Targets, Unreached
from warren.core.concurrency.fair_queue import OwnerLimiter
from warren.core.concurrency.keyed_lock import KeyedLock
from warren.domain.errors import Error, InvalidRequest
from warren.domain.records import Callbacks, Caller, Principal

if TYPE_CHECKING:
    from collections.abc import Mapping

    from warren.core.agent.client import AgentClient, TunnelStream
    from warren.core.audit.log import Audit
    from warren.core.sandboxes.live import LiveSandbox
    from warren.core.sandboxes.sandboxes import Sandboxes
    from warren.core.telemetry.counters import Counters
    from warren.stores.base import Store

MAX_REQUEST = 4 << 20
MAX_TOOLS = 1000
MAX_DOCS = 512 << 10
AT_ONCE = 16
"""Calls of one sandbox at once; further ones wait, unread."""
EVERYBODY = 128
"""Calls of all sandboxes, shared among owners: a call may hold 12 MiB here, and its tool may take an hour."""
WAITING, WAIT_S = 2048, 300.0
BURST, PER_S = 300, 20.0
"""Rate of one sandbox: a burst, then so many a second."""
_LISTENER = "callbacks"
_READ_S = 30.0
_WRITE_S = 60.0
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_CALL_ID = re.compile(r"[0-9a-f]{32}")

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class NewCallbacks:
    """Tools that a client offers to the programs of a sandbox."""

    url: str = field(repr=False)
    token: str = field(repr=False)
    tools: Mapping[str, str]
    """Names and descriptions."""
    timeout_s: float = 300.0
    peer: str = ""
    """Address of the client, where it is known for sure."""


class ToolCallbacks:
    """The tools of all sandboxes."""

    def __init__(self, sandboxes: Sandboxes, store: Store, audit: Audit, targets: Targets, observer: Counters) -> None:
        self._sandboxes = sandboxes
        self._store = store
        self._audit = audit
        self._targets = targets
        self._kept: dict[str, Callbacks] = {}
        self.turns = KeyedLock()
        """By sandbox: of two concurrent registrations, the second replaces the first as a whole."""
        self._limiter = OwnerLimiter(
            observer,
            "calls of tools",
            what_own="calls of tools of this sandbox",
            own=AT_ONCE,
            everybody=EVERYBODY,
            waiting=WAITING,
            wait_s=WAIT_S,
        )

    async def load(self) -> None:
        """Load the registrations of the store, at start-up."""
        self._kept = {each.sandbox_id: each for each in await self._store.callbacks()}

    async def register(self, caller: Caller, sandbox_id: str, new: NewCallbacks) -> str:
        """Offer tools to the programs of a sandbox, in place of earlier ones; return the path of the module.

        Raises InvalidRequest for invalid names, and for an address that may not be called.
        """
        self._audit.check_writable()
        noted: dict[str, Any] = {"sandbox_id": sandbox_id, "tools": len(new.tools)}
        async with self._audit.operation(caller, "callbacks.register", unfinished="abandoned", **noted):
            _check_tools(new.tools)
            await self._targets.check(new.url, new.peer)
            async with self._sandboxes.use(caller, sandbox_id) as live, self.turns.hold(sandbox_id):
                return await self._install(live, new)

    async def attach(self, sandbox_id: str, agent: AgentClient) -> None:
        """Serve the calls of a sandbox whose agent has just connected, where tools are registered."""
        kept = self._kept.get(sandbox_id)
        if kept is None:
            return
        try:
            await agent.listen_port(kept.port, _LISTENER)
            # Again: a sandbox that was started again has an empty temporary folder.
            folder = await write_stub(agent, render_stub(kept.tools, kept.port, kept.timeout_s))
            await agent.configure(env={"PYTHONPATH": self._search_path(sandbox_id, folder)})
        except Error as error:
            _log.warning("callbacks.attach_failed", extra={"sandbox_id": sandbox_id, "code": error.code})
            return
        self._listen(sandbox_id, agent)

    async def _install(self, live: LiveSandbox, new: NewCallbacks) -> str:
        agent, is_first = live.agent, live.id not in self._kept
        port = await agent.listen_port(0, _LISTENER)
        kept = Callbacks(
            sandbox_id=live.id,
            url=new.url,
            token=new.token,
            tools=dict(new.tools),
            timeout_s=new.timeout_s,
            port=port,
            peer=new.peer,
        )
        folder = await write_stub(agent, render_stub(kept.tools, port, kept.timeout_s))
        await self._store.keep_callbacks(kept)
        self._forget_gone()
        self._kept[live.id] = kept
        self._listen(live.id, agent)
        if is_first:
            # Once only: the second time, a program may be waiting for a tool that waits for this.
            await agent.configure(env={"PYTHONPATH": self._search_path(live.id, folder)})
            await extend_path(agent, folder)
        return f"{folder}/{MODULE}"

    def _search_path(self, sandbox_id: str, folder: str) -> str:
        live = self._sandboxes.transitions.live_sandboxes.get(sandbox_id)
        theirs = "" if live is None else live.sandbox.env.get("PYTHONPATH", "")
        return f"{folder}:{theirs}" if theirs else folder

    def _listen(self, sandbox_id: str, agent: AgentClient) -> None:
        async def serve(tunnel: TunnelStream) -> None:
            await self._serve(sandbox_id, tunnel)

        agent.on_tunnel[_LISTENER] = serve

    def _forget_gone(self) -> None:
        """Drop the data of deleted sandboxes; the store has done so."""
        there = self._sandboxes.transitions.live_sandboxes
        self._kept = {key: value for key, value in self._kept.items() if key in there}

    async def _serve(self, sandbox_id: str, tunnel: TunnelStream) -> None:
        """Serve one connection from inside. Must not raise: the agent connection has other tasks in the same group."""
        live = self._sandboxes.transitions.live_sandboxes.get(sandbox_id)
        if live is None:
            return
        try:
            # Before the read: a waiting call costs no more than its connection.
            async with self._limiter.one(live.sandbox.owner, sandbox_id):
                with anyio.fail_after(_READ_S):
                    request = await _read_line(tunnel)
                await self._serve_request(sandbox_id, tunnel, request)
        except (Error, TimeoutError):
            pass  # The program closed, or sends nothing.
        except Exception as error:  # noqa: BLE001 - as above
            _log.error("callbacks.failed", extra={"sandbox_id": sandbox_id, "error": type(error).__name__})

    async def _serve_request(self, sandbox_id: str, tunnel: TunnelStream, request: bytes) -> None:
        has_left = anyio.Event()

        async def watch() -> None:
            try:
                while await tunnel.receive():
                    pass  # No more input is expected.
            except Error:
                pass
            has_left.set()
            if not is_answered:
                # Killed, or closed: the response has no reader.
                tasks.cancel_scope.cancel()

        is_answered = False
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(watch)
            head, body = await self._answer(sandbox_id, request)
            is_answered = True
            with anyio.move_on_after(_WRITE_S):
                await tunnel.send(orjson.dumps(head) + b"\n")
                await tunnel.send(body)
                tunnel.send_eof()
            # An immediate close would drop what the program has not read yet.
            with anyio.move_on_after(_READ_S):
                await has_left.wait()
            tasks.cancel_scope.cancel()

    async def _answer(self, sandbox_id: str, request: bytes) -> tuple[dict[str, Any], bytes]:
        kept, asked = self._kept.get(sandbox_id), _parse(request)
        if kept is None or asked is None:
            return {"status": 400}, b""
        if asked.get("list") is True:
            return {"tools": dict(kept.tools)}, b""
        name, call_id, given = asked.get("name"), asked.get("call_id"), asked.get("input")
        if not isinstance(name, str) or name not in kept.tools:
            return {"status": 404}, b""
        if not isinstance(call_id, str) or not _CALL_ID.fullmatch(call_id) or not isinstance(given, dict):
            return {"status": 400}, b""
        taken = await self._store.take(f"callbacks:{sandbox_id}", capacity=BURST, per_s=PER_S)
        if not taken.allowed:
            return {"unreachable": "too many calls in a short time: wait a moment"}, b""
        content = orjson.dumps({"call_id": call_id, "name": name, "input": given})
        # Parsed, it may be many times as large.
        del asked, given
        return await self._call(kept, name, content)

    async def _call(self, kept: Callbacks, name: str, content: bytes) -> tuple[dict[str, Any], bytes]:
        since, outcome = time.monotonic(), "abandoned"
        try:
            reached = await self._targets.post(
                kept.url, kept.peer, token=kept.token, content=content, timeout_s=kept.timeout_s
            )
        except Unreached as error:
            outcome = "unreachable"
            return {"unreachable": str(error)}, b""
        else:
            outcome = "ok" if 200 <= reached.status < 300 else f"http_{reached.status}"
            return {"status": reached.status}, reached.body
        finally:
            duration_ms = round((time.monotonic() - since) * 1000)
            self._audit.note(
                self._owner_of(kept.sandbox_id),
                "callbacks.call",
                outcome=outcome,
                sandbox_id=kept.sandbox_id,
                tool=name,
                bytes=len(content),
                duration_ms=duration_ms,
            )

    def _owner_of(self, sandbox_id: str) -> Caller | None:
        live = self._sandboxes.transitions.live_sandboxes.get(sandbox_id)
        if live is None:
            return None
        owner = live.sandbox.owner
        return Caller(principal=Principal(subject=owner.subject, tenant=owner.tenant), request_id="")


def check_tool_name(name: str) -> None:
    """Raise InvalidRequest for a name that Python cannot call."""
    if not _NAME.fullmatch(name):
        raise InvalidRequest(f"invalid tool name: {name[:100]!r}")
    if keyword.iskeyword(name):
        raise InvalidRequest(f"tool name shadows Python keyword: {name!r}")


def _check_tools(tools: Mapping[str, str]) -> None:
    for name in tools:
        check_tool_name(name)
    if len(tools) > MAX_TOOLS or sum(len(name) + len(doc) for name, doc in tools.items()) > MAX_DOCS:
        raise InvalidRequest(f"there may be {MAX_TOOLS} tools, and {MAX_DOCS >> 10} KiB of names and words about them")


async def _read_line(tunnel: TunnelStream) -> bytes:
    """Read to the first line feed, or to the size limit."""
    line = bytearray()
    while piece := await tunnel.receive():
        line += piece
        if b"\n" in piece or len(line) > MAX_REQUEST:
            break
    return bytes(line)


def _parse(request: bytes) -> dict[str, Any] | None:
    line, ended, rest = request.partition(b"\n")
    if not ended or rest or len(line) > MAX_REQUEST:
        return None
    try:
        asked = orjson.loads(line)
    except orjson.JSONDecodeError:
        return None
    return asked if isinstance(asked, dict) else None
