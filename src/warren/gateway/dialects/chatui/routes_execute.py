"""ChatUI's programs over HTTP: files in, one process, what it said and left in `/tmp/output` out."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from typing import TYPE_CHECKING

from warren.domain import Cause, new_id
from warren.errors import Conflict, InvalidRequest, NotFound, Overloaded, QuotaExceeded, SandboxLost, TooLarge
from warren.gateway.dialects.chatui import containers, schemas, translate, words
from warren.gateway.dialects.chatui.translate import Failure, Output
from warren.gateway.dialects.details import Refused
from warren.gateway.large import answer_with
from warren.gateway.operations import Answer, Operation, json_reply
from warren.gateway.streaming import finish_unless_left
from warren.records import Scope

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from warren.core.executions import NewExecution
    from warren.domain import Entry, ExecResult
    from warren.gateway.dialects.chatui.containers import Containers
    from warren.gateway.operations import Call
    from warren.records import Execution, Sandbox

_PATIENCE_S = 30
"""Besides the timeout, how long to wait for the program before."""
_ANOTHER = "Another execution is in progress for this container. Please wait."
_USED_UP = "Container session reached its maximum number of executions."


async def execute(call: Call) -> ASGIApp:
    """Run a program in a container."""
    body, settings = call.body(schemas.Execute), call.settings.dialects.chatui
    faults = translate.find_faults(body, settings)
    if faults:
        raise Refused(422, faults)
    await words.check_rate(call, "executions", settings.executions_per_minute, words.RATE)
    program = _Program(call, body)
    answer = await finish_unless_left(call.receive, program.run())
    return answer_with(call, program.size, lambda: json_reply(answer.render()))


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Answer:
    """What a program came to, before it is JSON."""

    execution_id: str
    failure: Failure | None = None
    stdout: str = ""
    stderr: str = ""
    files: tuple[Output, ...] = ()
    seconds: float = 0.0
    install_s: float | None = None

    def render(self) -> dict[str, object]:
        fields = {one.name: getattr(self, one.name) for one in dataclasses.fields(self)}
        return translate.render_executed(fields.pop("execution_id"), **fields)


class _Program:
    """One program on its way through a container."""

    def __init__(self, call: Call, body: schemas.Execute) -> None:
        self._call = call
        self._body = body
        self._settings = call.settings.dialects.chatui
        self._timeout_s = float(body.timeout or min(self._settings.timeout_s, self._settings.max_timeout_s))
        self._known: Containers = containers.containers_of(call.service)
        self._install_s: float | None = None
        self._install_error = ""
        self.size = 0
        """About how large its answer is."""

    async def run(self) -> _Answer:
        """Wait for its turn and run it. Raises Refused."""
        container_id = self._body.container_id
        key = (self._call.caller.principal.owner, container_id)
        turn = self._known.turn(key, self._timeout_s + _PATIENCE_S)
        try:
            await turn.__aenter__()
        except TimeoutError:
            raise Refused(429, _ANOTHER, {"Retry-After": "1"}) from None
        async with contextlib.AsyncExitStack() as held:
            held.push_async_exit(turn)
            sandbox = await containers.find(self._call, container_id)
            await self._check_budget(sandbox)
            files = translate.parse_files(self._body, self._settings)
            if not self._body.code.strip():
                failure = Failure(error="Empty code provided", error_type="ValueError")
                return _Answer(execution_id=new_id("exe"), failure=failure)
            try:
                with self._known.running():
                    answer = await self._run(sandbox, files)
            except NotFound:
                raise self._known.missing(container_id) from None
            except (Overloaded, QuotaExceeded) as error:
                raise Refused(429, words.BUSY, words.retry(error)) from error
        self._count(answer)
        return answer

    async def _check_budget(self, sandbox: Sandbox) -> None:
        most = self._settings.executions_per_container
        if most and sandbox.executions >= most:
            await self._remove(sandbox)
            raise Refused(429, _USED_UP)

    async def _remove(self, sandbox: Sandbox) -> None:
        self._known.forget(self._body.container_id)
        with contextlib.suppress(NotFound):
            await self._call.service.sandboxes.delete(self._call.caller, sandbox.id)

    async def _run(self, sandbox: Sandbox, files: dict[str, bytes]) -> _Answer:
        begun = time.monotonic()
        try:
            await self._put(sandbox, files)
        except (Conflict, InvalidRequest, TooLarge) as error:
            failure = Failure(error=f"Failed to copy input files to container: {error}", error_type="FileUploadError")
            return self._answer_lost(failure, begun)
        try:
            left_s = await self._install(sandbox)
            new = translate.parse_program(self._body, left_s, self._settings)
            execution = await self._execute(sandbox, new)
            assert execution.result is not None
            outputs = await self._collect(sandbox, execution.result)
            return await self._finish(sandbox, execution, outputs)
        except SandboxLost:
            failure = Failure(error="Execution failed due to an infrastructure error", error_type="GatewayError")
            return self._answer_lost(failure, begun)

    def _answer_lost(self, failure: Failure, begun: float) -> _Answer:
        return _Answer(execution_id=new_id("exe"), failure=failure, seconds=time.monotonic() - begun)

    async def _put(self, sandbox: Sandbox, files: dict[str, bytes]) -> None:
        for name, content in files.items():
            await self._call.service.files.write(self._call.caller, sandbox.id, name, content, mode=0o600)

    async def _install(self, sandbox: Sandbox) -> float:
        """Install the packages that are asked for; return the seconds that are left."""
        if not self._body.pip_packages:
            return self._timeout_s
        begun = time.monotonic()
        new = translate.parse_install(self._body.pip_packages, self._timeout_s)
        execution = await self._call.service.executions.run(self._call.caller, sandbox.id, new, is_kept=False)
        assert execution.result is not None
        self._install_s = time.monotonic() - begun
        if not execution.result.ok:
            self._install_error = translate.explain_install(execution.result)
        return max(0.001, self._timeout_s - self._install_s)

    async def _execute(self, sandbox: Sandbox, new: NewExecution) -> Execution:
        return await self._call.service.executions.run(self._call.caller, sandbox.id, new)

    async def _collect(self, sandbox: Sandbox, result: ExecResult) -> tuple[Output, ...]:
        """Take what the program left, and leave the folders empty."""
        if not result.collected:
            return ()
        outputs: list[Output] = []
        room = self._settings.output_bytes
        for entry in result.collected:
            output = await self._take(sandbox, entry, room)
            if output is not None:
                room -= len(output.content or b"")
                outputs.append(output)
        if not result.collected_complete:
            outputs.append(Output(name="…", size=0, error="There are more files than are listed"))
        await self._call.service.files.empty_scratch(self._call.caller, sandbox.id, translate.SCRATCH)
        return tuple(outputs)

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

    async def _finish(self, sandbox: Sandbox, execution: Execution, outputs: tuple[Output, ...]) -> _Answer:
        result = execution.result
        assert result is not None
        is_removed = result.cause is Cause.TIMEOUT and self._settings.timeout_removes
        if is_removed:
            await self._remove(sandbox)
        most = self._settings.output_chars
        stdout = translate.read_output(result.stdout, result.stdout_bytes, most)
        stderr = translate.read_output(result.stderr, result.stderr_bytes, most)
        failure = translate.find_failure(
            result, self._body.language, self._timeout_s, stderr=stderr, is_removed=is_removed
        )
        if self._install_error:
            stderr = self._install_error + stderr
            failure = failure or Failure(error="Pip installation failed", error_type="InstallationError")
        self.size = len(stdout) + len(stderr) + 4 * sum(len(each.content or b"") for each in outputs) // 3
        return _Answer(
            execution_id=execution.id,
            failure=failure,
            stdout=stdout,
            stderr=stderr,
            files=outputs,
            seconds=result.duration_ms / 1000,
            install_s=self._install_s,
        )

    def _count(self, answer: _Answer) -> None:
        failure = answer.failure
        outcome = "successful" if failure is None else "timed_out" if failure.timed_out else "failed"
        self._known.count(outcome, answer.seconds)


OPERATIONS = (
    Operation(
        method="POST",
        path="/execute",
        handler=execute,
        grant=Scope.RUN,
        tag="Programs",
        summary="Run a program",
        description="Each is a process of its own; files in `/home/sandbox` stay. What a program does wrong is a "
        "result: `error_type` says what, and after a timeout all that it wrote is there, and the container too.",
        body=schemas.Execute,
        body_limit=words.body_limit,
        query=schemas.Nothing,
        example={"container_id": "0" * 64, "language": "python", "code": "print(6 * 7)", "timeout": 30},
        answers=(Answer(description="What it did.", model=schemas.Executed),),
        errors=(400, 403, 404, 422, 429),
    ),
)
