"""The commands that use the standard library only: read as typer reads them, good while nothing has changed."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from warren.cli.app import build_commands
from warren.cli.main import HELP_PAGE
from warren.cli.quick import tickets
from warren.cli.quick.arguments import FLAG, MANY, OPTIONS, parse
from warren.cli.quick.ps import list_sandboxes
from warren.cli.quick.run import run
from warren.cli.quick.standard_streams import read_source, write_in_steps
from warren.cli.quick.wire import Signals
from warren.cli.reference import render_help
from warren.domain.lifecycle import Status
from warren.domain.records import Owner, Sandbox
from warren.domain.values import Limits, new_id
from warren.gateway.dialects.native.translate import render_sandbox
from warren.stores.sqlite import SqliteStore

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_TICKET: dict[str, Any] = {
    "keeper": "/nowhere",
    "version": "1",
    "config": {},
    "sandboxes": "/nowhere",
    "create": {},
    "run": {},
    "said": [],
}
_HEAVY = ("typer", "click", "httpx", "anyio", "asyncio", "pydantic", "rich", "dataclasses")


@pytest.mark.parametrize("command", OPTIONS)
def test_a_name_means_what_typer_takes_it_for(command: str) -> None:
    known = {name: each for each in build_commands().commands[command].params for name in each.opts}

    for name, (parameter, takes) in OPTIONS[command].items():
        assert known[name].name == parameter, name
        assert known[name].is_flag == (takes == FLAG), name
        assert known[name].multiple == (takes == MANY), name


@pytest.mark.parametrize(
    "words",
    [
        ("-c", "print(1)"),
        ("-c", "-1", "a", "b"),
        ("--code=1", "--env", "A=b=c", "-e", "B="),
        ("script.py", "--timeout", "30s", "--", "--flag", "--", "x"),
        ("script.py", "a", "--image", "python", "b"),
        ("-c", "1", "-c", "2", "--memory=1G"),
        ("--shell", "-", "x"),
    ],
)
def test_a_command_line_is_read_as_typer_reads_it(words: tuple[str, ...]) -> None:
    command: Any = build_commands().commands["run"]
    params = command.make_context("run", [*words]).params
    found = parse("run", words)

    assert found is not None
    assert found["args"] == [each for each in (params["file"], *(params["args"] or ())) if each is not None]
    for name in ("code", "image", "env", "shell"):
        assert (found.get(name) or None) == (params[name] or None)
    assert ("timeout" in found) == (params["timeout"] is not None)
    assert ("memory" in found) == (params["memory"] is not None)


@pytest.mark.parametrize(
    "words", [("--cod", "1"), ("-cprint",), ("-c",), ("--shell=1",), ("--json", "-c", "1"), ("-c=1",), ("--help",)]
)
def test_what_is_not_plain_is_left_to_typer(words: tuple[str, ...]) -> None:
    assert parse("run", words) is None


def test_the_page_of_help_is_what_click_writes() -> None:
    with open(HELP_PAGE, encoding="utf-8") as page:
        assert page.read() == render_help(), "run `make docs`"


@pytest.mark.parametrize("words", [["--help"], ["version"], ["ps"], ["run", "-c", "1"]])
def test_quick_commands_import_the_standard_library_only(words: list[str], tmp_path: Path) -> None:
    """As far as they come here: there is no service, and no ticket."""
    code = (
        "import sys\nfrom warren.cli import main\nmain._answer(sys.argv[1:])\n"
        f"print('heavy:', [name for name in {_HEAVY} if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *words],
        env={"PATH": os.defpath, "WARREN_DATA_DIR": str(tmp_path)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )

    assert done.stdout.endswith("heavy: []\n")


def test_it_runs_as_a_module(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-m", "warren", "version"], capture_output=True, cwd=tmp_path, check=True)

    assert done.stdout.startswith(b"warren ")


def test_a_ticket_is_good_until_something_it_came_from_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WARREN_DATA_DIR", str(tmp_path / "data"))
    spec = tmp_path / "spec.toml"
    spec.write_text("first")
    asked = {"args": [], "code": "1", "image": "python"}
    tickets.save(asked, _TICKET, [str(spec), str(tmp_path / "absent.lock")])

    assert tickets.load(asked | {"code": "2"}) is not None
    assert tickets.load(asked | {"image": "data"}) is None
    assert tickets.load(asked | {"memory": "1G"}) is None
    monkeypatch.setenv("WARREN_IMAGE", "data")
    assert tickets.load(asked) is None
    monkeypatch.delenv("WARREN_IMAGE")
    (tmp_path / "warren.toml").touch()
    assert tickets.load(asked) is None
    (tmp_path / "warren.toml").unlink()
    monkeypatch.setenv("WARREN_URL", "http://127.0.0.1:1")
    assert tickets.load(asked) is None
    monkeypatch.delenv("WARREN_URL")
    assert tickets.load(asked) is not None
    (tmp_path / "absent.lock").touch()
    assert tickets.load(asked) is None
    (tmp_path / "absent.lock").unlink()
    spec.write_text("second")
    assert tickets.load(asked) is None


def test_tickets_are_few_and_their_owners(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WARREN_DATA_DIR", str(tmp_path))
    for number in range(tickets._MOST + 2):
        tickets.save({"memory": f"{number}M"}, {}, [])

    assert len(os.listdir(tmp_path / "tickets")) <= tickets._MOST
    assert os.stat(tmp_path / "tickets").st_mode & 0o777 == 0o700
    assert {os.stat(each).st_mode & 0o777 for each in os.scandir(tmp_path / "tickets")} == {0o600}


@pytest.mark.parametrize("content", ["fifo", "zeros", "nested", "list", "empty", "long", "said", "create", "keeper"])
def test_what_is_no_ticket_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WARREN_DATA_DIR", str(tmp_path))
    asked: dict[str, Any] = {"args": []}
    tickets.save(asked, _TICKET if content not in _TICKET else {**_TICKET, content: 1}, [])
    (path,) = (tmp_path / "tickets").iterdir()
    if content not in _TICKET:
        path.unlink()
        if content == "fifo":
            os.mkfifo(path)
        elif content == "zeros":
            path.symlink_to("/dev/zero")
        else:
            path.write_text({"nested": "[" * 100_000, "list": "[1]", "empty": "", "long": " " * (2 << 20)}[content])

    assert tickets.load(asked) is None


def test_a_ticket_that_cannot_be_put_in_its_place_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WARREN_DATA_DIR", str(tmp_path))
    tickets.save({}, _TICKET, [])
    (path,) = (tmp_path / "tickets").iterdir()
    path.unlink()
    path.mkdir()

    tickets.save({}, _TICKET, [])

    assert list((tmp_path / "tickets").iterdir()) == [path]


@pytest.mark.parametrize("program", [b"print(5)", b"\xff\xfe"], ids=["text", "no text"])
def test_a_program_that_was_read_and_not_run_is_handed_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: bytes
) -> None:
    """The keeper of the ticket is gone, and a pipe cannot be read again."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WARREN_DATA_DIR", str(tmp_path))
    asked: dict[str, Any] = {"args": ["-"]}
    tickets.save(asked, {**_TICKET, "keeper": str(tmp_path / "keeper.sock")}, [])
    with _stdin(program):
        assert run(asked) is None

    assert asked["source"] == program


def test_a_pipe_that_does_not_block_is_read_to_its_end() -> None:
    with _stdin(b"") as writer:
        os.set_blocking(0, False)

        def write_late() -> None:
            os.write(writer, b"print(5)")
            os.close(writer)

        threading.Timer(0.1, write_late).start()

        assert read_source("-") == b"print(5)"


@contextlib.contextmanager
def _stdin(content: bytes) -> Iterator[int]:
    """A pipe as standard input; without content, its other end is the caller's to close."""
    stdin = os.dup(0)
    reader, writer = os.pipe()
    os.dup2(reader, 0)
    os.close(reader)
    if content:
        os.write(writer, content)
        os.close(writer)
    try:
        yield writer
    finally:
        os.dup2(stdin, 0)
        os.close(stdin)


@pytest.mark.parametrize("kind", ["pipe", "socket", "terminal"])
def test_a_write_waits_for_its_reader_where_signals_are_heard(kind: str) -> None:
    if kind == "socket":
        first, second = socket.socketpair()
        reader, writer = first.detach(), second.detach()
    else:
        reader, writer = os.pipe() if kind == "pipe" else os.openpty()
    try:
        step = next(write_in_steps(writer, b"x\n" * (1 << 20)), "written")

        assert step is None
        assert os.get_blocking(writer)
    finally:
        os.close(reader)
        os.close(writer)


def test_a_signal_that_is_ignored_stays_so() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        signals = Signals()
        heard = [signal.getsignal(each) for each in (signal.SIGHUP, signal.SIGTERM)]
        signals.close()

        assert heard[0] is signal.SIG_IGN
        assert callable(heard[1])
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


_PRINTED = ("id", "status", "reason", "image", "memory_mb", "cpu", "command_count", "metadata", "owner")


def _store(folder: Path, **fields: Any) -> Sandbox:
    usual: dict[str, Any] = {
        "id": new_id("sbx"),
        "owner": Owner("default", "local"),
        "status": Status.STOPPED,
        "engine": "local",
        "image": "python",
        "image_digest": "0",
        "limits": Limits(memory_bytes=1 << 30, cpus=0.5),
        "created_at": 1.0,
        "active_at": 2.0,
        "changed_at": 1.0,
    }
    sandbox = Sandbox(**{**usual, **fields})

    async def add() -> None:
        store = SqliteStore(str(folder))
        await store.open()
        await store.add(sandbox)
        await store.close()

    anyio.run(add)
    os.makedirs(folder / "local" / "sandboxes" / sandbox.id)
    return sandbox


def test_the_store_is_read_as_the_api_writes_it(tmp_path: Path) -> None:
    first = _store(tmp_path, reason="it was idle", metadata={"of": "a story"})
    second = _store(tmp_path, created_at=3.0, owner=Owner("acme", "ann"))

    found = list_sandboxes(str(tmp_path))

    assert found is not None
    assert [{name: info[name] for name in _PRINTED} for info in found] == [
        {name: info[name] for name in _PRINTED} for info in map(render_sandbox, (second, first))
    ]
    assert [info["created_at"] for info in found] == ["1970-01-01T00:00:03+00:00", "1970-01-01T00:00:01+00:00"]
    assert list_sandboxes(str(tmp_path), limit=1) is None
    assert len(list_sandboxes(str(tmp_path), limit=1, is_exact=False) or ()) == 1


@pytest.mark.parametrize(
    "fields",
    [
        {"status": Status.RUNNING},
        {"status": Status.STARTING},
        {"engine": "bare"},
        {"metadata": {"of": "\ud800"}},
    ],
    ids=["no agent listens", "a step was interrupted", "another engine", "no Unicode"],
)
def test_a_record_that_a_service_has_to_look_at_is_left_to_one(tmp_path: Path, fields: dict[str, Any]) -> None:
    _store(tmp_path, **fields)

    assert list_sandboxes(str(tmp_path)) is None


def test_a_sandbox_that_the_engine_lost_is_left_to_a_service(tmp_path: Path) -> None:
    sandbox = _store(tmp_path)
    os.rmdir(tmp_path / "local" / "sandboxes" / sandbox.id)

    assert list_sandboxes(str(tmp_path)) is None


def test_a_store_of_a_later_version_is_left_to_a_service(tmp_path: Path) -> None:
    _store(tmp_path)
    with contextlib.closing(sqlite3.connect(tmp_path / "warren.db")) as store, store:
        store.execute("INSERT INTO schema_version VALUES (999, 0)")

    assert list_sandboxes(str(tmp_path)) is None
    os.unlink(tmp_path / "warren.db")
    assert list_sandboxes(str(tmp_path)) is None, "its secret says that the folder was in use"
    os.unlink(tmp_path / "audit.key")
    assert list_sandboxes(str(tmp_path)) == []
