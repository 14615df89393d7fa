"""The commands for sandboxes that stay: the same on an engine in the command, the local socket, and a named service."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import signal
import socket
import stat
from typing import TYPE_CHECKING, Any

import pytest

from e2e import forked
from e2e.forked import Forked
from e2e.person import Person
from e2e.serving import DEADLINE_S, RunningService, create, wait_until
from warren.engines import procfs

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from warren.domain.values import Image

# Each command is a process of its own, some with a service in it.
pytestmark = pytest.mark.timeout(400)


class Desk:
    """A user who types commands about the sandboxes of one service, or of none."""

    def __init__(self, service: RunningService, folder: Path) -> None:
        self.service = service
        self.folder = folder
        self.env = dict(service.env)

    def run(self, *arguments: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        return forked.run([*arguments], input=stdin, cwd=self.folder, env=self.env, timeout=DEADLINE_S)

    def get(self, *arguments: str, stdin: bytes = b"") -> str:
        """Run a command that must succeed, and return what it prints."""
        done = self.run(*arguments, stdin=stdin)
        assert done.returncode == 0, done.stderr.decode()
        return done.stdout.decode()

    def refuse(self, code: int, *arguments: str) -> str:
        """Run a command that must fail, with this code and one sentence, and return that."""
        done = self.run(*arguments)
        said = done.stderr.decode()
        assert done.returncode == code, said
        assert len(said.splitlines()) == 1, said
        return said

    def start(self, *arguments: str) -> Forked:
        return Forked([*arguments], cwd=self.folder, env=self.env)

    def listed(self, *arguments: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(self.get("ps", "--json", *arguments))
        return found


@pytest.fixture
def embedded(serve: Callable[..., RunningService], tmp_path: Path) -> Desk:
    return Desk(serve("bare"), tmp_path)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory, images_dir: str, python_image: Image) -> Iterator[RunningService]:
    """One service for all who only talk to one."""
    assert python_image.name == "python"
    service = RunningService(tmp_path_factory.mktemp("cli") / "data", images_dir, "bare")
    try:
        yield service.start()
        assert service.stop() == 0
    finally:
        service.clear()


@pytest.fixture
def served(running: RunningService, tmp_path: Path) -> Iterator[Desk]:
    """A desk at the service, which has no sandbox yet; what a test leaves is removed."""
    yield Desk(running, tmp_path)
    with running.client() as client:
        left = client.get("/sandboxes", params={"everybody": "true", "limit": 200}).json()["items"]
        for each in left:
            assert client.delete(f"/sandboxes/{each['id']}").status_code == 204


@pytest.fixture(params=["embedded", "socket", "url"])
def desk(request: pytest.FixtureRequest) -> Desk:
    desk: Desk = request.getfixturevalue("embedded" if request.param == "embedded" else "served")
    if request.param == "url":
        desk.env |= {"WARREN_URL": f"http://127.0.0.1:{desk.service.port}", "WARREN_API_KEY": desk.service.key}
    return desk


def test_a_sandbox_is_made_used_and_removed_with_one_command_each(desk: Desk, tmp_path: Path) -> None:
    sandbox = desk.get("sandbox", "create", "--quiet", "--label", "of=story").strip()
    short = sandbox.removeprefix("sbx_")[:6]
    (tmp_path / "in.txt").write_text("hello\n")
    os.makedirs(tmp_path / "tree" / "deep")
    (tmp_path / "tree" / "deep" / "leaf").write_text("leaf\n")

    assert [each["id"] for each in desk.listed("--label", "of=story")] == [sandbox]
    assert desk.get("sandbox", "exec", short, "-c", "x = 41") == ""
    assert desk.get("sandbox", "exec", short, "-c", "x + 1") == "42\n"
    assert desk.get("sandbox", "exec", sandbox, "--", "cat", stdin=b"typed") == "typed"
    assert json.loads(desk.get("sandbox", "cp", "in.txt", f"{short}:", "--json"))["target"] == "in.txt"
    desk.get("sandbox", "cp", "tree", f"{short}:copied/tree")
    assert desk.get("sandbox", "exec", short, "--shell", "-c", "cat in.txt copied/tree/deep/leaf") == "hello\nleaf\n"
    assert desk.get("sandbox", "logs", short) == "hello\nleaf\n"
    assert desk.get("sandbox", "cp", f"{short}:in.txt", "-") == "hello\n"
    desk.get("sandbox", "cp", f"{short}:copied", "out")
    assert (tmp_path / "out" / "tree" / "deep" / "leaf").read_text() == "leaf\n"
    failed = desk.run("sandbox", "exec", short, "--", "sh", "-c", "echo to-stderr >&2; exit 7")
    assert (failed.returncode, failed.stdout, failed.stderr) == (7, b"", b"to-stderr\n")
    assert len(json.loads(desk.get("sandbox", "logs", short, "--list", "--json"))) == 5
    assert json.loads(desk.get("sandbox", "stop", short, "--json")) == [{"id": sandbox, "status": "stopped"}]
    assert desk.listed("--status", "running") == []
    desk.get("sandbox", "start", short)
    assert [each["id"] for each in json.loads(desk.get("top", "--json"))] == [sandbox]
    assert desk.get("ps", "--quiet") == f"{sandbox}\n"
    desk.get("sandbox", "rm", short)
    assert desk.listed() == []


def test_images_that_python_shows_are_saved(served: Desk, tmp_path: Path) -> None:
    sandbox = served.get("sandbox", "create", "--quiet").strip()
    draw = "class Chart:\n    def _repr_png_(self): return b'drawn'\nChart()"

    said = [served.get("sandbox", "exec", sandbox, "--figures", "charts", "-c", draw) for _ in range(2)]

    assert said == ["charts/figure-1.png\n", "charts/figure-2.png\n"]
    assert [(tmp_path / name.strip()).read_bytes() for name in said] == [b"drawn", b"drawn"]


def test_a_program_runs_on_a_service_as_it_runs_here(served: Desk, tmp_path: Path) -> None:
    (tmp_path / "data.txt").write_text("3 4\n")
    (tmp_path / "program.py").write_text(
        "import sys\nprint(sum(map(int, open('data.txt').read().split())), sys.argv[1:], sys.stdin.read())\n"
        "open('made.txt', 'w').write('made')\nsys.exit(5)\n"
    )
    remote = ("--url", f"http://127.0.0.1:{served.service.port}")
    served.env["WARREN_API_KEY"] = served.service.key

    done = served.run(
        "run", *remote, "--file", "data.txt", "--output", "results", "program.py", "--", "a", stdin=b"typed"
    )
    as_json = served.run("run", *remote, "-c", "print(1)", "--json")
    here = served.run("run", "-c", "print(1)", "--json")

    assert (done.returncode, done.stdout) == (5, b"7 ['a'] typed\n"), done.stderr
    assert (tmp_path / "results" / "made.txt").read_text() == "made"
    assert json.loads(here.stdout).keys() <= json.loads(as_json.stdout).keys()
    assert json.loads(as_json.stdout)["stdout"] == "1\n"
    assert served.listed() == []


def test_each_mistake_gets_one_sentence_and_its_exit_code(served: Desk) -> None:
    service = served.service
    remote = ("--url", f"http://127.0.0.1:{service.port}")
    theirs: list[str] = []
    with service.client() as client:
        while len({each[:5] for each in theirs}) == len(theirs):
            theirs = sorted([*theirs, create(client)])
    ours = served.get("sandbox", "create", "--quiet").strip()
    common = next(a[:5] for a, b in itertools.pairwise(theirs) if a[:5] == b[:5])

    assert "`warren ps`" in served.refuse(1, "sandbox", "rm", "zzzz")
    assert "type more" in served.refuse(2, "sandbox", "rm", common)
    assert "asks for a key" in served.refuse(4, "ps", *remote)
    served.env["WARREN_API_KEY"] = "wrn_wrong"
    assert "not valid" in served.refuse(4, "ps", *remote)
    assert "no service answers" in served.refuse(3, "ps", "--url", "http://127.0.0.1:1")
    assert "no address" in served.refuse(2, "ps", "--url", "somewhere")
    assert "only they use it" in served.refuse(4, "sandbox", "exec", theirs[0], "--", "true")
    assert "after --" in served.refuse(2, "sandbox", "exec", ours)
    assert "SANDBOX:PATH" in served.refuse(2, "sandbox", "cp", "a", "b")
    assert "no such file" in served.refuse(1, "sandbox", "cp", "missing", f"{ours}:").lower()
    assert "there is no missing" in served.refuse(1, "sandbox", "cp", f"{ours}:missing", ".")
    assert "nothing has run" in served.refuse(1, "sandbox", "logs", ours)
    assert len(served.listed()) == len(theirs) + 1, "a list with a mistake in it does nothing"


def test_an_administrator_of_this_machine_sees_and_ends_everybodys(served: Desk) -> None:
    with served.service.client() as client:
        theirs = create(client)
    ours = served.get("sandbox", "create", "--quiet").strip()

    assert {each["id"]: each["owner"]["subject"] for each in served.listed()} == {ours: "local", theirs: "admin"}
    served.get("sandbox", "rm", theirs, ours)
    assert served.listed() == []


def test_ctrl_c_leaves_a_log_and_not_the_program(served: Desk) -> None:
    sandbox = served.get("sandbox", "create", "--quiet").strip()
    wait = "echo begun; while [ ! -e go ]; do sleep 0.01; done; echo went"
    served.get("sandbox", "exec", sandbox, "--background", "--shell", "-c", wait)
    with served.start("sandbox", "logs", "--follow", sandbox) as following:
        assert following.stdout is not None
        assert following.stdout.readline() == b"begun\n"
        following.send_signal(signal.SIGINT)
        code = following.wait(DEADLINE_S)

    so_far = served.run("sandbox", "logs", sandbox)

    assert code == 130
    assert (so_far.stdout, b"still running" in so_far.stderr) == (b"begun\n", True)
    assert [each["status"] for each in json.loads(served.get("sandbox", "logs", sandbox, "--list", "--json"))] == [
        "running"
    ]
    served.get("sandbox", "exec", sandbox, "--", "touch", "go")
    newest_but_one = json.loads(served.get("sandbox", "logs", sandbox, "--list", "--json"))[1]["id"]
    assert served.get("sandbox", "logs", "--follow", sandbox, newest_but_one) == "begun\nwent\n"


def test_ctrl_c_interrupts_a_program_and_the_sandbox_stays(served: Desk) -> None:
    sandbox = served.get("sandbox", "create", "--quiet").strip()
    code = "import time\nprint('begun', flush=True)\ntime.sleep(1000)"
    with served.start("sandbox", "exec", sandbox, "-c", code) as running:
        assert running.stdout is not None
        assert running.stdout.readline() == b"begun\n"
        running.send_signal(signal.SIGINT)
        assert running.wait(DEADLINE_S) == 130

    assert [each["status"] for each in served.listed()] == ["running"]


def test_output_that_got_lost_is_no_success_for_a_pipe(served: Desk) -> None:
    sandbox = served.get("sandbox", "create", "--quiet").strip()
    with served.start("sandbox", "exec", "--no-stdin", sandbox, "--", "head", "-c", "400M", "/dev/zero") as running:
        assert running.stdout is not None
        running.stdout.read(1)
        # The rest is unread: what does not fit anywhere is dropped; that is known once the program has ended.
        wait_until(
            lambda: json.loads(served.get("sandbox", "logs", sandbox, "--list", "--json"))[0]["status"] == "finished"
        )
        output, said = running.communicate(timeout=DEADLINE_S)

    assert len(output) < 400 << 20
    assert (running.returncode, b"bytes of its output are missing" in said) == (1, True)


def test_commands_share_an_engine_while_no_service_runs(embedded: Desk) -> None:
    sandbox = embedded.get("sandbox", "create", "--quiet").strip()
    wait = "echo begun; while [ ! -e go ]; do sleep 0.01; done; echo went"
    with embedded.start("sandbox", "exec", sandbox, "--shell", "-c", wait) as first:
        assert first.stdout is not None
        assert first.stdout.readline() == b"begun\n"
        assert [each["id"] for each in embedded.listed()] == [sandbox]
        stop = embedded.run("stop")
        assert (stop.returncode, b"is a command that uses" in stop.stderr) == (2, True)
        embedded.get("sandbox", "exec", sandbox, "--", "touch", "go")
        assert first.stdout.readline() == b"went\n"
        assert first.wait(DEADLINE_S) == 0

    assert not (embedded.service.folder / "warren.sock").exists()


def test_a_killed_command_blocks_no_other(embedded: Desk) -> None:
    sandbox = embedded.get("sandbox", "create", "--quiet").strip()
    with embedded.start("sandbox", "exec", sandbox, "--shell", "-c", "echo begun; sleep 1000") as killed:
        assert killed.stdout is not None
        killed.stdout.readline()
        killed.kill()

    assert (embedded.service.folder / "warren.sock").exists()
    status = json.loads(embedded.run("status", "--json").stdout)
    assert not status["running"]
    assert [each["id"] for each in embedded.listed()] == [sandbox]


def test_ps_opens_no_engine_unless_a_sandbox_has_died(serve: Callable[..., RunningService], tmp_path: Path) -> None:
    desk = Desk(serve("local"), tmp_path)
    # Settings that the quick form does not know would have the whole command line read them.
    del desk.env["WARREN_POOL_SIZE"]
    dead, stopped, running = (desk.get("sandbox", "create", "--quiet").strip() for _ in range(3))
    desk.get("sandbox", "stop", stopped)
    desk.get("stop-engine")
    keeper = desk.service.folder / "local" / "keeper.sock"

    assert [line.split()[1] for line in desk.get("ps").splitlines()[1:]] == ["running", "stopped", "running"]
    assert not keeper.exists()
    record = json.loads((desk.service.folder / "local" / "sandboxes" / dead / "record.json").read_text())
    os.kill(record["pid"], signal.SIGKILL)
    wait_until(lambda: procfs.read(record["pid"]) is None)
    assert desk.get("ps", "--quiet").split() == [running, stopped, dead]
    assert [line.split()[1] for line in desk.get("ps").splitlines()[1:]] == ["running", "stopped", "stopped:"]


def test_a_terminal_is_left_and_found_again(served: Desk) -> None:
    sandbox = served.get("sandbox", "create", "--quiet").strip()
    with Person(served, "shell", "--sandbox", sandbox[:10]) as person:
        person.reads(b"A new terminal")
        person.types(b"stty size; kept=1$((1)); echo wh$((0))ere\n")
        person.reads(b"33 99")
        person.reads(b"wh0ere")
        person.types(b"\x1d\x1d")
        person.reads(b"It runs on")
        assert person.leaves() == 0
    with Person(served, "shell", "--sandbox", sandbox) as person:
        person.reads(b"as it was left")
        person.reads(b"wh0ere")
        person.types(b"echo $kept; exit 9\n")
        person.reads(b"11")
        assert person.leaves() == 9


def test_a_person_sees_tables_and_leaves_top_with_ctrl_c(served: Desk) -> None:
    sandbox = served.get("sandbox", "create", "--quiet", "--label", "a=b").strip()
    with Person(served, "ps") as person:
        person.reads(b"labels")
        person.reads(sandbox[:16].encode())
        assert person.leaves() == 0
    with Person(served, "top", "--interval", "100ms") as person:
        person.reads(b"1 running")
        person.process.send_signal(signal.SIGINT)
        assert person.leaves() == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to be another user")
def test_the_socket_of_the_service_is_for_its_user_and_root_alone(served: Desk) -> None:
    path = str(served.service.folder / "warren.sock")
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    for parent in (served.service.folder, *served.service.folder.parents):
        if not parent.stat().st_mode & 0o001:
            parent.chmod(parent.stat().st_mode | 0o011)

    assert _ask_as(65534, path) == "PermissionError"
    os.chmod(path, 0o666)
    try:
        assert _ask_as(65534, path) == "HTTP/1.1 403 Forbidden"
        assert _ask_as(0, path) == "HTTP/1.1 200 OK"
    finally:
        os.chmod(path, 0o600)


def _ask_as(uid: int, path: str) -> str:
    """Ask on a socket as another user, and return the first line of the answer, or what went wrong."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.setgroups([])
        os.setgid(uid)
        os.setuid(uid)
        try:
            with socket.socket(socket.AF_UNIX) as asking:
                asking.connect(path)
                with contextlib.suppress(BrokenPipeError):
                    asking.sendall(b"GET /api/v1/sandboxes HTTP/1.1\r\nhost: localhost\r\n\r\n")
                answer = asking.recv(1000).partition(b"\r")[0]
        except OSError as error:
            answer = type(error).__name__.encode()
        os.write(writing, answer)
        os._exit(0)
    os.close(writing)
    with open(reading, "rb") as pipe:
        said = pipe.read().decode()
    os.waitpid(pid, 0)
    return said


def test_what_comes_over_the_socket_is_audited_with_its_user(served: Desk) -> None:
    sandbox = served.get("sandbox", "create", "--quiet").strip()
    rows = [json.loads(line) for line in served.get("audit", "export").splitlines()]
    made = [row for row in rows if row["action"] == "sandbox.create" and row["sandbox_id"] == sandbox]

    assert [(row["subject"], row["address"]) for row in made] == [("local", f"local uid {os.geteuid()}")]


def test_a_sandbox_of_a_command_is_found_by_a_service_later(embedded: Desk) -> None:
    sandbox = embedded.get("sandbox", "create", "--quiet").strip()
    embedded.get("sandbox", "exec", sandbox, "-c", "x = 1")
    embedded.service.start()

    assert embedded.get("sandbox", "exec", sandbox, "-c", "x") == "1\n"
    wait_until(lambda: [each["id"] for each in embedded.listed()] == [sandbox])
