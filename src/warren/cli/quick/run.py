"""`warren run` with a ticket: one sandbox of a keeper that runs already.

A program gets what `cli/execution/program.py` gives it: output as it comes, standard input, Ctrl-C, exit codes. An end
that needs a word of explanation is explained there.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import time

from warren.cli.quick import tickets
from warren.cli.quick.arguments import SHELL_SUFFIXES, name_inside
from warren.cli.quick.hints import needs_advice
from warren.cli.quick.owner import is_orphan, new_owned_id
from warren.cli.quick.standard_streams import STDIN, read_source, read_stdin_now, write_in_steps
from warren.cli.quick.wire import Gone, Signals, Stopped, Wire
from warren.guest.wire.frames import EVENT_COST, MAX_HEADER, MAX_PAYLOAD, WINDOW

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from warren.guest.wire.frames import Frame, Header

REST_S = 2.0
"""How long the last output of a killed program may take: its reader may never read."""


def run(asked: dict[str, Any]) -> int | None:
    """Run the program of a command line and return the exit code; None, with nothing done, where typer has to.

    A source that was read is then in `asked`: a pipe cannot be read again.
    """
    ticket = tickets.load(asked)
    program = None if ticket is None else _build_program(asked, ticket)
    if ticket is None or program is None:
        return None
    signals = Signals()
    try:
        return _run(ticket, program, signals)
    except Stopped as exc:
        return exc.exit_code
    finally:
        signals.close()


class _Program:
    """What to ask of a keeper and of an agent."""

    def __init__(self, ticket: Mapping[str, Any], env: dict[str, str], code: bytes, header: Header) -> None:
        self.create = {**ticket["create"], "id": new_owned_id(), "env": env}
        self.agent = os.path.join(ticket["sandboxes"], self.create["id"], "agent.sock")
        self.id = f"exe_{os.urandom(12).hex()}"
        self.header = {**ticket["run"], **header, "exec": self.id}
        self.code = code


def _build_program(asked: dict[str, Any], ticket: Mapping[str, Any]) -> _Program | None:
    arguments, source, file = list(asked["args"]), asked.get("code"), ""
    header: Header = {}
    if "timeout" in asked:
        from warren.cli.units import read_timeout

        try:
            header["timeout_ms"] = read_timeout(asked["timeout"]) * 1000
        except ValueError:
            return None
    pairs = [pair.partition("=") for pair in asked.get("env", ())]
    if not all(name and equals and "\0" not in name + value for name, equals, value in pairs):
        return None
    if source is None:
        file = arguments.pop(0) if arguments else ""
        source = _read_source(asked, file)
    if source is None:
        return None
    if file != "-":
        header["stdin"] = True
    if asked.get("shell") or file.endswith(SHELL_SUFFIXES):
        header["kind"] = "shell"
    elif name := name_inside(file):
        header["file"] = name
    if arguments:
        header["argv"] = arguments
    env = {name: value for name, _, value in pairs}
    code = source.encode("utf-8", "surrogatepass")
    # Typer's path knows how much is too much, and says so.
    if len(code) > MAX_PAYLOAD // 2 or len(json.dumps([arguments, env])) > MAX_HEADER // 2:
        return None
    return _Program(ticket, env, code, header)


def _read_source(asked: dict[str, Any], file: str) -> str | None:
    try:
        asked["source"] = read_source(file)
        return str(asked["source"].decode())
    except (OSError, ValueError):
        return None


def _run(ticket: Mapping[str, Any], program: _Program, signals: Signals) -> int | None:
    try:
        keeper = Wire(ticket["keeper"], signals)
    except (OSError, Gone):
        return None
    with keeper.socket:
        if (keeper.hello.get("version"), keeper.hello.get("config")) != (ticket["version"], ticket["config"]):
            return None
        try:
            try:
                keeper.answer(keeper.ask("create", program.create))
            except Gone:
                return None
            code = _follow(program, ticket["said"], signals)
        finally:
            _clean_up(keeper, program.create["id"])
    if pending := signals.take():
        raise Stopped(pending[0])
    return code


def _clean_up(keeper: Wire, sandbox_id: str) -> None:
    """Destroy the sandbox, and those of commands that were killed. A failure does not cost the exit code."""
    try:
        listing, destroy = keeper.ask("list", {}), keeper.ask("destroy", {"id": sandbox_id})
        listed = json.loads(keeper.last_answer(listing)[1] or b"[]")
        orphans = [each["id"] for each in listed if each["id"] != sandbox_id and is_orphan(each["id"])]
        destroys = [destroy, *(keeper.ask("destroy", {"id": each}) for each in orphans)]
        answers = [keeper.last_answer(each)[0] for each in destroys]
    except TimeoutError:
        answers = [{"t": "err", "message": "the keeper does not answer"}]
    except Gone:
        from warren.cli.service.embedded import remove

        remove(sandbox_id)
        return
    for answer in answers:
        if answer["t"] == "err":
            print(f"warren: a sandbox is left to the next command: {answer.get('message')}", file=sys.stderr)


def _follow(program: _Program, said: list[str], signals: Signals) -> int:
    for line in said:
        print(line, file=sys.stderr)
    try:
        agent = Wire(program.agent, signals)
        with agent.socket:
            execution = _Execution(agent, program, signals)
            result = execution.follow()
    except (Gone, ConnectionRefusedError, FileNotFoundError, TimeoutError):
        from warren.domain.errors import SandboxLost

        raise SandboxLost("the sandbox is gone: its agent closed the connection") from None
    code = _end(result, program.id, execution.printed)
    return 128 + execution.killed_by if execution.killed_by else code


class _Execution:
    """The program while it runs."""

    def __init__(self, agent: Wire, program: _Program, signals: Signals) -> None:
        self._agent = agent
        self._id = program.id
        self._signals = signals
        self._stdin_credit = WINDOW if program.header.get("stdin") else 0
        self._takes_stdin = bool(program.header.get("stdin"))
        self._unacknowledged = 0
        self._was_interrupted = False
        self._given_up_at: float | None = None
        self._number = agent.request("run", program.header, program.code)
        self.killed_by = 0
        self.printed = 0

    def follow(self) -> Frame:
        """Pass everything on, both ways, until the result comes, and return that. Raises Gone and Stopped."""
        while True:
            watched: list[Any] = [self._agent.socket, self._signals]
            if self._takes_stdin and self._stdin_credit > 0:
                watched.append(STDIN)
            ready = self._select(watched, [])
            if STDIN in ready:
                self._send_stdin()
            if self._agent.socket in ready:
                for header, payload in self._agent.receive():
                    if header.get("id") == self._number and self._take(header, payload):
                        return header, payload

    def _take(self, header: Header, payload: bytes) -> bool:
        """Take in a frame, and say whether it is the result."""
        kind = header.get("kind")
        if header["t"] == "err":
            from warren.core.agent.values import parse_error

            raise parse_error(header)
        if header["t"] == "credit":
            self._stdin_credit += header["n"] if type(header.get("n")) is int else 0
        elif kind in {"stdout", "stderr"}:
            fd = 1 if kind == "stdout" else 2
            for _ in write_in_steps(fd, payload):
                # After an interrupt the reader has this long: the program may have ended, and its output stays unread.
                self._select([self._signals], [fd], REST_S if self._was_interrupted else None)
            self.printed += len(payload)
            self._unacknowledged += len(payload) + EVENT_COST
            if self._unacknowledged >= WINDOW // 4:
                self._agent.send({"t": "credit", "id": self._number, "n": self._unacknowledged})
                self._unacknowledged = 0
        elif header["t"] == "ok" and kind != "result":
            raise Gone
        return kind == "result"

    def _send_stdin(self) -> None:
        data = read_stdin_now()
        if data:
            self._stdin_credit -= len(data)
            self._agent.send({"t": "data", "id": self._number}, data)
        else:
            self._takes_stdin = False
            self._agent.send({"t": "eof", "id": self._number})

    def _select(self, watched: list[Any], full: list[int], patience_s: float | None = None) -> list[Any]:
        if self._given_up_at is not None:
            patience_s = self._given_up_at - time.monotonic()
        ready, writable, _ = select.select(watched, full, [], None if patience_s is None else max(patience_s, 0))
        if self._signals in ready:
            for number in self._signals.take():
                self._pass_on(number)
        elif patience_s is not None and (patience_s <= 0 or not (ready or writable)):
            raise Stopped(self.killed_by or signal.SIGINT)
        return ready

    def _pass_on(self, number: int) -> None:
        if number == signal.SIGINT and not self._was_interrupted:
            self._was_interrupted = True
            self._agent.request("interrupt", {"exec": self._id})
        elif not self.killed_by:
            self.killed_by = number
            self._agent.request("kill", {"exec": self._id})
            self._given_up_at = time.monotonic() + REST_S


def _end(result: Frame, exec_id: str, printed: int) -> int:
    """Return the exit code; explain any end that is not an ordinary exit."""
    header, payload = result
    parts = header.get("parts")
    try:
        of_body, of_stdout, of_stderr, *_ = parts  # type: ignore[misc]  # or it is no result
        body = json.loads(payload[:of_body])
        stderr = payload[of_body + of_stdout : of_body + of_stdout + of_stderr]
        is_plain = (
            body.get("exec") == exec_id
            and body.get("cause", "exited") in {"exited", "error"}
            and type(code := body.get("exit_code", 0)) is int
            and 0 <= code <= 255
            and not needs_advice(code, body.get("error"), stderr)
            and not body.get("notes")
            and body.get("stdout_bytes", 0) + body.get("stderr_bytes", 0) <= printed
        )
    except (ValueError, TypeError, AttributeError, RecursionError):
        is_plain = False
    if is_plain:
        return int(code) or (1 if body.get("cause") == "error" else 0)
    from warren.cli.execution.program import finish_frame

    return finish_frame(header, payload, exec_id, printed)
