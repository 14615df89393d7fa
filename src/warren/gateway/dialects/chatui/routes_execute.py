"""ChatUI's programs over HTTP: files in, one process, its output and the files of `/tmp/output` out."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING

from anyio import to_thread

from warren.core.packages.install import NewInstall
from warren.domain.errors import (
    Conflict,
    Forbidden,
    InvalidRequest,
    NotFound,
    Overloaded,
    QuotaExceeded,
    SandboxLost,
    TooLarge,
    Unsupported,
)
from warren.domain.records import Scope
from warren.domain.values import Cause, new_id
from warren.gateway.api.large_responses import LARGE, answer_with, send_in_pieces
from warren.gateway.api.operations import Answer, Routes, dump, json_reply
from warren.gateway.api.streaming import finish_unless_left
from warren.gateway.dialects.chatui import containers, schemas, translate, words
from warren.gateway.dialects.chatui.translate import Executed, Failure, Output
from warren.gateway.dialects.details import IgnoredQuery, Refused

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Send
    from starlette.types import Scope as Request

    from warren.domain.records import Execution, Sandbox
    from warren.domain.values import Entry, ExecResult
    from warren.gateway.api.operations import Call
    from warren.gateway.dialects.chatui.containers import Containers

_PATIENCE_S = 30
"""Besides the timeout, how long to wait for the program before."""
_ANOTHER = "Another execution is in progress for this container. Please wait."
_USED_UP = "Container session reached its maximum number of executions."


routes = Routes("Programs", query=IgnoredQuery)


@routes.add(
    "POST /execute",
    Scope.RUN,
    description="Each is a process of its own; files in `/home/sandbox` stay. What a program does wrong is a "
    "result: `error_type` says what, and after a timeout all that it wrote is there, and the container too.",
    body=schemas.Execute,
    body_limit=words.body_limit,
    example={"container_id": "0" * 64, "language": "python", "code": "print(6 * 7)", "timeout": 30},
    answers=(Answer("What it did.", schemas.Executed),),
    errors=(400, 403, 404, 422, 429),
)
async def execute(call: Call) -> ASGIApp:
    """Run a program."""
    body, settings = call.body(schemas.Execute), call.settings.dialects.chatui
    faults = translate.find_faults(body, settings)
    if faults:
        raise Refused(422, faults)
    await words.check_rate(call, "executions", words.RATE)
    containers.check_id(call, body.container_id)
    async with contextlib.AsyncExitStack() as held:
        program = _Program(call, body, held)
        answer = await finish_unless_left(call.receive, program.run())
        if program.is_large:
            return _Large(answer, held.pop_all())
    return answer_with(call, len(answer.stdout) + len(answer.stderr), lambda: json_reply(answer.render()))


class _Large:
    """An answer with large files, which counts as a large answer until it has been read."""

    def __init__(self, answer: Executed, held: contextlib.AsyncExitStack) -> None:
        self._answer = answer
        self._held = held

    async def __call__(self, _scope: Request, _receive: Receive, send: Send) -> None:
        async with self._held:
            body = await to_thread.run_sync(lambda: dump(self._answer.render()))
            headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            await send_in_pieces(send, body)
            await send({"type": "http.response.body", "body": b""})


class _Program:
    """One program on its way through a container."""

    def __init__(self, call: Call, body: schemas.Execute, held: contextlib.AsyncExitStack) -> None:
        self._call = call
        self._body = body
        self._settings = call.settings.dialects.chatui
        self._timeout_s = float(body.timeout or min(self._settings.timeout_s, self._settings.max_timeout_s))
        self._known: Containers = containers.containers_of(call.service)
        self._install_s: float | None = None
        self._install_error = ""
        self._held = held
        """What its answer needs until it has been read."""
        self.is_large = False
        """Whether its answer has a place among the large ones."""

    async def run(self) -> Executed:
        """Wait for its turn and run it. Raises Refused."""
        container_id = self._body.container_id
        key = (self._call.caller.principal.owner, container_id)
        refused = Refused(429, _ANOTHER, {"Retry-After": "1"})
        async with self._known.turn(key, self._timeout_s + _PATIENCE_S, refused):
            sandbox = await containers.find(self._call, container_id)
            await self._check_budget(sandbox)
            files = await self._parse_files()
            if not self._body.code.strip():
                failure = Failure(error="Empty code provided", error_type="ValueError")
                return Executed(execution_id=new_id("exe"), failure=failure)
            try:
                with self._known.running():
                    answer = await self._run(sandbox, files)
            except NotFound:
                raise self._known.missing(container_id) from None
            except (Overloaded, QuotaExceeded) as error:
                raise Refused(429, words.BUSY, words.retry(error)) from error
        self._count(answer)
        return answer

    async def _parse_files(self) -> dict[str, bytes]:
        if sum(len(each.content) for each in self._body.files or ()) <= LARGE:
            return translate.parse_files(self._body, self._settings)
        return await to_thread.run_sync(translate.parse_files, self._body, self._settings)

    async def _check_budget(self, sandbox: Sandbox) -> None:
        most = self._settings.executions_per_container
        if most and sandbox.executions >= most:
            await self._remove(sandbox)
            raise Refused(429, _USED_UP)

    async def _remove(self, sandbox: Sandbox) -> None:
        self._known.forget(self._body.container_id)
        with contextlib.suppress(NotFound):
            await self._call.service.sandboxes.delete(self._call.caller, sandbox.id)

    async def _run(self, sandbox: Sandbox, files: dict[str, bytes]) -> Executed:
        begun = time.monotonic()
        try:
            try:
                await self._put(sandbox, files)
            except (Conflict, InvalidRequest, TooLarge) as error:
                why = f"Failed to copy input files to container: {error}"
                return self._answer_lost(Failure(error=why, error_type="FileUploadError"), begun)
            left_s = await self._install(sandbox)
            new = translate.parse_program(self._body, left_s, self._settings)
            execution = await self._call.service.executions.run(self._call.caller, sandbox.id, new)
            assert execution.result is not None
            outputs = await self._collect(sandbox, execution.result)
            return await self._finish(sandbox, execution, outputs)
        except SandboxLost:
            failure = Failure(error="Execution failed due to an infrastructure error", error_type="GatewayError")
            return self._answer_lost(failure, begun)

    def _answer_lost(self, failure: Failure, begun: float) -> Executed:
        return Executed(execution_id=new_id("exe"), failure=failure, seconds=time.monotonic() - begun)

    async def _put(self, sandbox: Sandbox, files: dict[str, bytes]) -> None:
        for name, content in files.items():
            await self._call.service.files.write(self._call.caller, sandbox.id, name, content, mode=0o600)

    async def _install(self, sandbox: Sandbox) -> float:
        """Install the packages that are asked for; return the seconds that are left."""
        if not self._body.pip_packages:
            return self._timeout_s
        begun = time.monotonic()
        new = NewInstall(names=tuple(self._body.pip_packages), timeout_s=self._timeout_s)
        try:
            done = await self._call.service.packages.install(self._call.caller, sandbox.id, new, is_kept=False)
            if not done.ok:
                self._install_error = translate.explain_install(done.output or done.hint or "pip failed")
        except (Forbidden, InvalidRequest, Unsupported) as error:
            self._install_error = translate.explain_install(str(error))
        self._install_s = time.monotonic() - begun
        return max(0.001, self._timeout_s - self._install_s)

    async def _collect(self, sandbox: Sandbox, result: ExecResult) -> tuple[Output, ...]:
        """Take what the program left, and leave the folders empty."""
        if not result.collected:
            return ()
        outputs: list[Output] = []
        room = self._settings.output_bytes
        has_place = await self._have_place(result)
        for entry in result.collected:
            output = await self._take(sandbox, entry, room) if has_place else _leave_out(entry)
            if output is not None:
                room -= len(output.content or b"")
                outputs.append(output)
        if not result.collected_complete:
            outputs.append(Output(name="…", size=0, error="There are more files than are listed"))
        await self._call.service.files.empty_scratch(self._call.caller, sandbox.id, translate.SCRATCH)
        return tuple(outputs)

    async def _have_place(self, result: ExecResult) -> bool:
        """Have a place among the large answers before files are read that would need one; False when there is none."""
        if sum(entry.size for entry in result.collected if entry.type == "file") <= LARGE:
            return True
        try:
            place = self._call.service.executions.results.one(self._call.caller.principal.owner)
            await self._held.enter_async_context(place)
        except (QuotaExceeded, Overloaded):
            return False
        self.is_large = True
        return True

    async def _take(self, sandbox: Sandbox, entry: Entry, room: int) -> Output | None:
        most = self._settings.output_file_bytes
        if entry.type == "link":
            return Output(name=entry.path, size=0, error="Symlink outputs are not supported")
        if entry.type != "file":
            return None
        if entry.size > most:
            return Output(name=entry.path, size=entry.size, error=f"File too large ({entry.size} bytes, max {most})")
        if entry.size > room:
            return Output(name=entry.path, size=entry.size, error="Total file size limit exceeded")
        try:
            content = await self._call.service.files.read_scratch(
                self._call.caller, sandbox.id, translate.OUTPUT, entry.path, min(most, room)
            )
        except (NotFound, Conflict, InvalidRequest, TooLarge) as error:
            return Output(name=entry.path, size=entry.size, error=str(error))
        return Output(name=entry.path, size=len(content), content=content)

    async def _finish(self, sandbox: Sandbox, execution: Execution, outputs: tuple[Output, ...]) -> Executed:
        result = execution.result
        assert result is not None
        is_removed = result.cause is Cause.TIMEOUT and self._settings.timeout_removes
        if is_removed:
            await self._remove(sandbox)
        most = self._settings.output_chars
        stdout = translate.read_output(result.stdout, result.stdout_chars, most)
        stderr = translate.read_stderr(result, most)
        failure = translate.find_failure(
            result, self._body.language, self._timeout_s, stderr=stderr, is_removed=is_removed
        )
        if self._install_error:
            stderr = self._install_error + stderr
            failure = failure or Failure(error="Pip installation failed", error_type="InstallationError")
        return Executed(
            execution_id=execution.id,
            failure=failure,
            stdout=stdout,
            stderr=stderr,
            files=outputs,
            seconds=result.duration_ms / 1000,
            install_s=self._install_s,
        )

    def _count(self, answer: Executed) -> None:
        failure = answer.failure
        outcome = "successful" if failure is None else "timed_out" if failure.timed_out else "failed"
        self._known.count(outcome, answer.seconds)


def _leave_out(entry: Entry) -> Output:
    return Output(name=entry.path, size=entry.size, error="The gateway had no room for files: please retry")
