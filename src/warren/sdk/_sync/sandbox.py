# Made from src/warren/sdk/_async/sandbox.py by `make sdk`: change that instead.
"""One sandbox: run code in it, and manage it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from warren.sdk._sync.egress import WayOut
from warren.sdk._sync.executions import Execution, Stream
from warren.sdk._sync.files import Files
from warren.sdk._sync.kernels import Kernels
from warren.sdk._sync.ports import Ports
from warren.sdk._sync.terminal import open_terminal
from warren.sdk.address import encode
from warren.sdk.events import QUIET_S, EventParser
from warren.sdk.failures import ServiceUnreachable, build_stream_error, explain_unread
from warren.sdk.options import ChangeOptions, ExecOptions, build_body, read_timeout, what_to_run
from warren.sdk.request import api, once
from warren.sdk.results import build_result
from warren.sdk.values import build, build_page
from warren.sdk.values_sandboxes import InstalledPackages, SandboxInfo, SharedLink, TerminalInfo, Usage
from warren.sdk.values_service import InstalledSkills

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager
    from typing import Unpack

    from warren.sdk._sync.connection import Connection
    from warren.sdk._sync.terminal import Terminal
    from warren.sdk.request import Request
    from warren.sdk.results import Result
    from warren.sdk.values import Page

_PATIENCE_S = 120.0
"""Requests that end or start processes may take longer than others."""


class Sandbox:
    """A sandbox, by its id."""

    def __init__(self, connection: Connection, sandbox_id: str, info: SandboxInfo | None = None) -> None:
        self._connection = connection
        self._parts = ("sandboxes", sandbox_id)
        self._info = info
        self.id = sandbox_id
        """Its id, for `client.sandboxes.get`."""
        self.files = Files(connection, sandbox_id)
        """The files of its workspace."""
        self.kernels = Kernels(connection, sandbox_id)
        """Its kernels: copy, undo, restart."""
        self.ports = Ports(connection, sandbox_id)
        """Servers that run in it."""
        self.egress = WayOut(connection, sandbox_id)
        """Its egress: temporary grants, and secrets."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.id!r})"

    @property
    def info(self) -> SandboxInfo:
        """Its state at the last request about it; `refresh` gets it again. Raises LookupError before the first."""
        if self._info is None:
            raise LookupError("nothing is known of this sandbox yet: call refresh() first")
        return self._info

    def refresh(self) -> SandboxInfo:
        """Get its current state. Raises Error."""
        return self._keep(api("GET", *self._parts))

    def run(self, code: str, **options: Unpack[ExecOptions]) -> Result:
        """Run Python in its kernel, which keeps the variables, and wait for the end. Raises Error.

        What the program does wrong is in the result: `check` raises it.
        """
        return self._run({"code": code}, options)

    def exec(self, command: str | Sequence[str], **options: Unpack[ExecOptions]) -> Result:
        """Run a line of bash, or a program and its arguments, and wait for the end. Raises Error."""
        return self._run(what_to_run(None, command), options)

    def stream(
        self, code: str | None = None, *, command: str | Sequence[str] | None = None, **options: Unpack[ExecOptions]
    ) -> Stream:
        """Run something and follow its events while it runs; leaving early ends it."""
        # WHY in the background: any other execution ends when its connection breaks, and could not be resumed.
        body = build_body(options, ExecOptions, **what_to_run(code, command), background=True, stream=True, exact=True)
        begin = api(
            "POST",
            *self._parts,
            "exec",
            json=body,
            headers=once({"Accept": "text/event-stream"}, options.get("idempotency_key")),
            repeatable=True,
            read_timeout_s=QUIET_S,
        )
        return Stream(self._connection, self.id, begin, ends_with_us=True)

    def start(
        self, code: str | None = None, *, command: str | Sequence[str] | None = None, **options: Unpack[ExecOptions]
    ) -> Execution:
        """Start something that runs on in the background. Raises Error."""
        body = build_body(options, ExecOptions, **what_to_run(code, command), background=True)
        found = self._connection.ask_json(self._exec(body, options))
        return Execution(self._connection, self.id, found["execution_id"])

    def execution(self, execution_id: str) -> Execution:
        """Return an execution by its id, without a request."""
        return Execution(self._connection, self.id, execution_id)

    def executions(self, *, offset: int = 0, limit: int = 20) -> Page[Result]:
        """List its executions, newest first; long output is cut. Raises Error."""
        request = api("GET", *self._parts, "executions", params={"offset": offset, "limit": limit})
        return build_page(self._connection.ask_json(request), build_result)

    def update(self, **changes: Unpack[ChangeOptions]) -> SandboxInfo:
        """Change its limits, timeouts, labels or egress. Raises Error."""
        return self._keep(api("PATCH", *self._parts, json=build_body(changes, ChangeOptions)))

    def stop(self) -> SandboxInfo:
        """Stop it: processes end, a persistent workspace stays. Raises Error."""
        return self._keep(api("POST", *self._parts, "stop", repeatable=True, read_timeout_s=_PATIENCE_S))

    def resume(self) -> SandboxInfo:
        """Start it after a stop; running something in it does so too. Raises Error."""
        return self._keep(api("POST", *self._parts, "resume", repeatable=True, read_timeout_s=_PATIENCE_S))

    def delete(self) -> None:
        """Delete it and its workspace. Raises Error."""
        self._connection.ask(api("DELETE", *self._parts, read_timeout_s=_PATIENCE_S))

    def usage(self) -> Usage:
        """Get its current resource use. Raises Error."""
        return self._connection.ask_for(Usage, api("GET", *self._parts, "usage"))

    def install(
        self,
        *packages: str,
        ecosystem: str = "python",
        upgrade: bool = False,
        timeout_seconds: float | None = None,
        on_output: Callable[[str], object] | None = None,
    ) -> InstalledPackages:
        """Install packages of Python or npm, by name and version. Raises Error.

        `on_output` is called with the installer's output. A package that cannot be installed is not an error: see the
        result. The sandbox's egress must allow `packages`.
        """
        body: dict[str, Any] = {"packages": list(packages), "ecosystem": ecosystem, "upgrade": upgrade}
        if timeout_seconds is not None:
            body["timeout_seconds"] = timeout_seconds
        if on_output is not None:
            return self._follow_install(body, on_output)
        request = api("POST", *self._parts, "packages", json=body, read_timeout_s=None)
        return self._connection.ask_for(InstalledPackages, request)

    def install_skills(self, *skill_ids: str) -> InstalledSkills:
        """Put skills into its workspace, under `skills/`. Raises NotFound and other Errors."""
        request = api("POST", *self._parts, "skills", json={"skill_ids": list(skill_ids)}, repeatable=True)
        return self._connection.ask_for(InstalledSkills, request)

    def terminal(
        self, name: str = "main", *, cols: int | None = None, rows: int | None = None, command: str | None = None
    ) -> AbstractContextManager[Terminal]:
        """Open a terminal, or attach to the one of that name, for a `with` block. Raises Error.

        A new one has 80 columns, 24 rows and bash, unless it is said otherwise.
        """
        request = api(
            "GET", *self._parts, "terminals", encode(name), params={"cols": cols, "rows": rows, "command": command}
        )
        query = urlencode(request.params)
        return open_terminal(self._connection, request.path + (f"?{query}" if query else ""))

    def terminals(self) -> tuple[TerminalInfo, ...]:
        """List the terminals whose programs run. Raises Error."""
        return self._connection.ask_all(TerminalInfo, api("GET", *self._parts, "terminals"))

    def close_terminal(self, name: str = "main") -> None:
        """End the program on a terminal. Raises Error."""
        self._connection.ask(api("DELETE", *self._parts, "terminals", encode(name)))

    def link_port(self, port: int, *, expires_in_seconds: float = 3600) -> SharedLink:
        """Make a link to a server inside, which needs no key: for a browser, for example. Raises Error."""
        return self._link(kind="port", port=port, expires_in_seconds=expires_in_seconds)

    def link_file(
        self, path: str, *, method: str = "GET", expires_in_seconds: float = 3600, max_bytes: int | None = None
    ) -> SharedLink:
        """Make a link to read a file, or with the method PUT to write it. Raises Error."""
        return self._link(
            kind="file", path=path, method=method, expires_in_seconds=expires_in_seconds, max_bytes=max_bytes
        )

    def link_terminal(self, name: str = "main", *, expires_in_seconds: float = 3600) -> SharedLink:
        """Make a link to a terminal, for a WebSocket. Raises Error."""
        return self._link(kind="terminal", terminal=name, expires_in_seconds=expires_in_seconds)

    def _link(self, **fields: Any) -> SharedLink:
        body = {name: value for name, value in fields.items() if value is not None}
        made = self._connection.ask_json(api("POST", *self._parts, "links", json=body))
        return build(SharedLink, {**made, "url": self._connection.address.public_url + made["url"]})

    def _follow_install(self, body: dict[str, Any], on_output: Callable[[str], object]) -> InstalledPackages:
        headers, parser = {"Accept": "text/event-stream"}, EventParser()
        request = api("POST", *self._parts, "packages", json=body, headers=headers, read_timeout_s=QUIET_S)
        with self._connection.open(request) as answer:
            for data in answer.iter_bytes():
                for raw in parser.feed(data):
                    try:
                        said = json.loads(raw.data)
                        text = said["data"] if raw.name in {"stdout", "stderr"} else ""
                    except (ValueError, KeyError, TypeError) as error:
                        raise explain_unread("an event") from error
                    if text:
                        on_output(text)
                    if raw.name == "error":
                        raise build_stream_error(said)
                    if raw.name == "result":
                        return build(InstalledPackages, said)
        raise ServiceUnreachable("the stream of events ended before the installation did: ask again")

    def _run(self, what: dict[str, Any], options: ExecOptions) -> Result:
        body = build_body(options, ExecOptions, **what)
        return build_result(self._connection.ask_json(self._exec(body, options)))

    def _exec(self, body: dict[str, Any], options: ExecOptions) -> Request:
        return api(
            "POST",
            *self._parts,
            "exec",
            json=body,
            headers=once(key=options.get("idempotency_key")),
            repeatable=True,
            read_timeout_s=read_timeout(body, self._connection.timeout),
        )

    def _keep(self, request: Request) -> SandboxInfo:
        self._info = self._connection.ask_for(SandboxInfo, request)
        return self._info
